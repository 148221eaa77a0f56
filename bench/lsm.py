"""The LSM: what group commit saves, and that layers cost their readers little.

Writers here are as durable as they can be: SQLite and a local directory, every write flushed to the disk before it is
acknowledged. A writer that waits for each of its writes puts one row into a flush, so 64 of them bound a flush at 64
rows; writers that hand over many rows at a time are what makes large ones. Both are shown.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

import esker
from bench._data import entries, rows
from bench._report import Report, seconds
from bench.engine import fill
from esker.engine import commit, compaction, layers, memstore, prepared, repositories
from esker.engine import entries as verbs
from esker.engine.background import Background
from esker.engine.branches import create
from esker.engine.lake import Lake
from esker.engine.opening import open_stores
from esker.engine.policy import Compaction
from esker.model import Entry, Repository, Staging
from esker.streams.entries import as_changes, changes_of
from esker.streams.rows import Changes
from esker.testing.faults import CountingBlobs
from esker.tree.past import StoredPast

WRITERS: Final = 64
BULKS: Final = (1, 16, 64)
PAGE: Final = 1000
TABLE: Final = "warehouse/analytics/"


def main() -> int:
    """How many promises were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="50 thousand objects instead of a million; shorter runs")
    quick = parser.parse_args().quick
    n, run_s, turns = (50_000, 0.5, 1) if quick else (1_000_000, 5.0, 3)
    report = Report()
    bench_writers(report, run_s)
    bench_prepared(report, n)
    bench_deletes(report, n)
    bench_prefix(report, n)
    bench_gets(report)
    bench_compaction(report, run_s, turns)
    return report.missed


@contextmanager
def a_lake(staging: Staging = Staging.KV, cache_bytes: int = 2 << 30) -> Iterator[tuple[str, Lake, Repository]]:
    """Where it lies, open; nobody compacts in the background."""
    with tempfile.TemporaryDirectory(prefix="esker-bench-") as here:
        url = f"file://{here}/lake"
        lake, close = open_stores(url, settings=esker.Settings(cache_bytes=cache_bytes))
        try:
            yield url, lake, repositories.create(lake, "bench", f"{url}/bench", staging=staging)
        finally:
            close()


class Written(NamedTuple):
    rate: float
    """Acknowledged writes a second."""
    flushed: float
    """Blobs put by flushes, per 1,000 writes."""
    blobs: float
    """With those of compaction."""
    p99_s: float
    flush_s: float
    """Of a hundred flushes, the second longest."""


def written(staging: Staging, bulk: int, run_s: float) -> Written:
    """What so many writers get acknowledged, each waiting before it goes on, while compaction runs behind them."""
    flushes: list[float] = []
    real = memstore._flush

    def timed(lake: Lake, repo: Repository, branch: str, batch: memstore._Batch) -> None:
        start = time.perf_counter()
        real(lake, repo, branch, batch)
        flushes.append(time.perf_counter() - start)

    with a_lake(staging) as (_, lake, repo):
        blobs = CountingBlobs(lake.blobs(repo))
        lake._stores[repo.namespace] = blobs
        lake._pasts.clear()
        lake._tables.clear()
        background = Background(lake)
        background.start()
        memstore._flush = timed
        took: list[float] = []
        end = time.perf_counter() + run_s

        def write(writer: int) -> None:
            number = 0
            while time.perf_counter() < end:
                new = [some_entry(f"{writer}/{number + i}") for i in range(bulk)]
                start = time.perf_counter()
                try:
                    if bulk == 1:
                        verbs.put(lake, repo, "main", new[0])
                    else:
                        verbs.write_many(lake, repo, "main", new)
                except esker.ContentionError:
                    continue  # without the memstore, so many layers at once: it is not counted, and its time is lost
                took.append(time.perf_counter() - start)
                number += bulk

        try:
            start = time.perf_counter()
            in_threads(WRITERS, write)
            lasted = time.perf_counter() - start
        finally:
            memstore._flush = real
            background.stop()
        count = len(took) * bulk
        flushed = sum(times for (method, name), times in blobs.names.items() if method == "put" and "/L1/" in name)
        return Written(
            count / lasted,
            flushed / count * 1000,
            blobs.calls["put"] / count * 1000,
            p99(took),
            p99(flushes) if flushes else 0,
        )


