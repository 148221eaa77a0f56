"""Spark: what a write to a lake costs beside one to plain files, and beside the tasks alone.

Each way to write is tried in turn, several times, in one session on two threads; the best of each counts.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

import esker.spark
from bench._report import Report
from tests.server.live import Live, live
from tests.spark.tables import requests

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "2g",
    "spark.sql.adaptive.enabled": "false",  # it would make few tasks of many small ones, which are what is measured
}
ROUNDS: Final = 2
ROWS_PER_FILE: Final = 10

FLOOR: Final = "tasks alone"
LAKE: Final = "lake"


def main() -> int:
    """How many promises were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the files, and promises only of counts")
    quick = parser.parse_args().quick
    files, large = (200, 5_000) if quick else (4_000, 100_000)
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
    return report.missed


def bench_writes(
    report: Report, spark: SparkSession, server: Live, repo: str, here: Path, files: int, *, quick: bool
) -> None:
    """As many tasks as files; and two tasks, with as many partitions."""
    for shape, frame in (("a task each", _many(spark, files, files)), ("two tasks", _partitions(spark, files))):
        committed: list[float] = []
        place = f"lakefs://{repo}/main/{shape.replace(' ', '-')}"

        def to_lake(
            frame: DataFrame = frame, shape: str = shape, place: str = place, committed: list[float] = committed
        ) -> None:
            before = _seconds_of(server, "publishJob")
            _save(frame, place, shape)
            committed.append(_seconds_of(server, "publishJob") - before)

        def to_files(version: int, frame: DataFrame = frame, shape: str = shape) -> None:
            option = "mapreduce.fileoutputcommitter.algorithm.version"
            _save(frame, str(here / f"{shape}-{version}"), shape, **{option: str(version)})

        def to_nothing(frame: DataFrame = frame) -> None:
            frame.write.format("noop").mode("overwrite").save()

        ways: dict[str, Callable[[], None]] = {
            FLOOR: to_nothing,
            "files, v1": partial(to_files, 1),
            "files, v2": partial(to_files, 2),
            LAKE: to_lake,
        }
        best = dict.fromkeys(ways, float("inf"))
        for turn in range(ROUNDS):
            order = list(ways) if turn % 2 == 0 else list(ways)[::-1]
            for way in order:
                best[way] = min(best[way], _timed(ways[way]))
        report.note(f"{files} files, {shape}", ", ".join(f"{way} {took:.1f} s" for way, took in best.items()))
        if quick:
            continue
        for version in ("v1", "v2"):
            ratio = best[f"files, {version}"] / best[LAKE]
            report.at_least(f"{files} files, {shape}: faster than {version}", ratio, 1.5)
        if shape == "a task each":
            report.at_most(f"{files} files, {shape}: beside the tasks alone", best[LAKE] / best[FLOOR], 3.5)
        report.at_most(f"{files} files, {shape}: publication", min(committed), 3, "s")


def bench_calls(report: Report, spark: SparkSession, server: Live, repo: str, files: int) -> None:
    """How many requests a write takes, by the number of its tasks."""
    counts = sorted({10, 100, 1_000, 4_000, files})
    made = []
    for tasks in (count for count in counts if count <= files):
        before = requests(server)
        _many(spark, tasks, tasks).write.mode("overwrite").parquet(f"lakefs://{repo}/main/calls-{tasks}")
        after = requests(server)
        fresh = {name: after[name] - before.get(name, 0) for name in after if name != "metrics"}
        made.append(sum(fresh.values()))
        said = ", ".join(f"{name} {count}" for name, count in sorted(fresh.items()) if count)
        report.note(f"requests of {tasks} tasks", f"{made[-1]}: {said}")
    report.at_most("requests, most tasks against fewest", made[-1] / made[0], 1)


def bench_overwrite(
    report: Report, spark: SparkSession, server: Live, repo: str, files: int, large: int, *, quick: bool
) -> None:
    """A large table replaced by a small one, against the small one written anew."""
    tasks = min(files, 100)
    best = {"new": float("inf"), "old": float("inf")}
    for turn in range(ROUNDS):
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


def bench_planning(report: Report, spark: SparkSession, server: Live, repo: str, files: int, *, quick: bool) -> None:
    """Finding out what there is to read, of as many partitions as files; and reading it."""
    place = f"lakefs://{repo}/main/two-tasks"

    def plan() -> None:
        frame = spark.read.schema("id LONG, p LONG").parquet(place)
        assert len(frame.inputFiles()) >= files

    took = min(_timed(plan) for _ in range(ROUNDS + 1))
    before = requests(server)
    plan()
    listed = requests(server)
    spark.read.schema("id LONG, p LONG").parquet(place).agg({"id": "sum"}).collect()
    read = requests(server)
    lists = listed.get("listObjects", 0) - before.get("listObjects", 0)
    calls = sum(read.values()) - sum(listed.values())
    report.note(f"planning a read of {files} partitions", f"{took:.2f} s, {lists} pages listed")
    report.at_most(f"requests of a scan of {files} files, for each file", calls / files, 0.1, note=f"{calls} in all")
    if not quick:
        report.at_most(f"planning a read of {files} partitions", took, 1, "s")


def _many(spark: SparkSession, tasks: int, files: int) -> DataFrame:
    return spark.range(0, files * ROWS_PER_FILE, numPartitions=tasks).selectExpr("id", "id % 7 AS p")


def _partitions(spark: SparkSession, files: int) -> DataFrame:
    return spark.range(0, files * ROWS_PER_FILE, numPartitions=2).selectExpr("id", f"id DIV {ROWS_PER_FILE} AS p")


def _save(frame: DataFrame, place: str, shape: str, **options: str) -> None:
    writer = frame.write.mode("overwrite").options(**options)
    (writer if shape == "a task each" else writer.partitionBy("p")).parquet(place)


def _fill(server: Live, repo: str, table: str, files: int) -> None:
    """A table of so many files, which all have the same bytes."""
    job = server.ask("POST", f"/repositories/{repo}/branches/main/jobs", body={}).json
    sent = server.ask("PUT", job["upload_prefix"].removeprefix(server.url) + "rows", body=b"rows", login=False)
    assert sent.status == 200, sent
    one = {"address": job["data"] + "rows", "size": 4, "checksum": sent.headers["ETag"], "mtime_ms": 0}
    entries = [{"path": f"{table}/part-{number:06}.parquet", **one} for number in range(files)]
    done = server.ask("POST", f"/repositories/{repo}/jobs/{job['id']}/publish", body={"entries": entries})
    assert done.status == 200, done


def _seconds_of(server: Live, operation: str) -> float:
    """What the server has spent on an operation."""
    lines = server.ask("GET", "/metrics").body.decode().splitlines()
    wanted = "esker_request_seconds_sum{"
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(wanted) and f'operation="{operation}"' in line
    )


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
