"""The engine: reads, staged writes, commits and branches against what lies below them; what the dirty flag spares."""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import pyarrow as pa

import esker
from bench._data import entries, rows
from bench._report import Report, seconds
from bench.tree import scattered
from esker.engine import commit
from esker.engine import entries as verbs
from esker.engine.branches import create
from esker.engine.lake import Lake
from esker.model import Entry, FileName, Repository
from esker.staging import tokens
from esker.streams.entries import entries_in, puts_in
from esker.streams.rows import Changes
from esker.tree import reading
from esker.tree.past import StoredPast
from tests import services

WARM = esker.Settings(cache_bytes=2 << 30)
"""So that what was read once stays in memory, on both sides of each ratio."""

THREADS = 32


def main() -> int:
    """How many promises were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="50 thousand objects instead of a million")
    n, puts = (50_000, 300) if parser.parse_args().quick else (1_000_000, 2000)
    report = Report()
    with (
        tempfile.TemporaryDirectory(prefix="esker-bench-") as here,
        esker.open_lake(f"file://{here}/lake", settings=WARM) as opened,
    ):
        lake = opened.engine
        repo = opened.create_repository("bench").record
        tree = fill(lake, repo, n)
        bench_get(report, lake, repo, tree)
        bench_listing(report, lake, repo, n)
        bench_branches(report, lake, repo)
        bench_puts(report, lake, repo, puts)
        bench_commit(report, lake, repo, tree, n)
    bench_dirty_flag(report)
    return report.missed


def fill(lake: Lake, repo: Repository, n: int) -> FileName:
    """Commit `n` objects to main."""
    past = lake.past(repo)
    tree = past.build(entries(n))
    head = commit.record_commit(lake, repo, tree=tree, parents=(lake.branches(repo).get("main").commit,), message="")
    assert lake.branches(repo).update("main", lambda now: now.moved(head, base=now.commit))
    return tree


def bench_get(report: Report, lake: Lake, repo: Repository, tree: FileName) -> None:
    """Entries that were found before are remembered by the engine, not by the tree."""
    past = lake.past(repo)
    assert isinstance(past, StoredPast)
    paths = [entry.path for table in past.scan(tree) for entry in entries_in(table.slice(0, 10))]

    def each(get: Callable[[str], object]) -> None:
        for path in paths:
            get(path)

    each(lambda path: reading.get(past.trees, tree, path))
    floor, _ = seconds(lambda: each(lambda path: reading.get(past.trees, tree, path)), 5)
    first, _ = seconds(lambda: each(lambda path: verbs.get(lake, repo, "main", path)), 1)
    took, _ = seconds(lambda: each(lambda path: verbs.get(lake, repo, "main", path)), 5)
    report.at_most("get on a clean branch / the tree's own get", took / floor, 1.5, note=us(took / len(paths)))
    report.note("... of entries that are not remembered", f"{first / floor:.2f} x")


def bench_listing(report: Report, lake: Lake, repo: Repository, n: int) -> None:
    create(lake, repo, "staged", "main")
    for entry in entries_in(puts_in(scattered(n, 1250, 9)))[:1000]:
        verbs.put(lake, repo, "staged", entry)
    after = rows(pa.array([n // 2]).to_numpy())["path"][0].as_py()

    def page(branch: str) -> object:
        return verbs.listing(lake, repo, branch, after=after)

    clean, _ = seconds(lambda: page("main"), 30)
    staged, _ = seconds(lambda: page("staged"), 30)
    report.at_most("listing page, 1,000 staged / clean", staged / clean, 2, note=f"{clean * 1e3:.2f} ms clean")


def bench_branches(report: Report, lake: Lake, repo: Repository) -> None:
    value = bytes(150)

    def insert() -> None:
        for i in range(200):
            assert lake.kv.put_if("bench/inserts", f"{time.monotonic()} {i}".encode(), value, None)

    def branch() -> None:
        for i in range(200):
            create(lake, repo, f"b-{time.monotonic_ns()}-{i}", "main")

    floor, _ = seconds(insert, 5)
    took, _ = seconds(branch, 5)
    report.at_most("create a branch / one durable insert", took / floor, 1.5, note=us(took / 200))


def bench_puts(report: Report, lake: Lake, repo: Repository, puts: int) -> None:
    create(lake, repo, "writes", "main")
    entry = Entry(path="x", address="data/x", size=1, checksum="c" * 32, mtime_ms=0)

    def some(thread: int, count: int) -> None:
        for i in range(count):
            verbs.put(lake, repo, "writes", msg_entry(entry, f"{thread}/{i}"))

    some(99, 10)
    one, _ = seconds(lambda: some(0, puts))

    def together() -> None:
        threads = [threading.Thread(target=some, args=(i, puts // 4)) for i in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    many, _ = seconds(together)
    alone, shared = puts / one, THREADS * (puts // 4) / many
    report.at_least(
        f"durable puts, {THREADS} threads / one", shared / alone, 5, note=f"{alone:,.0f}/s, {shared:,.0f}/s"
    )


def bench_commit(report: Report, lake: Lake, repo: Repository, tree: FileName, n: int) -> None:
    changes = scattered(n, n // 10, 1)
    past = lake.past(repo)
    past.apply(tree, Changes(changes))
    floor, _ = seconds(lambda: past.apply(tree, Changes(changes)), 3)
    took = []
    staged = dict(zip(changes["path"].to_pylist(), entries_in(changes), strict=True))
    gone = changes["tombstone"].to_pylist()
    values = [
        (path.encode(), tokens.encode(None if dead else entry))
        for (path, entry), dead in zip(staged.items(), gone, strict=True)
    ]
    for turn in range(3):
        create(lake, repo, f"commit-{turn}", "main")
        record = verbs.open_token(lake, repo, f"commit-{turn}")
        lake.kv.put_many(tokens.partition(record.token), values)  # as so many puts would have left them
        start = time.perf_counter()
        commit.commit(lake, repo, f"commit-{turn}", "scattered")
        took.append(time.perf_counter() - start)
    report.at_most(
        f"commit {n // 10:,} staged puts / bare apply", min(took) / floor, 3, note=f"{min(took):.2f} s, {floor:.2f} s"
    )


def bench_dirty_flag(report: Report) -> None:
    """The seed's table: reads of staging partitions spared, by the share of reads that find their branch clean. Each
    spared read is one read capacity unit, since staged records are below 4 KB."""
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with services.moto() as url, tempfile.TemporaryDirectory() as here:
        kv = f"dynamodb://bench?region=us-east-1&endpoint={url}"
        reads = 100
        for share in (0, 50, 90, 95, 100):
            spent = {}
            for optimised in (False, True):
                settings = esker.Settings(dirty_read_optimization=optimised)
                with esker.open_lake(f"file://{here}", kv=kv, settings=settings) as opened:
                    repo = opened.create_repository(f"r{share}-{optimised}".lower().replace("true", "on"))
                    for name in ("clean", "dirty"):
                        repo.create_branch(name, "main")
                    repo.branch("dirty").link(Entry(path="a", address="x", size=1, checksum="", mtime_ms=0))
                    counts = opened.engine.kv.counts
                    before = counts.reads["staging"]
                    for i in range(reads):
                        repo.ref("clean" if i < share else "dirty").exists("b")
                    spent[optimised] = counts.reads["staging"] - before
            saved = spent[False] - spent[True]
            report.at_least(
                f"{share}% of reads clean: RCUs saved a 100 gets", saved, share, "RCU", f"of {spent[False]}"
            )


def msg_entry(entry: Entry, path: str) -> Entry:
    return Entry(path=path, address=entry.address, size=1, checksum=entry.checksum, mtime_ms=0)


def us(took: float) -> str:
    return f"{took * 1e6:.1f} us"


if __name__ == "__main__":
    sys.exit(main())