def bench_writers(report: Report, run_s: float) -> None:
    alone = written(Staging.KV, 1, run_s)
    report.note(f"KV, {WRITERS} writers", f"{alone.rate:,.0f}/s, p99 {ms(alone.p99_s)}")
    many = written(Staging.KV, max(BULKS), run_s)
    about = f"{many.rate:,.0f}/s, p99 {ms(many.p99_s)}; {many.blobs:.2f} puts per 1,000: a layer each time"
    report.note(f"KV, {WRITERS} writers, {max(BULKS)} at a time", about)
    for bulk in BULKS:
        found = written(Staging.LSM, bulk, run_s)
        how = f"LSM, {WRITERS} writers, {bulk} at a time"
        about = f"{found.rate:,.0f}/s, p99 {ms(found.p99_s)}; with compaction {found.blobs:.2f} puts"
        ratio = found.rate / alone.rate
        if bulk == 1:
            report.note(f"{how}: rate / KV's", f"{ratio:.2f} x, {found.flushed:.1f} puts per 1,000; {about}")
        else:
            report.at_most(f"{how}: puts per 1,000 writes", found.flushed, 1.2, "puts", about)
            (report.at_least if bulk == max(BULKS) else at_least_noted(report))(f"{how}: rate / KV's", ratio, 3)
        bound_s = esker.Settings().memstore_wait_ms / 1000 + 2 * found.flush_s
        report.at_most(f"{how}: p99 / (N + 2 flushes)", found.p99_s / bound_s, 1, note=f"a flush: {ms(found.flush_s)}")


def at_least_noted(report: Report) -> Callable[[str, float, float], None]:
    return lambda what, value, _: report.note(what, f"{value:.2f} x")


def bench_prepared(report: Report, n: int) -> None:
    table = pa.concat_tables(entries(n)).combine_chunks()
    with a_lake() as (_, lake, repo):
        checked, _ = seconds(lambda: prepared._Checked(lake, repo, [table], None))
        report.at_least("prepared layer: rows checked", n / checked / 1e6, 1, "M/s")
        create(lake, repo, "layer", "main")
        laid, _ = seconds(lambda: prepared.append(lake, repo, "layer", table), 1)
        report.note("prepared layer: rows checked, written, laid", f"{n / laid / 1e6:.2f} M/s")


def bench_deletes(report: Report, n: int) -> None:
    """The first page behind deletions, against that of a branch that never had what was deleted."""
    rest = rows(np.arange(n, n + 10_000))
    with a_lake() as (_, lake, repo):
        create(lake, repo, "clean", "main")
        prepared.append(lake, repo, "clean", rest)
        commit.commit(lake, repo, "clean", "clean")
        fill(lake, repo, n)
        prepared.append(lake, repo, "main", rest)
        commit.commit(lake, repo, "main", "all")
        for start in range(0, n, 50_000):
            paths = rows(np.arange(start, min(start + 50_000, n)))["path"].to_pylist()
            layers.append(lake, repo, "main", Changes(changes_of((), paths)))

        def page(branch: str) -> object:
            return verbs.listing(lake, repo, branch, amount=PAGE)

        clean, expected = seconds(lambda: page("clean"), 10)
        before, found = seconds(lambda: page("main"), 3)
        assert found == expected
        compaction.compact(lake, repo, "main", Compaction.MINOR)
        minor, _ = seconds(lambda: page("main"), 3)
        took, _ = seconds(lambda: compaction.compact(lake, repo, "main", Compaction.MAJOR), 1)
        after, found = seconds(lambda: page("main"), 10)
        assert found == expected
        note = f"{ms(clean)} clean; before compaction {before / clean:,.0f} x, after a minor one {minor / clean:,.0f} x"
        report.at_most(f"first page after {n:,} deletes, compacted / clean", after / clean, 2, note=note)
        report.note(f"major compaction of {n:,} deletes", f"{took:.2f} s")


def bench_prefix(report: Report, n: int) -> None:
    """A table among others, deleted: one record, and a commit that opens the two ranges at its edges."""
    with a_lake() as (url, lake, repo):
        fill(lake, repo, n)
        around = [some_entry(f"{name}/{i:05d}") for name in ("a", "z") for i in range(20_000)]
        layers.append(lake, repo, "main", Changes(changes_of(around)))
        commit.commit(lake, repo, "main", "around")
        fresh, close = open_stores(url)
        try:
            before = fresh.branches(repo).get("main")
            writes = fresh.kv.counts.writes.total()
            took, _ = seconds(lambda: verbs.delete_prefix(fresh, repo, "main", TABLE), 1)
            record = fresh.branches(repo).get("main")
            assert len(record.sealed) == len(before.sealed) + 1
            assert not record.sealed[0].files
            report.at_most(
                f"delete a table of {n:,}: records", fresh.kv.counts.writes.total() - writes, 1, "", note=ms(took)
            )
            past = fresh.past(repo)
            assert isinstance(past, StoredPast)
            opened = past.trees.counts().ranges_read
            took, _ = seconds(lambda: commit.commit(fresh, repo, "main", "gone"), 1)
            report.at_most("... ranges opened by its commit", past.trees.counts().ranges_read - opened, 2, "", ms(took))
            left = past.size(fresh.commits(repo).get(fresh.branches(repo).get("main").commit).tree)
            assert left == len(around)
        finally:
            close()


