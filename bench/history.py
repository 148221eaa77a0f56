"""Merge bases in 10,000 commits: esker on SQLite against `git merge-base` with a commit-graph, on the same histories.

`python -m bench.history [--quick]`

git's time is that of a whole process, since that is how git is asked; what of it is starting up (`git merge-base X X`)
is printed, and so is the ratio without it. esker is asked inside of a process. *Warm*, which is what the promise is
about, is with the commits in its cache, as a server has them. *Cold* is with an empty cache: a record is read for each
commit, where git maps one file with the whole graph in it, so a walk through everything then takes many times as long.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench._report import Report, seconds
from esker.model import CommitID
from esker.refs import commits, history
from esker.stores.kv import items
from esker.stores.kv_memory import MemoryKV
from esker.stores.kv_sqlite import SQLiteKV
from tests.refs.dags import Dag, braid, git, in_git

ROOT: Final = Path(__file__).parents[1]
COMMITS: Final = 10_000
LANES: Final = 4
RATIO: Final = 2.0
UID: Final = "bench"


def main(arguments: list[str]) -> int:
    """How many promises were not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    repeat = 5 if parser.parse_args(arguments).quick else 20
    report = Report()
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / "build") as directory:
        _braided(report, Path(directory) / "braid", repeat)
        _apart(report, Path(directory) / "apart", repeat)
    return report.missed


def _braided(report: Report, directory: Path, repeat: int) -> None:
    """Lanes that keep merging each other, and a branch that left them near the root."""
    stale = COMMITS - 10
    shape = [*braid(stale, LANES, seed=1), [40], *([at] for at in range(stale, COMMITS - 1))]
    stores = _Stores(Dag(shape), directory)
    one, other, left = (stores.dag.names[at] for at in (stale - 1, stale - 2, COMMITS - 1))
    _compare(report, stores, "tips of two lanes", one, other, repeat)
    _compare(report, stores, "a tip and a branch left behind", one, left, repeat)
    cold = seconds(lambda: history.log(commits.Commits(stores.kv, UID).get, one, amount=100), repeat)[0]
    report.note("a page of 100 commits of the log, cold", f"{1e3 * cold:.2f} ms")
    stores.kv.close()


def _apart(report: Report, directory: Path, repeat: int) -> None:
    """Two braids that never met after the root."""
    half = COMMITS // 2
    left, (_, *right) = braid(half, LANES, seed=2), braid(half, LANES, seed=3)
    moved = [[place and place + half - 1 for place in parents] for parents in right]
    stores = _Stores(Dag([*left, *moved]), directory)
    _compare(report, stores, "two halves that never met", stores.dag.names[half - 1], stores.dag.names[-1], repeat)
    stores.kv.close()


class _Stores:
    """One history in SQLite and in git."""

    def __init__(self, dag: Dag, directory: Path) -> None:
        directory.mkdir()
        self.dag = dag
        self.directory = directory / "git"
        self.directory.mkdir()
        self.git_names = in_git(dag, self.directory)
        memory = MemoryKV()
        for commit in dag.commits.values():
            commits.put(memory, UID, commit)
        self.kv = SQLiteKV(directory / "kv.db")
        self.kv.put_many(f"commits/{UID}", [(key, record.value) for key, record in items(memory, f"commits/{UID}")])

    def git_base(self, one: CommitID, other: CommitID) -> list[str]:
        return git(self.directory, "merge-base", self.git_names[one], self.git_names[other])


def _compare(report: Report, stores: _Stores, what: str, one: CommitID, other: CommitID, repeat: int) -> None:
    git_s, found = seconds(lambda: stores.git_base(one, other), repeat)
    start_s, _ = seconds(lambda: stores.git_base(one, one), repeat)
    cold_s, base = seconds(lambda: history.merge_base(commits.Commits(stores.kv, UID).get, one, other), repeat)
    warm = commits.Commits(stores.kv, UID)
    history.merge_base(warm.get, one, other)
    before = sum(stores.dag.reads.values())
    assert base == history.merge_base(stores.dag.get, one, other)
    assert base is not None
    assert stores.git_names[base] in git(
        stores.directory, "merge-base", "--all", stores.git_names[one], stores.git_names[other]
    )
    assert found
    reads = sum(stores.dag.reads.values()) - before
    warm_s, _ = seconds(lambda: history.merge_base(warm.get, one, other), repeat)
    report.note(f"{what}: commits read", f"{reads:,}")
    report.note(f"{what}: git", f"{1e3 * git_s:.2f} ms, of which starting up {1e3 * start_s:.2f} ms")
    report.note(f"{what}: esker, cold", f"{1e3 * cold_s:.2f} ms, {cold_s / git_s:.2f} x git")
    more_s = git_s - start_s
    bare = f", {warm_s / more_s:.2g} x without git's starting up" if more_s > 0.1 * git_s else ""
    report.at_most(f"{what}: warm against git", warm_s / git_s, RATIO, note=f"{1e3 * warm_s:.2f} ms{bare}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
