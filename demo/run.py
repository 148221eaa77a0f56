"""A day of a data engineer, with Spark, on a directory that is thrown away after: `make demo`.

`make demo KEEP=1` leaves the server up at the end, to look around.
"""

import os
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
    with tempfile.TemporaryDirectory(prefix="esker-demo-") as directory, timed() as took:
        lake_url = (Path(directory) / "lake").as_uri()
        say("A lake is a directory or a bucket. A server speaks for it, and Spark reads and writes it.")
        with step("start a server on an empty lake"):
            server = LocalServer(lake_url)
        with step("start Spark: esker.spark.session(...)"):
            spark = esker.spark.session(
                endpoint=server.endpoint,
                access_key=server.access_key,
                secret_key=server.secret_key,
                master="local[2]",
                settings=QUIET,
            )
        try:
            with esker.open_lake(lake_url) as lake:
                Day(spark, lake).run()
            spark.stop()
            if keep:
                leave_up(server)
        finally:
            server.stop()
    print(f"\n\nThat was the day, in {took[0]:.0f} s. Where to go next:\n")
    say(
        "README.md              the same in ten lines of Spark, and twenty of Python",
        "docs/spark.md          Spark with esker: set-up, what is atomic, several tables, streams",
        "docs/guide.md          Python, by task, with examples to copy",
        "make tour              versions, branches and merges in Python alone, with what each of them reads and writes",
        "make demo KEEP=1       the same, and the server stays up",
    )


class Day:
    def __init__(self, spark: SparkSession, lake: esker.Lake) -> None:
        self.spark = spark
        self.repo = lake.create_repository("shop")
        self.main = self.repo.branch("main")

    def run(self) -> None:
        self.load()
        self.rewrite_on_a_branch()
        self.catch_a_bad_batch()
        self.race()
        self.write_two_tables()
        self.travel_in_time()
        self.clean_up()

    def load(self) -> None:
        chapter("1. Raw data, loaded into main: one job, one commit")
        with step(f'orders.write.partitionBy("day").parquet("{ORDERS}")'):
            orders(self.spark, range(DAYS)).write.partitionBy("day").parquet(ORDERS)
        self.repo.tag("yesterday", "main")
        name, commit = next(self.main.log())
        files = sum(1 for _ in self.main.list("orders/"))
        say("", f"commit {name[:12]}: {commit.message}, {files} files; tagged 'yesterday'. Its metadata tells the job:")
        table(("key", "value"), [(key, value[:60]) for key, value in sorted(commit.metadata.items())])

    def rewrite_on_a_branch(self) -> None:
        chapter("2. A table rewritten on a branch; whoever reads main sees the old one until the merge, then the new")
        self.repo.create_branch("reprice", "main")
        with Watcher(self.main) as watcher:
            with step("read lakefs://shop/main/orders, overwrite lakefs://shop/reprice/orders"):
                changed = self.spark.read.parquet(ORDERS).withColumn("total", f.round(f.col("total") * 1.19, 2))
                changed.write.mode("overwrite").partitionBy("day").parquet("lakefs://shop/reprice/orders")
            before = total(self.spark, ORDERS)
            on_branch = total(self.spark, "lakefs://shop/reprice/orders")
            with step("main.merge('reprice')"):
                self.main.merge("reprice")
            after = total(self.spark, ORDERS)
        table(("", "total of all orders"), [("main, before", before), ("reprice", on_branch), ("main, after", after)])
        say("", f"A reader listed main's table {watcher.looks:,} times, and saw {watcher.states} states of it.")
        assert watcher.states == 2, "the old table and the new one"
        assert on_branch == after != before

    def catch_a_bad_batch(self) -> None:
        chapter("3. A bad batch, caught by a check and thrown away; a good one, merged")
        for name, batch in (("bad", self.batch(-1.0)), ("good", self.batch(1.0))):
            self.repo.create_branch(name, "main")
            path = f"lakefs://shop/{name}/orders"
            with step(f"append a day to {path}, and check it"):
                batch.write.mode("append").partitionBy("day").parquet(path)
                wrong = self.spark.read.parquet(path).where("total < 0").count()
            if wrong:
                say(f"  {wrong:,} orders have a negative total: the branch is deleted, and main never had any of it")
            else:
                self.main.merge(name)
                say("  nothing wrong: merged, all of it at once")
            self.repo.delete_branch(name)
        days = self.spark.read.parquet(ORDERS).select("day").distinct().count()
        say("", f"main has {days} days now.")
        assert days == DAYS + 1

    def batch(self, sign: float) -> DataFrame:
        one_in_a_hundred = f.when(f.col("id") % 100 == 7, sign).otherwise(1.0)
        return orders(self.spark, [DAYS]).withColumn("total", f.col("total") * one_in_a_hundred)

    def race(self) -> None:
        chapter("4. Two jobs write one table at the same time, straight to main; both land")
        before = self.spark.read.parquet(ORDERS).count()

        def append(day: int) -> None:
            orders(self.spark, [day]).write.mode("append").partitionBy("day").parquet(ORDERS)

        with step("two threads, each: df.write.mode('append').parquet(...)"):
            together(lambda: append(DAYS + 1), lambda: append(DAYS + 2))
        after = self.spark.read.parquet(ORDERS).count()
        landed = [commit.message for _, commit in list(self.main.log())[:2]]
        say("", f"{before:,} orders became {after:,}, in two commits:", *(f"  {message}" for message in landed))
        assert after == before + 2 * ORDERS_A_DAY

    def write_two_tables(self) -> None:
        chapter("5. Two tables that must agree, written as one")
        with (
            step("with esker.spark.transaction(spark, 'shop', 'main') as tx: ..."),
            esker.spark.transaction(self.spark, "shop", "main", message="Totals by day, and the best days") as tx,
        ):
            days = self.spark.read.parquet(tx.path("orders")).groupBy("day").agg(f.sum("total").alias("total"))
            days.write.parquet(tx.path("totals"))
            best = self.spark.read.parquet(tx.path("totals")).orderBy(f.desc("total")).limit(3)
            best.write.parquet(tx.path("best"))
            visible = any(True for _ in self.main.list("totals/"))
        assert not visible
        name, commit = next(self.main.log())
        say("", "Inside, the second job read what the first had written; main had neither. Then both:")
        say(f"{name[:12]}: {commit.message}")

    def travel_in_time(self) -> None:
        chapter("6. Time travel: any ref is a path")
        rows = []
        for ref in ("yesterday", "main~2", "main"):
            path = f"lakefs://shop/{ref}/orders"
            with timed() as took:
                frame = self.spark.read.parquet(path)
                counts = (f"{frame.count():,}", str(frame.select("day").distinct().count()), total(self.spark, path))
            rows.append((path, *counts, f"{took[0]:.1f} s"))
        table(("spark.read.parquet(...)", "orders", "days", "total", "time"), rows)

    def clean_up(self) -> None:
        chapter("7. Garbage: what no ref reaches goes, later")
        with step("repo.collect_garbage(dry_run=True)"):
            report = self.repo.collect_garbage(dry_run=True, grace_s=0.0)
        say(
            "",
            f"{report.listed} files, {report.listed_bytes / 1e6:.1f} MB; {report.dead} of them, "
            f"{report.dead_bytes / 1e6:.2f} MB, no ref reaches: the bad batch, and traces of jobs.",
            "For good they go only after two collections, two days apart, have found that.",
        )


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


