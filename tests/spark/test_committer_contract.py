"""The contract of a committer, call by call: attempts that fail, come twice, or come too late; jobs that are aborted.

Spark makes these calls in an order of its own choosing, from several threads and processes. Here they are made by hand.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyspark
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from esker.spark import config
from tests.server.live import Live
from tests.spark.tables import Table


class Committer:
    """Drives one of the two, for the table; every attempt has an instance of its own, as in other processes."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self.jvm = cast("Any", spark._jvm)
        self.table = table
        self.conf = self.jvm.org.apache.hadoop.mapred.JobConf(spark.sparkContext._jsc.hadoopConfiguration())
        self.conf.set("spark.sql.sources.writeJobUUID", self.jvm.java.util.UUID.randomUUID().toString())
        self.job_id = self.jvm.org.apache.hadoop.mapreduce.JobID("20260101", 1)
        self.context = self.jvm.org.apache.hadoop.mapred.JobContextImpl(self.conf, self.mapred_job())
        self.done: list[Any] = []

    def mapred_job(self) -> Any:
        return self.jvm.org.apache.hadoop.mapred.JobID("20260101", 1)

    def attempt_context(self, task: int, number: int) -> Any:
        mapred = self.jvm.org.apache.hadoop.mapred
        kind = self.jvm.org.apache.hadoop.mapreduce.TaskType.MAP
        name = mapred.TaskAttemptID(mapred.TaskID(self.mapred_job(), kind, task), number)
        conf = mapred.JobConf(self.conf)
        conf.set("mapreduce.task.attempt.id", name.toString())
        return mapred.TaskAttemptContextImpl(conf, name)

    def write(self, path: Any, text: str) -> None:
        out = path.getFileSystem(self.conf).create(path, True)
        out.write(text.encode(), 0, len(text))
        out.close()

    def attempt(self, task: int, number: int = 0, text: str = "rows", *, close: bool = True) -> "Attempt":
        raise NotImplementedError

    def setup(self) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError


class Attempt:
    """One that has written its file."""

    def __init__(self, committer: Committer, instance: Any, context: Any) -> None:
        self.committer = committer
        self.instance = instance
        self.context = context

    def commit(self) -> None:
        """And tell the driver."""
        self.committer.done.append(self.instance.commitTask(self.context))

    def abort(self) -> None:
        self.instance.abortTask(self.context)


class OfSpark(Committer):
    """`LakeCommitProtocol`: serialised from the driver to the tasks, whose answers travel back."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        super().__init__(spark, table)
        self.instance = self.jvm.io.esker.spark.LakeCommitProtocol("0", table.url, False)

    def setup(self) -> None:
        self.instance.setupJob(self.context)

    def attempt(self, task: int, number: int = 0, text: str = "rows", *, close: bool = True) -> Attempt:
        instance = self.jvm.org.apache.commons.lang3.SerializationUtils.clone(self.instance)
        context = self.attempt_context(task, number)
        instance.setupTask(context)
        name = self.jvm.org.apache.spark.internal.io.FileNameSpec("", f"-{text}.txt")
        path = self.jvm.org.apache.hadoop.fs.Path(
            instance.newTaskTempFile(context, self.jvm.scala.Option.empty(), name)
        )
        if close:
            self.write(path, text)
        else:
            path.getFileSystem(self.conf).create(path, True)
        return Attempt(self, instance, context)

    def commit(self) -> None:
        messages = self.jvm.java.util.ArrayList()
        for message in self.done:
            messages.add(message)
        self.instance.commitJob(self.context, self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(messages).toSeq())

    def abort(self) -> None:
        self.instance.abortJob(self.context)


class OfHadoop(Committer):
    """`LakeOutputCommitter`: job and tasks share a configuration and nothing else."""

    def _new(self, context: Any) -> Any:
        return self.jvm.io.esker.spark.LakeOutputCommitter(self.jvm.org.apache.hadoop.fs.Path(self.table.url), context)

    def driver(self) -> Any:
        return self._new(self.attempt_context(0, 0))

    def setup(self) -> None:
        self.driver().setupJob(self.context)

    def attempt(self, task: int, number: int = 0, text: str = "rows", *, close: bool = True) -> Attempt:
        context = self.attempt_context(task, number)
        instance = self._new(context)
        instance.setupTask(context)
        assert instance.needsTaskCommit(context)
        path = self.jvm.org.apache.hadoop.fs.Path(self.work(instance, context), f"part-{task:05}-{text}.txt")
        if close:
            self.write(path, text)
        else:
            path.getFileSystem(self.conf).create(path, True)
        return Attempt(self, instance, context)

    def work(self, instance: Any, context: Any) -> Any:
        return instance.getWorkPath()

    def commit(self) -> None:
        self.driver().commitJob(self.context)

    def abort(self) -> None:
        self.driver().abortJob(self.context, self.jvm.org.apache.hadoop.mapreduce.JobStatus.State.FAILED)


class OfMapred(OfHadoop):
    """`LakeMapredCommitter`: the same by Hadoop's older interface, whose committers learn their place by settings."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        super().__init__(spark, table)
        self.conf.set("mapreduce.output.fileoutputformat.outputdir", table.url)

    def _new(self, context: Any) -> Any:
        return self.jvm.io.esker.spark.LakeMapredCommitter()

    def work(self, instance: Any, context: Any) -> Any:
        return instance.getWorkPath(context, self.jvm.org.apache.hadoop.fs.Path(self.table.url))

    def abort(self) -> None:
        self.driver().abortJob(self.context, self.jvm.org.apache.hadoop.mapred.JobStatus.FAILED)


