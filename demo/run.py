"""A day of a data engineer, with Spark, on a directory that is thrown away after: `make demo`.

`make demo KEEP=1` leaves the server up at the end, to look around.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import esker
import esker.spark
from esker.spark.local_server import LocalServer

DAYS = 8
ORDERS_A_DAY = 5_000
ORDERS = "lakefs://shop/main/orders"
CITIES = ("Bergen", "Ghent", "Leiden", "Lucca", "Porto", "Turku", "York")

QUIET = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def main() -> None:
    keep = os.environ.get("KEEP", "") not in ("", "0")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # nothing here needs a network
    begun_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="esker-demo-") as directory:
        lake_url = (Path(directory) / "lake").as_uri()
        say(
            "A lake is a directory or a bucket. A server speaks for it, and Spark reads and writes it by paths",
            "lakefs://repository/branch/table. Everything below happens on this machine, with real Spark.",
            "",
        )
        with step("start a server on an empty lake"):
            server = LocalServer(lake_url)
        with step("start Spark: esker.spark.session(...)"), quiet(Path(directory) / "spark.log"):
            spark = esker.spark.session(
                endpoint=server.endpoint,
                access_key=server.access_key,
                secret_key=server.secret_key,
                master="local[2]",
                settings=QUIET,
            )
        try:
            with esker.open_lake(lake_url) as lake:
                Day(spark, lake, Path(directory) / "raw").run()
            spark.stop()
            took_s = time.perf_counter() - begun_s
            if keep:
                leave_up(server)
        finally:
            server.stop()
    print(f"\n\nThat was the day, in {took_s:.0f} s. Where to go next:\n")
    say(
        "docs/tutorial.md       an hour, step by step: a directory, a branch, a server, Spark",
        "README.md              the same in ten lines of Spark, and twenty of Python; which clients work",
        "docs/spark.md          Spark with esker: what is atomic and what is not, several tables, streams",
        "docs/howto/            on a cluster, on S3, from lakeFS; backup, sizing, security",
        "make docs              all of it as a site, in build/site/index.html",
        "make tour              versions, branches and merges in Python alone, with what each of them reads and writes",
        "make demo KEEP=1       this again, and the server stays up to look around",
    )


class Day:
    """What happens, in order. `raw` is a directory for files that come from elsewhere."""

    def __init__(self, spark: SparkSession, lake: esker.Lake, raw: Path) -> None:
        self.spark = spark
        self.repo = lake.create_repository("shop")
        self.main = self.repo.branch("main")
        self.raw = raw

    def run(self) -> None:
        self.load()
        self.rewrite_on_a_branch()
        self.catch_a_bad_batch()
        self.fail_half_way()
        self.race()
        self.write_two_tables()
        self.travel_in_time()
        self.collect()

    def load(self) -> None:
        chapter("1. Raw data, loaded into main: one job, one commit")
        for day in range(DAYS):
            self.arrive(day)
        files = sorted(self.raw.iterdir())
        say(f"{len(files)} files came in, {len(files) * ORDERS_A_DAY:,} orders: {files[0].name}, {files[1].name}, ...")
        with step(f'spark.read.csv("raw"), write.partitionBy("day").parquet("{ORDERS}")'):
            self.batch("*").write.partitionBy("day").parquet(ORDERS)
        self.repo.tag("yesterday", "main")
        head = self.spark.read.parquet(ORDERS).orderBy("id").limit(3)
        table(head.columns, [[str(value) for value in row] for row in head.collect()])
        name, commit = next(self.main.log())
        say("", f"commit {name[:12]}: {commit.message}; tagged 'yesterday'. Its metadata tells what made it:")
        told = ("spark.app.id", "spark.user", "spark.version", "spark.files", "spark.rows", "spark.bytes")
        table(told, [[commit.metadata[key] for key in told]])

    def rewrite_on_a_branch(self) -> None:
        chapter("2. A table rewritten on a branch: whoever reads main sees the old one until the merge, then the new")
        self.repo.create_branch("reprice", "main")
        with Watcher(self.main) as watcher:
            with step("read lakefs://shop/main/orders, overwrite lakefs://shop/reprice/orders"):
                changed = self.spark.read.parquet(ORDERS).withColumn("total", f.round(f.col("total") * 1.19, 2))
                changed.write.mode("overwrite").partitionBy("day").parquet("lakefs://shop/reprice/orders")
            before = total(self.spark, ORDERS)
            on_branch = total(self.spark, "lakefs://shop/reprice/orders")
            files = sum(1 for _ in self.repo.diff("main", "reprice", three_dot=True))
            with step(f"main.merge('reprice'): {files} files change places"):
                self.main.merge("reprice")
            after = total(self.spark, ORDERS)
        table(("", "total of all orders"), [("main, before", before), ("reprice", on_branch), ("main, after", after)])
        say("", f"A reader listed main's table {watcher.looks:,} times and saw {watcher.states} states of it:")
        say("all of the old one, and all of the new one.")
        assert watcher.states == 2, "the old table and the new one"
        assert on_branch == after != before

    def catch_a_bad_batch(self) -> None:
        chapter("3. A bad batch, caught by a check and thrown away; a good one, merged whole")
        for name, sign in (("bad", -1), ("good", 1)):
            self.repo.create_branch(name, "main")
            path = f"lakefs://shop/{name}/orders"
            self.arrive(DAYS, sign)
            with step(f"append a day to {path}"):
                self.batch(DAYS).write.mode("append").partitionBy("day").parquet(path)
            with step("  the check: are there orders with a negative total?"):
                wrong = self.spark.read.parquet(path).where("total < 0").count()
            if wrong:
                say(f"  {wrong:,} of them: the branch is deleted, and main never had any of it")
            else:
                with step("  none: main.merge('good')"):
                    self.main.merge(name)
            self.repo.delete_branch(name)
        days = self.spark.read.parquet(ORDERS).select("day").distinct().count()
        say("", f"main has {days} days now.")
        assert days == DAYS + 1

    def fail_half_way(self) -> None:
        chapter("4. A job that dies half-way: nobody sees any of its files")
        head = self.main.commit_id()
        dying = self.batch("*").withColumn("id", f.expr("if(day = 5, raise_error('a disk is full'), id)"))
        with step("overwrite lakefs://shop/main/orders, with a task that fails on day 5"):
            try:
                dying.write.mode("overwrite").partitionBy("day").parquet(ORDERS)
                failed = False
            except Exception:  # noqa: BLE001 - that it fails is the point; with which of Spark's errors is not
                failed = True
        days = self.spark.read.parquet(ORDERS).select("day").distinct().count()
        say("", f"The job failed. main is at the commit where it was, {head[:12]}, with all of its {days} days.")
        assert failed
        assert self.main.commit_id() == head

    def race(self) -> None:
        chapter("5. Two jobs write one table at the same time, straight to main: both land")
        before = self.spark.read.parquet(ORDERS).count()
        for day in (DAYS + 1, DAYS + 2):
            self.arrive(day)

        def append(day: int) -> None:
            message = f"The orders of day {day}"
            batch = self.batch(day).write.mode("append").partitionBy("day")
            batch.option("esker.message", message).parquet(ORDERS)

        with step("two threads, each: df.write.mode('append').parquet(...)"):
            together(lambda: append(DAYS + 1), lambda: append(DAYS + 2))
        after = self.spark.read.parquet(ORDERS).count()
        landed = list(self.main.log())[:2]
        say("", f"{before:,} orders became {after:,}, in two commits, one on top of the other:")
        say(*(f"  {name[:12]}  {commit.message}" for name, commit in landed))
        assert after == before + 2 * ORDERS_A_DAY

    def write_two_tables(self) -> None:
        chapter("6. Two tables that must agree, written as one")
        with (
            step("with esker.spark.transaction(spark, 'shop', 'main') as tx: ..."),
            esker.spark.transaction(self.spark, "shop", "main", message="Totals by day, and the best cities") as tx,
        ):
            orders = self.spark.read.parquet(tx.path("orders"))
            orders.groupBy("day").agg(f.sum("total").alias("total")).write.parquet(tx.path("totals"))
            best = orders.groupBy("city").agg(f.round(f.sum("total"), 2).alias("total")).orderBy(f.desc("total"))
            best.limit(3).write.parquet(tx.path("best"))
            visible = any(True for _ in self.main.list("totals/"))
        assert not visible
        name, commit = next(self.main.log())
        say("", "Until the block ended main had neither, and then both, in one commit:")
        say(f"  {name[:12]}  {commit.message}")
        best = self.spark.read.parquet("lakefs://shop/main/best").orderBy(f.desc("total"))
        table(("city", "total"), [(row[0], f"{row[1]:,.2f}") for row in best.collect()])

    def travel_in_time(self) -> None:
        chapter("7. Time travel: any ref is a path")
        rows = []
        for ref, means in (("yesterday", "a tag"), ("main~2", "two commits back"), ("main", "now")):
            path = f"lakefs://shop/{ref}/orders"
            with timed() as took:
                frame = self.spark.read.parquet(path)
                counts = (f"{frame.count():,}", str(frame.select("day").distinct().count()), total(self.spark, path))
            rows.append((path, means, *counts, f"{took[0]:.1f} s"))
        say("A tag, a commit and a branch are read alike, and copy nothing:")
        table(("spark.read.parquet(...)", "", "orders", "days", "total", "time"), rows)

    def collect(self) -> None:
        chapter("8. Garbage: what no ref reaches goes")
        say("Files go that two collections have found out of reach, two days apart: readers have time to end.")
        say("Here it is a second, since nobody else reads this lake.", "")
        with step("repo.collect_garbage(grace_s=1)"):
            self.repo.collect_garbage(grace_s=1)
        time.sleep(1)
        with step("and again, a second later"):
            report = self.repo.collect_garbage(grace_s=1)
        kept = self.spark.read.parquet("lakefs://shop/yesterday/orders").count()
        rows = [("before", report.listed, report.listed_bytes), ("deleted", report.deleted, report.deleted_bytes)]
        table(("", "files", "MB"), [(name, str(files), f"{size / 1e6:.2f}") for name, files, size in rows])
        say("", "It was the bad batch, and the job that died. What a ref reaches is there:")
        say(f"  lakefs://shop/yesterday/orders has its {kept:,} orders.")
        assert report.deleted > 0
        assert kept == DAYS * ORDERS_A_DAY

    def arrive(self, day: int, sign: int = 1) -> None:
        """A file of a day's orders comes in, the same each time; with -1, one in a hundred is wrong."""
        self.raw.mkdir(exist_ok=True)
        lines = ["id,day,city,total"]
        for order in range(day * ORDERS_A_DAY, (day + 1) * ORDERS_A_DAY):
            cents = order * 7919 % 10_000 * (sign if order % 100 == 7 else 1)
            lines.append(f"{order},{day},{CITIES[order * 31 % 97 % 7]},{cents / 100}")
        (self.raw / f"orders-{day:02}.csv").write_text("\n".join(lines) + "\n")

    def batch(self, day: int | str) -> DataFrame:
        """What came in on a day; `*`: on all of them."""
        name = day if isinstance(day, str) else f"{day:02}"
        found = self.spark.read.schema("id LONG, day INT, city STRING, total DOUBLE").option("header", True)
        return found.csv(f"{self.raw.as_uri()}/orders-{name}.csv")


