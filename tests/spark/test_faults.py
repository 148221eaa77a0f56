"""What dies, or loses an answer, leaves the old state or the new one."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3
from pyspark.sql import DataFrame, SparkSession

from tests import services
from tests.server.live import Live
from tests.server.running import Client, serving
from tests.spark.tables import Gate, Table

ROOT = Path(__file__).parents[2]


@pytest.fixture
def table(server: Live, repo: str) -> Table:
    return Table(server, repo)


def _ids(spark: SparkSession, table: Table) -> list[int]:
    return sorted(row["id"] for row in spark.read.parquet(table.url).collect())


@contextmanager
def _child(what: str, server: Live, repo: str, directory: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.spark.cluster", what, server.url, server.key_id, server.secret, repo]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, str(directory)], cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


# tasks and executors


def test_executors_of_their_own_write_fail_and_die(server: Live, repo: str, tmp_path: Path) -> None:
    """In one session, since it takes half a minute to start: two executors; tasks whose first attempt fails; and one
    executor that is killed while it writes."""
    every = "two_executors,flaky_tasks,killed_executor"
    killed = Table(server, repo, "killed_executor/t")
    with killed.watched() as seen, _child(every, server, repo, tmp_path) as child:
        said, _ = child.communicate(timeout=240)
    assert child.returncode == 0, (tmp_path / "log").read_text()[-3000:]
    found = json.loads(said.splitlines()[-1])
    assert found["two_executors"] == {"ids": [*range(10)], "lines": [*"abcd"], "executors": 2}
    assert found["flaky_tasks"]["ids"] == [*range(40)]
    assert found["killed_executor"]["ids"] == [*range(100, 140)]
    assert seen[0] == frozenset()
    assert len(seen) == 3, "nothing, the table, and what replaced it: no reader ever saw another state"
    assert set(killed.jobs().values()) == {"published"}


def test_a_failed_job_leaves_the_old_state(spark: SparkSession, table: Table) -> None:
    spark.range(5).write.parquet(table.url)
    failing = spark.range(0, 8, numPartitions=4).selectExpr("IF(id = 7, raise_error('no such luck'), id) AS id")
    with table.watched() as seen, pytest.raises(Exception, match="no such luck"):
        failing.write.mode("overwrite").parquet(table.url)
    assert len(seen) == 1
    assert len(table.log()) == 2
    assert sorted(table.jobs().values()) == ["aborted", "published"]


def test_a_cancelled_job_leaves_the_old_state_though_its_tasks_run_on(
    spark: SparkSession, table: Table, tmp_path: Path
) -> None:
    spark.range(5).write.parquet(table.url)
    gate = Gate(tmp_path)
    told: list[str] = []

    def write() -> None:
        try:
            gate.hold(spark.range(10, 20, numPartitions=2)).write.mode("overwrite").parquet(table.url)
        except Exception as error:  # noqa: BLE001 - looked at below
            told.append(str(error))

    writer = threading.Thread(target=write)
    writer.start()
    with gate.opening():
        spark.sparkContext.cancelAllJobs()
        writer.join()
    assert told
    assert _ids(spark, table) == [0, 1, 2, 3, 4]
    assert sorted(table.jobs().values()) == ["aborted", "published"]


# the driver


def test_a_killed_driver_leaves_the_old_state_and_a_job_to_clean(
    spark: SparkSession, server: Live, repo: str, tmp_path: Path
) -> None:
    table = Table(server, repo, "held_driver/t")
    spark.range(5).write.parquet(table.url)
    before = table.paths()
    with table.watched() as seen, _child("held_driver", server, repo, tmp_path) as child:
        reached = tmp_path / "held_driver" / "reached"
        services.wait(reached.exists, lambda: (tmp_path / "log").read_text() if child.poll() is not None else None)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    assert seen == [before]
    assert sorted(table.jobs().values()) == ["published", "running"]
    cleaned = server.ask("POST", f"/repositories/{repo}/jobs/clean", query={"older_than_s": 0}).json
    assert len(cleaned["aborted"]) == 1
    assert "running" not in table.jobs().values()
    spark.range(9).write.mode("overwrite").parquet(table.url)
    assert _ids(spark, table) == [*range(9)]


# the server


def _to(frame: DataFrame, url: str, key: tuple[str, str]) -> Any:
    """A writer that talks to another server than the session."""
    return (
        frame.write.option("fs.lakefs.endpoint", url)
        .option("fs.lakefs.access.key", key[0])
        .option("fs.lakefs.secret.key", key[1])
    )


def test_a_server_that_is_started_again_in_the_middle_of_a_job_is_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)
    port = services.free_port()
    directory = tmp_path / "server"
    failed: list[BaseException] = []

    def write(url: str, key: tuple[str, str]) -> None:
        try:
            frame = gate.hold(spark.range(0, 10, numPartitions=2))
            _to(frame, url, key).mode("overwrite").parquet("lakefs://restarted/main/t")
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    with serving(directory, port=port) as server:
        key = server.key
        client = Client(server.url, key)
        client.post("/repositories", {"name": "restarted", "storage_namespace": "local://restarted"})
        client.close()
        writer = threading.Thread(target=write, args=(server.url, key))
        writer.start()
        services.wait(gate.reached.exists, lambda: str(failed) if failed else None)
        server.kill()
        gate.opened.touch()
        with serving(directory, port=port) as again:
            writer.join()
            assert not failed
            client = Client(again.url, key)
            listed = client.get("/repositories/restarted/refs/main/objects/ls?prefix=t/part")["results"]
            client.close()
    assert len(listed) == 2


class _LosesAnswers(ThreadingHTTPServer):
    """Passes everything on, and loses the first answers to requests that end so."""

    daemon_threads = True

    def __init__(self, target: str, ending: str, times: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = target
        self.ending = ending
        self.left = times
        self.lost: list[int] = []
        self.pool = urllib3.PoolManager(retries=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _LosesAnswers

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        got = self.server.pool.request(
            self.command, self.server.target + self.path, body=body, headers=headers, redirect=False
        )
        if self.path.endswith(self.server.ending) and self.server.left > 0:
            self.server.left -= 1
            self.server.lost.append(got.status)
            self.close_connection = True
            return
        self.send_response(got.status)
        for name, value in got.headers.items():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        if got.status != 204:
            self.send_header("Content-Length", str(len(got.data)))
        self.end_headers()
        self.wfile.write(got.data)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _pass  # noqa: N815 - as the base class calls them

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _losing(server: Live, ending: str, times: int = 1) -> Iterator[_LosesAnswers]:
    proxy = _LosesAnswers(server.url, ending, times)
    thread = threading.Thread(target=proxy.serve_forever)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
        proxy.pool.clear()


@pytest.mark.parametrize("ending", ["/publish", "/branches/main/jobs", "/_SUCCESS"])
def test_a_call_whose_answer_is_lost_is_asked_again_and_done_once(
    spark: SparkSession, server: Live, table: Table, ending: str
) -> None:
    spark.range(5).write.parquet(table.url)
    with _losing(server, ending, times=2) as proxy:
        _to(spark.range(10), proxy.url, (server.key_id, server.secret)).mode("append").parquet(table.url)
        assert len(proxy.lost) == 2
    assert _ids(spark, table) == sorted([*range(5), *range(10)])
    assert len(table.log()) == 3
    assert set(table.jobs().values()) == {"published"}


def test_a_server_that_refuses_the_commit_leaves_the_old_state(
    spark: SparkSession, server: Live, table: Table, tmp_path: Path
) -> None:
    """Somebody has taken the job for dead."""
    spark.range(5).write.parquet(table.url)
    gate = Gate(tmp_path)
    told: list[str] = []

    def write() -> None:
        try:
            gate.hold(spark.range(10, 20, numPartitions=2)).write.mode("overwrite").parquet(table.url)
        except Exception as error:  # noqa: BLE001 - looked at below
            told.append(str(error))

    writer = threading.Thread(target=write)
    writer.start()
    with gate.opening():
        server.ask("POST", f"/repositories/{table.repo}/jobs/clean", query={"older_than_s": 0})
    writer.join()
    assert "was aborted: start another" in told[0]
    assert _ids(spark, table) == [0, 1, 2, 3, 4]