def bench_gets(report: Report) -> None:
    """Through 64 tables whose paths interleave, with nothing kept in memory but filters."""
    tables, each = 64, 1000
    with a_lake() as (url, lake, repo):
        for turn in range(tables):
            new = as_changes(rows(np.arange(turn, tables * each, tables)))
            layers.append(lake, repo, "main", Changes(new))
        paths = rows(np.arange(7, tables * each, 97))["path"].to_pylist()
        cold, close = open_stores(url, settings=esker.Settings(cache_bytes=0))
        try:
            past = cold.past(repo)
            assert isinstance(past, StoredPast)
            for what, wanted in (("", paths), (" of what is not there", [f"{path}-no" for path in paths])):
                opened = past.trees.counts().layers_read
                start = time.perf_counter()
                found = sum(verbs.get(cold, repo, "main", path) is not None for path in wanted) if not what else 0
                for path in wanted if what else []:
                    missing(cold, repo, path)
                took = (time.perf_counter() - start) / len(wanted)
                assert found == (0 if what else len(paths))
                opened = past.trees.counts().layers_read - opened
                report.at_most(f"get through {tables} L1 tables{what}: opened", opened / len(wanted), 2, "", ms(took))
        finally:
            close()


def missing(lake: Lake, repo: Repository, path: str) -> None:
    try:
        verbs.get(lake, repo, "main", path)
    except esker.NotFoundError:
        return
    raise AssertionError(path)


def bench_compaction(report: Report, run_s: float, turns: int) -> None:
    """Of some runs of each in turn, the least disturbed."""
    runs = [(foreground(run_s, compacting=False), foreground(run_s, compacting=True)) for _ in range(turns)]
    never, always = (min(p99(run.took) for run in some) for some in zip(*runs, strict=True))
    compactions = sum(run.compactions for _, run in runs)
    report.at_most(
        "p99 of get and put, compacting all the time / never",
        always / never,
        1.5,
        note=f"{ms(never)}, {ms(always)}; {compactions} compactions",
    )


class Foreground(NamedTuple):
    took: list[float]
    compactions: int


def foreground(run_s: float, *, compacting: bool) -> Foreground:
    """What gets and puts take while layers come in, and somebody compacts them whenever that is due, or nobody does."""
    with a_lake() as (_, lake, repo):
        fill(lake, repo, 100_000)
        layers.append(lake, repo, "main", Changes(as_changes(rows(np.arange(0, 100_000, 5), 1))))
        compaction.compact(lake, repo, "main", Compaction.MINOR)
        paths = rows(np.arange(0, 100_000, 1009))["path"].to_pylist()
        coming = [as_changes(rows(np.arange(turn, 100_000, 500), turn)) for turn in range(50)]
        took: list[float] = []
        compactions = 0
        done = threading.Event()

        def append() -> None:
            turn = 0
            while not done.wait(0.02):
                turn += 1
                layers.append(lake, repo, "main", Changes(coming[turn % len(coming)]))

        def compact() -> None:
            nonlocal compactions
            while not done.wait(0.02):
                if len(lake.branches(repo).get("main").sealed) >= 16:
                    compactions += compaction.compact(lake, repo, "main", Compaction.MINOR)

        def work(writer: int) -> None:
            turn = 0
            while time.perf_counter() < end:
                turn += 1
                start = time.perf_counter()
                verbs.get(lake, repo, "main", paths[turn * 7 % len(paths)])
                verbs.put(lake, repo, "main", some_entry(f"{writer}/{turn % 100}"))
                took.append(time.perf_counter() - start)
                time.sleep(0.005)

        behind = [threading.Thread(target=work) for work in ([append, compact] if compacting else [append])]
        for thread in behind:
            thread.start()
        end = time.perf_counter() + run_s
        in_threads(4, work)
        done.set()
        for thread in behind:
            thread.join()
        return Foreground(took, compactions)


def some_entry(path: str) -> Entry:
    return Entry(path=path, address=f"data/{path}", size=1, checksum="c" * 32, mtime_ms=0)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


def ms(took: float) -> str:
    return f"{took * 1e3:.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
