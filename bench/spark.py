"""Spark: what a write to a lake costs beside one to plain files, and beside the tasks alone.

Each way to write is tried in turn, several times, in one session on two threads; the best of each counts. Then the same
with the lake in an S3: Versity's gateway where there is Go, else moto. Plain files stay files, since Spark's own
committers have no way to S3 here.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import boto3
from pyspark.sql import DataFrame, SparkSession

import esker.spark
from bench._report import Report
from esker.stores.open_kv import sqlite_url
from tests import services
from tests.server.live import Live, live
from tests.spark.calls import counted, totals, written
from tests.stronger_services import CREDENTIALS, versitygw

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "2g",
    "spark.sql.adaptive.enabled": "false",  # it would make few tasks of many small ones, which are what is measured
}
ROUNDS: Final = 2
ROWS_PER_FILE: Final = 10

TASK_EACH: Final = "a-task-each"
TWO_TASKS: Final = "two-tasks"

FLOOR: Final = "tasks alone"
LAKE: Final = "lake"

BUCKET: Final = "esker-bench"


def main() -> int:
    """How many promises were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fortieth of the files, and promises only of counts")
    quick = parser.parse_args().quick
    files, large = (100, 1_000) if quick else (4_000, 100_000)
    report = Report()
    with (
        tempfile.TemporaryDirectory(prefix="esker-bench-") as here,
        live(Path(here)) as server,
        esker.spark.session(
            endpoint=server.url,
            access_key=server.key_id,
            secret_key=server.secret,
            master="local[2]",
            app_name="bench",
            settings=SETTINGS,
        ) as spark,
    ):
        repo = server.create_repository("bench")
        _many(spark, 2, 20).write.format("noop").mode("overwrite").save()  # what is slow only once
        _many(spark, 2, 20).write.mode("overwrite").parquet(f"lakefs://{repo}/main/warm")
        bench_writes(report, spark, server, repo, Path(here), files, quick=quick)
        bench_calls(report, spark, server, repo, files)
        bench_overwrite(report, spark, server, repo, files, large, quick=quick)
        bench_planning(report, spark, server, repo, files, quick=quick)
        with on_s3(spark, Path(here)) as server_s3:
            bench_s3(report, spark, server_s3, files, quick=quick)
    return report.missed


def bench_writes(
    report: Report, spark: SparkSession, server: Live, repo: str, here: Path, files: int, *, quick: bool
) -> None:
    """As many tasks as files; and two tasks, with as many partitions."""
    for shape, frame in _shapes(spark, files).items():
        committed: list[float] = []
        ways: dict[str, Callable[[], None]] = {
            FLOOR: partial(_to_nothing, frame),
            "files, v1": partial(_to_files, frame, shape, here, 1),
            "files, v2": partial(_to_files, frame, shape, here, 2),
            LAKE: partial(_to_lake, frame, shape, server, repo, committed),
        }
        best = _best(ways, quick=quick)
        report.note(f"{files} files, {shape}", ", ".join(f"{way} {took:.1f} s" for way, took in best.items()))
        if quick:
            continue
        for version in ("v1", "v2"):
            ratio = best[f"files, {version}"] / best[LAKE]
            report.at_least(f"{files} files, {shape}: faster than {version}", ratio, 1.5)
        if shape == TASK_EACH:
            report.at_most(f"{files} files, {shape}: beside the tasks alone", best[LAKE] / best[FLOOR], 3.5)
        report.at_most(f"{files} files, {shape}: publication", min(committed), 3, "s")


def bench_calls(report: Report, spark: SparkSession, server: Live, repo: str, files: int, store: str = "") -> None:
    """How many requests a write takes, and swaps of its branch, by the number of its tasks."""
    most = {"requests": 0.0, "swaps": 0.0}
    counts = [count for count in sorted({10, 100, 1_000, 4_000, files}) if count <= files]
    for tasks in counts:
        with counted(server) as calls, written(server) as records:
            _many(spark, tasks, tasks).write.mode("overwrite").parquet(f"lakefs://{repo}/main/calls-{tasks}")
        most["requests"] = max(most["requests"], (calls.total() - 10) / tasks)
        most["swaps"] = max(most["swaps"], records["branches"])
        said = ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))
        report.note(f"requests of {tasks} tasks{store}", f"{calls.total()}: {said}")
        said = ", ".join(f"{name} {count}" for name, count in sorted(records.items()))
        report.note(f"records written by {tasks} tasks{store}", said)
    report.at_most(f"requests for a task, beside ten for the job{store}", most["requests"], 1 if store else 0, "")
    report.at_most(f"swaps of the branch, of however many tasks{store}", most["swaps"], 1, "")


def bench_s3(report: Report, spark: SparkSession, server: Live, files: int, *, quick: bool) -> None:
    """Writes, their calls, and a scan, with the bytes in S3."""
    repo = "bench-s3"
    space = f"s3://{BUCKET}/lake/{repo}"
    made = server.ask("POST", "/repositories", body={"name": repo, "storage_namespace": space})
    assert made.status == 201, made
    bench_calls(report, spark, server, repo, files, ", S3")
    for shape, frame in _shapes(spark, files).items():
        committed: list[float] = []
        lake = partial(_to_lake, frame, shape, server, repo, committed)
        best = _best({FLOOR: partial(_to_nothing, frame), LAKE: lake}, quick=quick)
        report.note(f"{files} files, {shape}, S3", ", ".join(f"{way} {took:.1f} s" for way, took in best.items()))
        if not quick:
            report.at_most(f"{files} files, {shape}, S3: publication", min(committed), 3, "s")
    bench_planning(report, spark, server, repo, files, quick=quick, store=", S3")


