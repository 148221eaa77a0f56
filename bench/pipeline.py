"""The pipeline on Spark, on two threads: what a collection marks a second, what an import costs beside a listing and a
build of the tree, and that the driver's memory does not grow with the number of objects.

Rates are of a session that has started, and done the same once before on a small repository. Peaks of memory are those
of processes of their own.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import esker
import esker.spark
from bench._data import entries
from bench._report import Report, seconds
from bench.engine import fill
from esker.engine import elsewhere, exports, garbage, imports
from esker.engine.imports import Source
from esker.stores.open_blobs import open_blobs

SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
}
SMALL: Final = 20_000
A_DIRECTORY: Final = 1000
INVENTORIES: Final = 10
EXPORTED: Final = 2_000
NAME: Final = "bench"


def main() -> int:
    """How many promises were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer objects, and no peaks of memory")
    parser.add_argument("--peak", nargs=2, metavar=("WORK", "DIRECTORY"), help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.peak:
        print(WORKS[told.peak[0]](Path(told.peak[1])))
        return 0
    marked, imported = (50_000, 20_000) if told.quick else (3_000_000, 1_000_000)
    report = Report()
    if not told.quick:  # each peak is of a process with a Spark of its own; and before this one has a session
        bench_memory(report, 100_000, 5_000_000)
    spark = session()
    try:
        bench_mark(report, spark, marked, quick=told.quick)
        bench_import(report, spark, imported, quick=told.quick)
        bench_export(report, spark)
    finally:
        spark.stop()
    return report.missed


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().master("local[2]").appName("bench")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    found: SparkSession = builder.getOrCreate()
    return found


def filled(lake: esker.Lake, name: str, n: int) -> esker.Repo:
    repo = lake.create_repository(name)
    fill(repo.engine, repo.record, n)
    return repo


def bench_mark(report: Report, spark: SparkSession, n: int, *, quick: bool) -> None:
    """The step that reads all that refs reach, as the collection does it."""
    took: list[float] = []
    real = garbage._Collection._mark

    def timed(*given: object) -> object:
        start = time.perf_counter()
        try:
            return real(*given)  # type: ignore[arg-type]
        finally:
            took.append(time.perf_counter() - start)

    with tempfile.TemporaryDirectory(prefix="esker-bench-") as here, esker.open_lake(f"file://{here}/lake") as lake:
        filled(lake, "small", SMALL)
        filled(lake, NAME, n)
        garbage._Collection._mark = timed  # type: ignore[assignment,method-assign]
        try:
            esker.spark.collect_garbage(spark, "small", lake=lake)
            whole, found = seconds(lambda: esker.spark.collect_garbage(spark, NAME, lake=lake), 2)
            assert found.marked >= n
            rate = n / min(took[1:]) / 1e6
            note = f"{min(took[1:]):.1f} s of {whole:.1f} s"
            tell(report, quick)(f"entries marked a second, of {n:,}", rate, 1, "M/s", note)
            took.clear()
            lake.repository(NAME).collect_garbage()
            report.note("... without Spark", f"{n / took[0] / 1e6:.2f} M/s")
        finally:
            garbage._Collection._mark = real  # type: ignore[method-assign]


def tell(report: Report, quick: bool) -> Callable[..., None]:
    """A quick run is over before Spark is at full speed: its rates are told, and promise nothing."""
    if not quick:
        return report.at_least
    return lambda what, value, _limit, unit, note: report.note(what, f"{value:.3g} {unit}: {note}")


def bench_import(report: Report, spark: SparkSession, n: int, *, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="esker-bench-") as here, esker.open_lake(f"file://{here}/lake") as lake:
        source = Path(here) / "source"
        make_files(source, n)
        repo = filled(lake, NAME, SMALL)
        blobs = open_blobs(source.as_uri())
        listed, count = seconds(lambda: sum(1 for _ in blobs.list()), 2)
        assert count == n
        rows = [*elsewhere.listing(blobs, f"{source.as_uri()}/", "", "in/")]
        built, _ = seconds(lambda: repo.engine.past(repo.record).build(rows), 2)
        floor = listed + built
        esker.spark.import_objects(spark, NAME, "main", Source.below(f"{source.as_uri()}/d000", "warm/"), lake=lake)
        what = Source.below(source.as_uri(), "in/")

        def by_spark(branch: str) -> None:
            repo.create_branch(branch, "main")
            done = esker.spark.import_objects(spark, NAME, branch, what, lake=lake)
            assert done.progress["objects"] == n

        def alone() -> None:
            repo.create_branch("alone", "main")
            imports.run(lake.engine, repo.record, imports.start(lake.engine, repo.record, "alone", [what]))

        took = min(seconds(partial(by_spark, branch), 1)[0] for branch in ("one", "two"))
        one, _ = seconds(alone, 1)
        assert not [*repo.diff("one", "two"), *repo.diff("one", "alone")]
        note = f"{listed:.1f} s to list, {built:.1f} s to build; {n / took:,.0f} objects/s"
        if quick:
            report.note(f"import of {n:,}: by Spark / listing + build", f"{took / floor:.2f} x: {note}")
        else:
            report.at_most(f"import of {n:,}: by Spark / listing + build", took / floor, 3, note=note)
        report.note("... without Spark", f"{one / floor:.2f} x")


def make_files(place: Path, n: int) -> None:
    """Of one byte each, so many to a directory."""
    for start in range(0, n, A_DIRECTORY):
        directory = place / f"d{start // A_DIRECTORY:03}"
        directory.mkdir(parents=True)
        for number in range(start, min(start + A_DIRECTORY, n)):
            with (directory / f"part-{number:09}.parquet").open("wb") as file:
                file.write(b"x")


def bench_export(report: Report, spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory(prefix="esker-bench-") as here, esker.open_lake(f"file://{here}/lake") as lake:
        repo = lake.create_repository(NAME)
        main = repo.branch("main")
        main.put_many({f"t/{number:06}": b"x" * 10_000 for number in range(EXPORTED)})
        main.commit("all")
        alone, _ = seconds(lambda: repo.export("main", f"file://{here}/alone"), 1)
        again, made = seconds(lambda: repo.export("main", f"file://{here}/alone"), 1)
        assert made.copied == 0
        took, _ = seconds(lambda: esker.spark.export_objects(spark, NAME, "main", f"file://{here}/spark", lake=lake), 1)
        report.note(
            f"export of {EXPORTED:,} small objects",
            f"{EXPORTED / alone:,.0f}/s; again, all there: {again / alone:.2f} x; by Spark {took / alone:.2f} x",
        )
        assert open_blobs(f"file://{here}/spark").head(exports.SUCCESS)


def bench_memory(report: Report, few: int, many: int) -> None:
    """The driver's: the process in Python. Its JVM has a limit that Spark is told."""
    for work in ("collect", "import"):
        peaks = []
        for n in (few, many):
            with tempfile.TemporaryDirectory(prefix="esker-bench-") as here:
                run("fill" if work == "collect" else "list", Path(here), n)
                peaks.append(run(work, Path(here), n))
        report.at_most(
            f"driver's memory: {work} of {many:,} / {few:,} objects",
            peaks[1] / peaks[0],
            1.25,
            note=f"{peaks[0]} MB, {peaks[1]} MB",
        )


def run(work: str, here: Path, n: int) -> int:
    """What a process of its own says of the peak of its memory."""
    (here / "n").write_text(str(n))
    command = [sys.executable, "-m", "bench.pipeline", "--peak", work, str(here)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def fill_lake(here: Path) -> int:
    with esker.open_lake(f"file://{here}/lake") as lake:
        filled(lake, NAME, int((here / "n").read_text()))
    return peak_mb()


def collect(here: Path) -> int:
    spark = session()
    found = esker.spark.collect_garbage(spark, NAME, lake=f"file://{here}/lake")
    assert found.marked >= int((here / "n").read_text())
    spark.stop()
    return peak_mb()


def write_inventories(here: Path) -> int:
    """Of objects that nobody needs to have: an import does not read them."""
    each = int((here / "n").read_text()) // INVENTORIES
    (here / "inventories").mkdir()
    for number in range(INVENTORIES):
        rows = pa.concat_tables(entries(each, number * each))
        keys = pc.binary_join_element_wise(f"file:///elsewhere/{number:02}", rows["path"], "/")
        table = pa.table({"key": keys, "size": rows["size"], "mtime": rows["mtime"], "etag": rows["checksum"]})
        pq.write_table(table, here / "inventories" / f"{number:02}.parquet")
    with esker.open_lake(f"file://{here}/lake") as lake:
        lake.create_repository(NAME)
    return peak_mb()


def import_listed(here: Path) -> int:
    spark = session()
    sources = [
        Source.below(
            f"file:///elsewhere/{number:02}", f"{number:02}/", (here / f"inventories/{number:02}.parquet").as_uri()
        )
        for number in range(INVENTORIES)
    ]
    done = esker.spark.import_objects(spark, NAME, "main", sources, lake=f"file://{here}/lake")
    assert done.progress["objects"] == int((here / "n").read_text())
    spark.stop()
    return peak_mb()


WORKS: Final[dict[str, Callable[[Path], int]]] = {
    "fill": fill_lake,
    "collect": collect,
    "list": write_inventories,
    "import": import_listed,
}


if __name__ == "__main__":
    sys.exit(main())