@pytest.fixture
def table(server: Live, repo: str) -> Table:
    return Table(server, repo)


@pytest.fixture(params=[OfSpark, OfHadoop, OfMapred])
def committer(request: pytest.FixtureRequest, spark: SparkSession, table: Table) -> Iterator[Committer]:
    made = request.param(spark, table)
    made.setup()
    yield made
    assert "running" not in table.jobs().values(), "a test ends its job"


def _texts(table: Table) -> list[str]:
    return sorted(path.rpartition("-")[2].removesuffix(".txt") for path in table.paths())


def test_what_committed_tasks_wrote_appears_with_the_job(committer: Committer, table: Table) -> None:
    for task in range(3):
        committer.attempt(task, text=f"t{task}").commit()
        assert table.paths() == frozenset()
    committer.commit()
    assert _texts(table) == ["t0", "t1", "t2"]


def test_a_failed_attempt_leaves_nothing_and_the_next_takes_its_place(committer: Committer, table: Table) -> None:
    committer.attempt(0, 0, "failed").abort()
    committer.attempt(0, 1, "good").commit()
    committer.commit()
    assert _texts(table) == ["good"]


def test_an_attempt_that_died_without_a_word_leaves_nothing(committer: Committer, table: Table) -> None:
    committer.attempt(0, 0, "died")
    committer.attempt(0, 1, "good").commit()
    committer.commit()
    assert _texts(table) == ["good"]


def test_of_attempts_at_the_same_time_the_one_that_is_committed_counts(committer: Committer, table: Table) -> None:
    slow, fast = committer.attempt(0, 0, "slow"), committer.attempt(0, 1, "fast")
    fast.commit()
    slow.abort()
    committer.commit()
    assert _texts(table) == ["fast"]


def test_an_attempt_may_be_aborted_long_after_the_job_was_committed(committer: Committer, table: Table) -> None:
    late = committer.attempt(0, 0, "late")
    committer.attempt(0, 1, "good").commit()
    committer.commit()
    late.abort()
    assert _texts(table) == ["good"]


@pytest.mark.parametrize("kind", [OfHadoop, OfMapred])
def test_a_task_that_is_committed_again_by_another_attempt_counts_once(
    spark: SparkSession, table: Table, kind: type[OfHadoop]
) -> None:
    """Its first attempt died before anybody was told. Spark's own protocol never knows of that one."""
    committer = kind(spark, table)
    committer.setup()
    committer.attempt(0, 0, "first").commit()
    committer.attempt(0, 1, "second").commit()
    committer.commit()
    assert _texts(table) == ["second"]