def bench_overwrite(
    report: Report, spark: SparkSession, server: Live, repo: str, files: int, large: int, *, quick: bool
) -> None:
    """A large table replaced by a small one, against the small one written anew."""
    tasks = min(files, 100)
    best = {"new": float("inf"), "old": float("inf")}
    for turn in range(1 if quick else ROUNDS):
        _fill(server, repo, f"large-{turn}", large)
        for what in best:
            place = f"lakefs://{repo}/main/{'large' if what == 'old' else 'small'}-{turn}"
            frame = _many(spark, tasks, tasks)
            took = _timed(partial(frame.write.mode("overwrite").parquet, place))
            best[what] = min(best[what], took)
    note = f"{best['old']:.2f} s, against {best['new']:.2f} s"
    ratio = best["old"] / best["new"]
    if quick:
        report.note(f"overwriting {large} files beside writing anew", note)
    else:
        report.at_most(f"overwriting {large} files beside writing anew", ratio, 1.25, note=note)


def bench_planning(
    report: Report, spark: SparkSession, server: Live, repo: str, files: int, *, quick: bool, store: str = ""
) -> None:
    """Finding out what there is to read, of as many partitions as files; and reading it."""
    place = f"lakefs://{repo}/main/{TWO_TASKS}"
    schema = "id LONG, p LONG"

    def plan() -> None:
        assert len(spark.read.schema(schema).parquet(place).inputFiles()) >= files

    took = min(_timed(plan) for _ in range(1 if quick else ROUNDS + 1))
    with counted(server) as calls:
        plan()
    said = ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))
    report.note(f"planning a read of {files} partitions{store}", f"{took:.2f} s: {said}")
    with counted(server) as calls:
        spark.read.schema(schema).parquet(place).agg({"id": "sum"}).collect()
    note = f"{calls.total()} in all"
    report.at_most(f"requests of a scan of {files} files, for each{store}", calls.total() / files, 0.1, "", note)
    if not quick:
        report.at_most(f"planning a read of {files} partitions{store}", took, 1, "s")


def _shapes(spark: SparkSession, files: int) -> dict[str, DataFrame]:
    """Rows that were shuffled, as those of most jobs are: a file for each task; and for each partition."""
    return {TASK_EACH: _many(spark, 2, files).repartition(files), TWO_TASKS: _partitions(spark, files)}


def _to_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _to_files(frame: DataFrame, shape: str, here: Path, version: int) -> None:
    option = "mapreduce.fileoutputcommitter.algorithm.version"
    _save(frame, str(here / f"{shape}-{version}"), shape, **{option: str(version)})


def _to_lake(frame: DataFrame, shape: str, server: Live, repo: str, committed: list[float]) -> None:
    """`committed` is told what the server took to publish it."""

    def so_far() -> float:
        return totals(server, "esker_request_seconds_sum", "operation").get("publishJob", 0)

    before = so_far()
    _save(frame, f"lakefs://{repo}/main/{shape}", shape)
    committed.append(so_far() - before)


def _best(ways: dict[str, Callable[[], None]], *, quick: bool) -> dict[str, float]:
    """The shortest time of each."""
    best = dict.fromkeys(ways, float("inf"))
    for turn in range(1 if quick else ROUNDS):
        for way in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            best[way] = min(best[way], _timed(ways[way]))
    return best


@contextmanager
def on_s3(spark: SparkSession, base: Path) -> Iterator[Live]:
    """A server of a lake in an S3, to which the session talks from now on."""
    os.environ.update(CREDENTIALS)
    (base / "s3").mkdir()
    with versitygw() if shutil.which("go") else services.moto() as url:
        cast(Any, boto3).resource("s3", endpoint_url=url).create_bucket(Bucket=BUCKET)
        with live(
            base / "s3",
            ESKER_LAKE=f"s3://{BUCKET}/lake",
            ESKER_KV=sqlite_url(base / "s3.db"),
            ESKER_SECRET_KEY="0" * 64,
            AWS_ENDPOINT_URL=url,
            AWS_ALLOW_HTTP="true",
        ) as server:
            hadoop = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
            hadoop.set("fs.lakefs.endpoint", server.url)
            hadoop.set("fs.lakefs.access.key", server.key_id)
            hadoop.set("fs.lakefs.secret.key", server.secret)
            yield server


def _many(spark: SparkSession, tasks: int, files: int) -> DataFrame:
    return spark.range(0, files * ROWS_PER_FILE, numPartitions=tasks).selectExpr("id", "id % 7 AS p")


def _partitions(spark: SparkSession, files: int) -> DataFrame:
    return spark.range(0, files * ROWS_PER_FILE, numPartitions=2).selectExpr("id", f"id DIV {ROWS_PER_FILE} AS p")


def _save(frame: DataFrame, place: str, shape: str, **options: str) -> None:
    writer = frame.write.mode("overwrite").options(**options)
    (writer if shape == TASK_EACH else writer.partitionBy("p")).parquet(place)


def _fill(server: Live, repo: str, table: str, files: int) -> None:
    """A table of so many files, which all have the same bytes."""
    job = server.ask("POST", f"/repositories/{repo}/branches/main/jobs", body={}).json
    sent = server.ask("PUT", job["upload_prefix"].removeprefix(server.url) + "rows", body=b"rows", login=False)
    assert sent.status == 200, sent
    one = {"address": job["data"] + "rows", "size": 4, "checksum": sent.headers["ETag"], "mtime_ms": 0}
    entries = [{"path": f"{table}/part-{number:06}.parquet", **one} for number in range(files)]
    done = server.ask("POST", f"/repositories/{repo}/jobs/{job['id']}/publish", body={"entries": entries})
    assert done.status == 200, done


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
