"""Histories to test on: drawn, braided, and the same in git."""

import random
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hypothesis import strategies as st

from esker.model import Commit, CommitID, FileName
from esker.refs import commits

Parents = Sequence[int]
"""Of a commit, as places in the history before it."""


class Dag:
    """A history in memory, oldest first, which counts what is read of it."""

    def __init__(self, shape: Iterable[Parents], dates: Sequence[int] | None = None) -> None:
        self.names: list[CommitID] = []
        self.reads: Counter[CommitID] = Counter()
        self.commits: dict[CommitID, Commit] = {}
        for at, places in enumerate(shape):
            parents = tuple(self.names[place] for place in places)
            commit = Commit(
                tree=FileName("tree"),
                parents=parents,
                committer="somebody",
                message=f"commit {at}",
                date_ms=1000 * (dates[at] if dates else at),
                generation=1 + max((self.commits[parent].generation for parent in parents), default=0),
                nonce=str(at),
            )
            name = commits.commit_id(commit)
            self.names.append(name)
            self.commits[name] = commit

    def get(self, name: CommitID) -> Commit:
        self.reads[name] += 1
        return self.commits[name]

    def ancestors(self, name: CommitID) -> set[CommitID]:
        """By definition: itself, and its parents' ancestors."""
        found = {name}
        waiting = [name]
        while waiting:
            fresh = set(self.commits[waiting.pop()].parents) - found
            found |= fresh
            waiting += fresh
        return found

    def merge_bases(self, one: CommitID, other: CommitID) -> set[CommitID]:
        """By definition: common ancestors that are ancestors of no other."""
        common = self.ancestors(one) & self.ancestors(other)
        return {name for name in common if not any(name in self.ancestors(c) for c in common - {name})}


@st.composite
def dags(draw: st.DrawFn) -> Dag:
    """Up to 25 commits with up to three parents each, mostly recent ones; several roots; dates in no order."""
    shape: list[list[int]] = []
    for at in range(draw(st.integers(1, 25))):
        back = st.integers(1, min(at, 4) or 1) | st.integers(1, at or 1)
        shape.append([at - n for n in draw(st.lists(back, max_size=3 if at else 0, unique=True))])
    return Dag(shape, draw(st.lists(st.integers(0, 5), min_size=len(shape), max_size=len(shape))))


def braid(n: int, lanes: int, seed: int) -> Iterator[list[int]]:
    """The shape of `n` commits, on so many lanes in turn from one root; every fourth merges another lane."""
    chance = random.Random(seed)
    tips = [0] * lanes
    yield []
    for at in range(1, n):
        lane = at % lanes
        merged = chance.choice(tips) if chance.random() < 0.25 else tips[lane]
        yield [tips[lane]] if merged == tips[lane] else [tips[lane], merged]
        tips[lane] = at


def in_git(dag: Dag, directory: Path) -> dict[CommitID, str]:
    """The same history in a bare repository with a commit-graph: git's names for its commits."""
    marks = {name: at for at, name in enumerate(dag.commits, 1)}
    lines = []
    for name, commit in dag.commits.items():
        lines.append("reset refs/heads/all\n")  # or a root would continue the commit before it
        lines.append(f"commit refs/heads/all\nmark :{marks[name]}")
        lines.append(
            f"committer a <a@b> {1_600_000_000 + commit.date_ms // 1000} +0000\ndata <<END\n{commit.nonce}\nEND"
        )
        lines += [f"{word} :{marks[p]}" for word, p in zip(["from", *["merge"] * 9], commit.parents, strict=False)]
    git(directory, "init", "--quiet", "--bare")
    git(directory, "fast-import", "--quiet", "--export-marks=marks", stdin="\n".join([*lines, ""]))
    ids = dict(line.split() for line in (directory / "marks").read_text().splitlines())
    git(directory, "commit-graph", "write", "--stdin-commits", stdin="\n".join(ids.values()))
    return {name: ids[f":{mark}"] for name, mark in marks.items()}


def git(directory: Path, *arguments: str, stdin: str = "") -> list[str]:
    """The lines that git prints; none if it says no."""
    done = subprocess.run(["git", "-C", directory, *arguments], input=stdin, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.split()