class Watcher:
    """Lists a branch's table again and again, as a reader would: how many different states it saw."""

    def __init__(self, branch: esker.Branch) -> None:
        self._branch = branch
        self._seen: set[frozenset[str]] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.looks = 0

    @property
    def states(self) -> int:
        return len(self._seen)

    def _watch(self) -> None:
        while not self._stopped.is_set():
            found = self._branch.list("orders/")
            self._seen.add(frozenset(entry.checksum for entry in found if isinstance(entry, esker.Entry)))
            self.looks += 1
            time.sleep(0.01)

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(0.05)
        self._stopped.set()
        self._thread.join()


def total(spark: SparkSession, path: str) -> str:
    return f"{spark.read.parquet(path).agg(f.sum('total')).first()[0]:,.2f}"  # type: ignore[index] # a sum is a row


def together(*jobs: Callable[[], None]) -> None:
    failed: list[BaseException] = []

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            failed.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def leave_up(server: LocalServer) -> None:
    print(f"\n\nThe server stays up at {server.endpoint} until you press Ctrl-C. In another terminal:\n")
    say(
        f"export ESKER_ENDPOINT={server.endpoint}",
        f"export ESKER_ACCESS_KEY_ID={server.access_key}",
        f"export ESKER_SECRET_ACCESS_KEY={server.secret_key}",
        "",
        ".venv/bin/esker log --graph shop/main",
        ".venv/bin/esker ls shop/yesterday/orders/",
        ".venv/bin/esker diff shop/yesterday..main",
        "",
        f"Its API as a page to read: {server.endpoint}/docs",
    )
    sys.stdout.flush()
    try:
        while server.is_running:
            time.sleep(0.5)
    except KeyboardInterrupt:
        print()


def chapter(title: str) -> None:
    print(f"\n\n{title}\n{'-' * len(title)}\n")


def say(*lines: str) -> None:
    for line in lines:
        print(f"  {line}".rstrip())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    print()
    for row in (head, ["-" * width for width in widths], *rows):
        print("    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@contextmanager
def step(what: str) -> Iterator[None]:
    """Says what is done, and then how long it took."""
    print(f"  {what} ...", end="", flush=True)
    with timed() as took:
        yield
    print(f" {took[0]:.1f} s" if took[0] >= 0.1 else f" {took[0] * 1000:.0f} ms", flush=True)


@contextmanager
def timed() -> Iterator[list[float]]:
    """A list that holds the block's seconds once it has ended."""
    took: list[float] = []
    start = time.perf_counter()
    yield took
    took.append(time.perf_counter() - start)


@contextmanager
def quiet(log: Path) -> Iterator[None]:
    """What programs that are started in the block say on standard error goes to a file; it is told if the block fails.

    Spark greets with lines that say nothing of interest here, and tells the stack of each task that is made to fail.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    except BaseException:
        with log.open("rb") as file, os.fdopen(os.dup(kept), "wb") as told:
            shutil.copyfileobj(file, told)
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


if __name__ == "__main__":
    main()