@pytest.mark.parametrize("kind", [OfHadoop, OfMapred])
def test_what_was_committed_by_tasks_is_there_for_the_next_driver(
    spark: SparkSession, table: Table, kind: type[OfHadoop]
) -> None:
    """As Hadoop recovers a job: set up again by another, whose finished tasks do not run again."""
    committer = kind(spark, table)
    committer.setup()
    first = committer.attempt(0, 0, "kept")
    first.commit()
    committer.setup()
    context = committer.attempt_context(0, 0)
    again = committer.driver()
    assert again.isRecoverySupported(committer.context)
    again.recoverTask(context)
    committer.attempt(1, 0, "new").commit()
    committer.commit()
    assert _texts(table) == ["kept", "new"]


def test_a_job_may_be_committed_again(committer: Committer, table: Table) -> None:
    committer.attempt(0, text="rows").commit()
    committer.commit()
    before = table.log()
    committer.commit()
    assert table.log() == before


def test_a_job_that_is_aborted_leaves_nothing_and_can_be_aborted_again(committer: Committer, table: Table) -> None:
    committer.attempt(0).commit()
    committer.abort()
    committer.abort()
    assert table.paths() == frozenset()
    assert [*table.jobs().values()] == ["aborted"]
    with pytest.raises(Py4JJavaError, match="was aborted"):
        committer.commit()


def test_a_job_that_is_aborted_after_its_commit_stays_committed(committer: Committer, table: Table) -> None:
    committer.attempt(0).commit()
    committer.commit()
    committer.abort()
    assert _texts(table) == ["rows"]
    assert [*table.jobs().values()] == ["published"]


def test_attempts_that_end_after_their_job_was_aborted_do_no_harm(committer: Committer, table: Table) -> None:
    failing, late = committer.attempt(0), committer.attempt(1)
    committer.abort()
    failing.abort()
    late.abort()
    assert table.paths() == frozenset()


def test_a_job_without_tasks_is_committed(committer: Committer, table: Table) -> None:
    committer.commit()
    assert [*table.jobs().values()] == ["published"]


def test_a_file_that_was_not_closed_is_not_committed(committer: Committer, table: Table) -> None:
    attempt = committer.attempt(0, close=False)
    with pytest.raises(Py4JJavaError, match="was not closed"):
        attempt.commit()
    committer.abort()


def test_a_driver_that_never_set_its_job_up_can_abort(spark: SparkSession, table: Table) -> None:
    """As when the server refused the job: Spark aborts what never began."""
    nowhere = OfSpark(spark, Table(table.server, table.repo, branch="nowhere"))
    with pytest.raises(Py4JJavaError, match="no branch 'nowhere'"):
        nowhere.setup()
    nowhere.abort()
    assert table.jobs() == {}


def test_two_jobs_of_the_same_number_are_two(spark: SparkSession, table: Table) -> None:
    """Spark's ids of jobs begin at 0 in every application."""
    one, two = OfSpark(spark, table), OfSpark(spark, table)
    for committer, text in ((one, "one"), (two, "two")):
        committer.setup()
        committer.attempt(0, text=text).commit()
    two.commit()
    one.commit()
    assert len(table.jobs()) == 2
    assert len(table.log()) == 3


def test_mapreduce_needs_nothing_of_spark(server: Live, table: Table, tmp_path: Path) -> None:
    jars = [str(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("*.jar") if "spark" not in jar.name]
    classes = ":".join([*jars, str(config.jar()), str(tmp_path)])
    source = Path(__file__).with_name("java") / "PlainMapReduce.java"
    subprocess.run(["javac", "-nowarn", "-classpath", classes, "-d", tmp_path, source], check=True)
    lines = tmp_path / "lines"
    lines.write_text("a\nb\nc\n")
    said: list[str | Path] = [server.url, server.key_id, server.secret, tmp_path / "tmp", lines, table.url]
    run = subprocess.run(
        ["java", "-classpath", classes, "PlainMapReduce", *said], capture_output=True, text=True, cwd=tmp_path
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert table.paths() == {"part-r-00000", "part-r-00001"}
    (made,) = table.log()[:-1]
    assert made["message"] == "Hadoop: append to t"
    assert made["metadata"]["hadoop.job.name"] == "copy"