def orders(spark: SparkSession, days: Sequence[int]) -> DataFrame:
    """Some orders of each day, the same ones each time."""
    first, last = min(days), max(days) + 1
    ids = spark.range(first * ORDERS_A_DAY, last * ORDERS_A_DAY, numPartitions=2)
    return ids.select(
        "id",
        (f.col("id") % 997).alias("customer"),
        f.round((f.col("id") * 7919 % 10_000) / 100, 2).alias("total"),
        f.floor(f.col("id") / ORDERS_A_DAY).cast("int").alias("day"),
    )


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
    print(f"\n\nThe server stays up at {server.endpoint} (its API: {server.endpoint}/docs) until you press Ctrl-C.")
    say(f"access key  {server.access_key}", f"secret key  {server.secret_key}")
    sys.stdout.flush()
    try:
        while server.is_running:
            time.sleep(0.5)
    except KeyboardInterrupt:
        print()


def chapter(title: str) -> None:
    print(f"\n\n{title}\n")


def say(*lines: str) -> None:
    for line in lines:
        print(f"  {line}".rstrip())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    print()
    for row in (head, ["-" * width for width in widths], *rows):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@contextmanager
def step(what: str) -> Iterator[None]:
    """Says what is done, and then how long it took."""
    print(f"  {what} ...", end="", flush=True)
    with timed() as took:
        yield
    print(f" {took[0]:.1f} s", flush=True)


@contextmanager
def timed() -> Iterator[list[float]]:
    """A list that holds the block's seconds once it has ended."""
    took: list[float] = []
    start = time.perf_counter()
    yield took
    took.append(time.perf_counter() - start)


if __name__ == "__main__":
    main()
