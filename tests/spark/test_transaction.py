"""Several tables in one commit, and batches of a stream that are written exactly once."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import esker.spark
from esker.errors import ConflictError, Kind, NotFoundError
from tests.server.live import Live
from tests.spark.tables import Table


@pytest.fixture
def tables(server: Live, repo: str) -> tuple[Table, Table]:
    return Table(server, repo, "a"), Table(server, repo, "b")


def _ids(spark: SparkSession, url: str) -> list[int]:
    return sorted(row["id"] for row in spark.read.parquet(url).collect())


def test_all_tables_appear_at_once(spark: SparkSession, repo: str, tables: tuple[Table, Table]) -> None:
    a, b = tables
    spark.range(5).write.parquet(b.url)
    old = b.paths()
    with a.watched() as seen_a, b.watched() as seen_b:
        with esker.spark.transaction(spark, repo, "main", message="both", metadata={"ticket": "42"}) as tx:
            spark.range(3).write.parquet(tx.path("a"))
            spark.range(9).write.mode("overwrite").parquet(tx.path("b"))
            spark.range(9, 12).write.mode("append").parquet(tx.path("b"))
            assert _ids(spark, tx.path("a")) == [0, 1, 2]
            assert _ids(spark, tx.path("b")) == [*range(12)]
            assert (a.paths(), b.paths()) == (frozenset(), old)
        assert tx.commit == a.log()[0]["id"]
    assert seen_a == [frozenset(), a.paths()]
    assert seen_b == [old, b.paths()]
    assert _ids(spark, b.url) == [*range(12)]
    made = a.log()[0]
    assert len(a.log()) == 3
    assert made["message"] == "both"
    assert made["metadata"]["ticket"] == "42"
    assert made["metadata"]["spark.rows"] == f"{3 + 9 + 3}"
    assert int(made["metadata"]["spark.files"]) >= len(a.paths() | b.paths())
    assert int(made["metadata"]["spark.bytes"]) > 0
    assert made["metadata"]["spark.app.id"] == spark.sparkContext.applicationId
    branches = a.server.ask("GET", f"/repositories/{repo}/branches", query={"show_hidden": True}).json["results"]
    assert [branch["id"] for branch in branches] == ["main"]


def test_a_block_that_raises_leaves_nothing(spark: SparkSession, repo: str, tables: tuple[Table, Table]) -> None:
    a, b = tables
    with pytest.raises(KeyError), esker.spark.transaction(spark, repo, "main") as tx:  # noqa: PT012 - what it is about
        spark.range(3).write.parquet(tx.path("a"))
        raise KeyError
    assert (a.paths(), b.paths(), len(a.log())) == (frozenset(), frozenset(), 1)
    assert tx.commit is None
    assert set(a.jobs().values()) == {"aborted", "published"}, "the transaction, and its job within"


def test_a_transaction_lands_on_what_was_written_meanwhile(
    spark: SparkSession, repo: str, tables: tuple[Table, Table]
) -> None:
    a, b = tables
    with esker.spark.transaction(spark, repo, "main") as tx:
        spark.range(3).write.mode("append").parquet(tx.path("a"))
        spark.range(3).write.mode("overwrite").parquet(tx.path("b"))
        spark.range(10, 12).write.mode("append").parquet(a.url)
        spark.range(10, 12).write.mode("append").parquet(b.url)
    assert a.log()[0]["message"] == "Spark: write a, b"
    assert _ids(spark, a.url) == [0, 1, 2, 10, 11]
    assert _ids(spark, b.url) == [0, 1, 2]


def test_what_others_changed_fails_a_transaction_unless_forced(
    spark: SparkSession, server: Live, repo: str, tables: tuple[Table, Table]
) -> None:
    a, _ = tables
    spark.range(3).write.parquet(a.url)

    def overwrite(name: str, *, force: bool) -> None:
        with esker.spark.transaction(spark, repo, "main", force=force) as tx:
            spark.range(20, 22).write.mode("overwrite").parquet(tx.path("a"))
            server.put(repo, f"a/{name}", b"PAR1")
            server.commit(repo)

    with pytest.raises(ConflictError, match="'a/by-hand'") as caught:
        overwrite("by-hand", force=False)
    assert caught.value.kind is Kind.JOB_OVERLAP
    assert "by-hand" in a.paths()
    overwrite("again", force=True)
    assert _ids(spark, a.url) == [20, 21]


@pytest.mark.parametrize("branch", ["mian", "main~1"])
def test_a_transaction_on_no_branch_is_an_error_of_ours(spark: SparkSession, repo: str, branch: str) -> None:
    def begin() -> None:
        with esker.spark.transaction(spark, repo, branch):
            pass

    with pytest.raises(NotFoundError, match=f"no branch '{branch}' in '{repo}'"):
        begin()


class Stream:
    """A stream of files, whose checkpoint can be set back."""

    def __init__(self, spark: SparkSession, base: Path, write: Any) -> None:
        self.spark = spark
        self.source = base / "source"
        self.checkpoint = base / "checkpoint"
        self.write = write

    def feed(self, start: int, stop: int) -> None:
        self.spark.range(start, stop, numPartitions=1).write.mode("append").parquet(str(self.source))

    def run(self) -> None:
        """Until all that is there has been read."""
        stream = self.spark.readStream.schema("id LONG").parquet(str(self.source))
        writer = stream.writeStream.foreachBatch(self.write).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    def forget(self) -> None:
        """As if the driver had died before it noted that the batch was done."""
        for note in (self.checkpoint / "commits").iterdir():
            note.unlink()


def test_a_batch_that_comes_again_is_written_once(
    spark: SparkSession, repo: str, tables: tuple[Table, Table], tmp_path: Path
) -> None:
    calls: list[int] = []

    def write(batch: DataFrame, tx: esker.spark.Transaction) -> None:
        calls.append(batch.count())
        batch.write.mode("append").parquet(tx.path("a"))

    a, _ = tables
    stream = Stream(spark, tmp_path, esker.spark.once(repo, "main", write))
    stream.feed(0, 10)
    stream.run()
    stream.forget()
    stream.run()
    assert _ids(spark, a.url) == [*range(10)]
    assert calls == [10], "it was passed over"
    stream.feed(10, 15)
    stream.run()
    assert _ids(spark, a.url) == [*range(15)]
    assert len(a.log()) == 3
    said = [commit["metadata"]["spark.batch"] for commit in a.log()[:2]]
    assert said == ["1", "0"]


def test_a_batch_that_failed_half_way_is_written_once_when_it_comes_again(
    spark: SparkSession, repo: str, tables: tuple[Table, Table], tmp_path: Path
) -> None:
    tries: list[int] = []

    def write(batch: DataFrame, tx: esker.spark.Transaction) -> None:
        batch.write.mode("append").parquet(tx.path("a"))
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("no such luck")
        batch.write.mode("append").parquet(tx.path("b"))

    a, b = tables
    stream = Stream(spark, tmp_path, esker.spark.once(repo, "main", write))
    stream.feed(0, 10)
    with pytest.raises(StreamingQueryException, match="no such luck"):
        stream.run()
    assert (a.paths(), b.paths()) == (frozenset(), frozenset())
    stream.run()
    assert _ids(spark, a.url) == _ids(spark, b.url) == [*range(10)]
    assert len(a.log()) == 2


def test_a_stream_of_files_is_written_as_spark_has_it(
    spark: SparkSession, repo: str, tables: tuple[Table, Table], tmp_path: Path
) -> None:
    """Exactly once by its own log, staged on the branch: whoever wants commits uses `once`."""
    a, _ = tables
    spark.range(0, 10).write.parquet(str(tmp_path / "source"))
    stream = spark.readStream.schema("id LONG").parquet(str(tmp_path / "source"))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start(a.url).awaitTermination()
    assert _ids(spark, a.url) == [*range(10)]
    assert a.uncommitted()
