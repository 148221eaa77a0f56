"""Contended merges: racers into one branch, against the same merges one after another, and against starting over; in
one process, and through a server."""

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

import esker
from bench._data import FILES_A_DIRECTORY, rows
from bench._report import Report
from bench.engine import fill
from esker.engine import branches, commit, landing, merge
from esker.engine.lake import Lake
from esker.format.names import digest_of
from esker.model import Repository
from esker.refs import history
from esker.refs.records import Branch
from esker.streams.entries import as_changes
from esker.streams.rows import Changes
from esker.tree.merge import Strategy
from esker.tree.past import StoredPast
from esker.tree.trees import TreeCounts
from tests.server.running import Client, serving

RACERS = (2, 4, 8, 16, 32, 64)
CHANGES = 100
THREADS = 32
TURNS = 8
QUICK_TURNS = 2


def main() -> int:
    """How many promises were missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="20 thousand objects instead of a million, 16 racers instead of 64"
    )
    quick = parser.parse_args().quick
    n, fewer = (20_000, 20_000) if quick else (1_000_000, 200_000)
    racers, turns = (RACERS[:-2], QUICK_TURNS) if quick else (RACERS, TURNS)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="esker-bench-") as here:
        settings = esker.Settings(cache_bytes=1 << 30)  # what was just written is mostly still there when it is merged
        with esker.open_lake(f"file://{here}/lake", settings=settings) as opened:
            lake, repo = opened.engine, opened.create_repository("bench").record
            fill(lake, repo, n)
            prepare(lake, repo, n, max(racers))
            bench_racers(report, lake, repo, racers)
            bench_rate(report, lake, repo, turns)
        bench_counts(report, Path(here), fewer)
        bench_served(report, Path(here) / "served", fewer, turns)
    return report.missed


def prepare(lake: Lake, repo: Repository, n: int, count: int) -> None:
    """Branches that each changed some files of a directory of their own."""
    past = lake.past(repo)
    head = lake.branches(repo).get("main").commit
    tree = lake.commits(repo).get(head).tree
    for number in range(count):
        first = int(n * (number + 0.5) / count) // FILES_A_DIRECTORY * FILES_A_DIRECTORY
        changed = past.apply(tree, Changes(as_changes(rows(np.arange(first, first + CHANGES), number + 1))))
        made = commit.record_commit(lake, repo, tree=changed, parents=(head,), message=f"racer {number}")
        lake.branches(repo).create(f"racer-{number}", made)


def race(count: int, run: Callable[[int], object]) -> float:
    """Seconds until all racers, let go at once, have arrived."""
    gate = threading.Barrier(count + 1)
    failed: list[Exception] = []

    def racer(number: int) -> None:
        gate.wait()
        try:
            run(number)
        except Exception as error:  # noqa: BLE001  # whatever it is, the race is void
            failed.append(error)

    threads = [threading.Thread(target=racer, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    gate.wait()
    start = time.perf_counter()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    assert not failed, failed[0]
    return took


def merge_racer(lake: Lake, repo: Repository, branch: str, number: int) -> None:
    merge.merge(lake, repo, f"racer-{number}", branch)


def start_over(lake: Lake, repo: Repository, branch: str, tries: list[int], number: int) -> None:
    """A merge that begins again from nothing whenever it loses the race."""
    past, commits = lake.past(repo), lake.commits(repo)
    theirs = lake.branches(repo).get(f"racer-{number}").commit
    for attempt in range(1, 10_000):
        head = landing.clean_head(lake, repo, branch)
        base = history.merge_base(commits.get, theirs, head)
        assert base
        trees = [commits.get(name).tree for name in (base, theirs, head)]
        merged = past.merge(trees[0], trees[1], trees[2], Strategy.NONE)
        assert merged.tree
        made = commit.record_commit(lake, repo, tree=merged.tree, parents=(head, theirs), message="")
        if lake.branches(repo).update(branch, partial(Branch.moved, commit=made, base=head)):
            tries.append(attempt)
            return
    raise AssertionError("never won")


def bench_racers(report: Report, lake: Lake, repo: Repository, racers: tuple[int, ...]) -> None:
    each: dict[int, float] = {}
    ratio = 0.0
    curves: dict[str, list[tuple[float, float]]] = {"esker": [], "starting over": []}
    for count in racers:
        branches.create(lake, repo, f"dest-{count}", "main")
        branches.create(lake, repo, f"over-{count}", "main")
        took = race(count, partial(merge_racer, lake, repo, f"dest-{count}"))
        tries: list[int] = []
        over = race(count, partial(start_over, lake, repo, f"over-{count}", tries))
        heads = (lake.branches(repo).get(name).commit for name in (f"dest-{count}", f"over-{count}"))
        same = [digest_of(lake.commits(repo).get(head).tree) for head in heads]
        assert same[0] == same[1], "both came to the same tree"
        each[count] = took / count
        ratio = over / took
        curves["esker"].append((count, took))
        curves["starting over"].append((count, over))
        report.note(
            f"{count} racers",
            f"{took:.2f} s ({took / count * 1e3:.1f} ms each); starting over {over:.2f} s, {sum(tries)} tries",
        )
    curves["linear"] = [(count, curves["esker"][0][1] * count / racers[0]) for count in racers]
    report.plot("racers", "Merges of one branch at once, on disjoint directories", "racers", "seconds for all", curves)
    most = max(racers)
    report.at_most(f"time a merge, {most} racers / 8 racers (linear: 1)", each[most] / each[8], 1.5)
    report.at_least(f"{most} racers: starting over / esker", ratio, 10)


def bench_rate(report: Report, lake: Lake, repo: Repository, turns: int) -> None:
    """Threads that each merge branches of their own, one after the other, into one."""
    small_branches(lake, repo, turns)
    took = race(THREADS, lambda number: [merge.merge(lake, repo, name, "busy") for name in small_of(number, turns)])
    log = list(history.first_parents(lake.commits(repo).get, lake.branches(repo).get("busy").commit))
    assert len(log) == THREADS * turns + 2, "one commit each"
    report.at_least(f"contended merges from {THREADS} threads", THREADS * turns / took, 200, "/s")


def bench_served(report: Report, directory: Path, n: int, turns: int) -> None:
    """The same through a server of two processes, which race with each other."""
    with esker.open_lake((directory / "lake").as_uri()) as opened:
        repo = opened.create_repository("bench").record
        fill(opened.engine, repo, n)
        small_branches(opened.engine, repo, turns)
    with serving(directory, workers=2) as server:
        client = Client(server.url, server.key, threads=THREADS)

        def run(number: int) -> None:
            for name in small_of(number, turns):
                client.post(f"/repositories/bench/refs/{name}/merge/busy", {})

        took = race(THREADS, run)
    with esker.open_lake((directory / "lake").as_uri()) as opened:
        merged = sum(1 for _ in opened.repository("bench").branch("busy").log(first_parent=True))
    assert merged == THREADS * turns + 2, "one commit each"
    report.at_least(f"... from {THREADS} clients of a server of two processes", THREADS * turns / took, 200, "/s")


def small_branches(lake: Lake, repo: Repository, turns: int) -> None:
    """Branches that each changed five files, and a branch for them to be merged into."""
    past = lake.past(repo)
    head = lake.branches(repo).get("main").commit
    tree = lake.commits(repo).get(head).tree
    branches.create(lake, repo, "busy", "main")
    for number in range(THREADS):
        for turn, name in enumerate(small_of(number, turns)):
            first = (number * turns + turn) * 700
            changed = past.apply(tree, Changes(as_changes(rows(np.arange(first, first + 5), 1000))))
            made = commit.record_commit(lake, repo, tree=changed, parents=(head,), message="")
            lake.branches(repo).create(name, made)


def small_of(thread: int, turns: int) -> list[str]:
    return [f"small-{thread}-{turn}" for turn in range(turns)]


def bench_counts(report: Report, here: Path, n: int) -> None:
    """Files that racers of two processes' worth of lakes read and write, against one after another."""
    with two_lakes(here, n) as (one, other, repo):
        count = 16
        prepare(one, repo, n, count)
        branches.create(one, repo, "raced", "main")
        branches.create(one, repo, "in-turn", "main")
        raced = counted(
            (one, other),
            repo,
            lambda: race(count, lambda number: merge_racer((one, other)[number % 2], repo, "raced", number)),
        )
    with two_lakes(here) as (one, other, repo):
        in_turn = counted(
            (one, other),
            repo,
            lambda: [
                merge.merge((one, other)[number % 2], repo, f"racer-{number}", "in-turn") for number in range(count)
            ],
        )
    report.at_most(
        "ranges read and written, raced / one after another",
        (raced.ranges_read + raced.ranges_written) / (in_turn.ranges_read + in_turn.ranges_written),
        1.1,
        note=f"{raced.ranges_read}+{raced.ranges_written} / {in_turn.ranges_read}+{in_turn.ranges_written}",
    )


@contextmanager
def two_lakes(here: Path, n: int = 0) -> Iterator[tuple[Lake, Lake, Repository]]:
    """Two lakes over one store, as two processes would open it; filled with `n` objects first."""
    url = f"file://{here}/two"
    if n:
        with esker.open_lake(url) as opened:
            fill(opened.engine, opened.create_repository("two").record, n)
    with esker.open_lake(url) as one, esker.open_lake(url) as other:
        yield one.engine, other.engine, one.repository("two").record


def counted(lakes: tuple[Lake, ...], repo: Repository, work: Callable[[], object]) -> TreeCounts:
    def total() -> TreeCounts:
        found = TreeCounts()
        for lake in lakes:
            past = lake.past(repo)
            assert isinstance(past, StoredPast)
            found = found + past.trees.counts()
        return found

    before = total()
    work()
    return total() - before


if __name__ == "__main__":
    sys.exit(main())
