"""What a repository's DataFrames hold: planned where refs can be read, and read where files can.

A table is planned into parts. A part is small, or holds rows that only the planner could read; it is read by whoever
gets it, from the repository's files alone.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import branches as branch_verbs
from esker.engine import repositories, spans
from esker.engine.lake import Lake
from esker.engine.log import log
from esker.engine.refs import commit_of, resolve
from esker.engine.spans import Span
from esker.errors import InvalidError, Kind
from esker.format.names import digest_of
from esker.model import CommitID, FileName, Repository
from esker.refs import tags
from esker.spark.stores import Place
from esker.streams.arrays import bools
from esker.streams.entries import SCHEMA
from esker.streams.rows import WHOLE_ROW
from esker.tree.diff import diff

_TIME: Final = pa.timestamp("us", tz="UTC")
"""As Spark has it."""

_ROWS: Final = 10_000
"""Of a part that the planner read."""

_ENTRY: Final = [pa.field(field.name, _TIME if field.name == "mtime" else field.type) for field in SCHEMA]

SCHEMAS: Final = {
    "entries": pa.schema(_ENTRY),
    "diff": pa.schema(
        [pa.field("kind", pa.string()), *_ENTRY, *(field.with_name(f"was_{field.name}") for field in _ENTRY[1:])]
    ),
    "log": pa.schema(
        [
            ("commit", pa.string()),
            ("parents", pa.list_(pa.string())),
            ("committer", pa.string()),
            ("message", pa.string()),
            ("date", _TIME),
            ("metadata", pa.map_(pa.string(), pa.string())),
            ("generation", pa.int64()),
            ("tree", pa.string()),
        ]
    ),
    "refs": pa.schema(
        [
            ("name", pa.string()),
            ("kind", pa.string()),
            ("commit", pa.string()),
            ("hidden", pa.bool_()),
            ("clean", pa.bool_()),
        ]
    ),
    "layers": pa.schema(
        [
            ("branch", pa.string()),
            ("place", pa.int64()),
            ("level", pa.string()),
            ("id", pa.string()),
            ("rows", pa.int64()),
            ("more", pa.bool_()),
            ("tombstones", pa.int64()),
            ("bytes", pa.int64()),
            ("files", pa.int64()),
            ("deletes", pa.int64()),
            ("made", _TIME),
        ]
    ),
}
"""By the names of the tables. What of an entry is not there (after a removal, before an addition) is null in a diff."""


@dataclass(frozen=True)
class Asked:
    """Which table, of what, and which paths of it: from `start` on and before `stop`."""

    table: str
    repository: str
    ref: str = ""
    left: str = ""
    right: str = ""
    start: str = ""
    stop: str | None = None

    def within(self, start: str, stop: str | None) -> "Asked":
        """Of its paths, only these."""
        ends = [end for end in (self.stop, stop) if end is not None]
        return replace(self, start=max(self.start, start), stop=min(ends, default=None))


class Shown(NamedTuple):
    """Entries of a ref."""

    place: Place
    span: Span

    def read(self) -> Iterator[pa.Table]:
        yield from self.span.read(self.place.trees())


class Changed(NamedTuple):
    """What differs between two trees."""

    place: Place
    left: FileName
    right: FileName
    start: str
    stop: str | None

    def read(self) -> Iterator[pa.Table]:
        yield from map(_as_diff, diff(self.place.trees(), self.left, self.right, start=self.start, stop=self.stop))


class Rows(NamedTuple):
    """Rows that the planner read."""

    table: pa.Table | None

    def read(self) -> Iterator[pa.Table]:
        if self.table is not None:
            yield self.table


Part = Shown | Changed | Rows

NOTHING: Final = Rows(None)
"""Spark wants a part, also of an empty table."""


def check(lake: Lake, asked: Asked) -> None:
    """NotFoundError unless the repository and the refs are there."""
    repo = repositories.get(lake, asked.repository)
    for ref in filter(None, (asked.ref, asked.left, asked.right)):
        if asked.table == "layers":
            lake.branches(repo).get(ref)
        else:
            resolve(lake, repo, ref)


def plan(lake: Lake, asked: Asked) -> list[Part]:
    """The parts of a table, as it is now."""
    repo = repositories.get(lake, asked.repository)
    return _PLANS[asked.table](lake, repo, asked)


def read(asked: Asked, part: Part) -> Iterator[pa.RecordBatch]:
    """The rows of a part."""
    for table in part.read():
        yield from table.cast(SCHEMAS[asked.table]).to_batches()


def _entries(lake: Lake, repo: Repository, asked: Asked) -> list[Part]:
    place = Place.of(repo)
    planned = spans.plan(lake, repo, asked.ref or repo.default_branch, start=asked.start, stop=asked.stop)
    return [Shown(place, span) for span in planned]


def _diff(lake: Lake, repo: Repository, asked: Asked) -> list[Part]:
    place, trees = Place.of(repo), spans.trees_of(lake, repo)
    left, right = (lake.commits(repo).get(commit_of(lake, repo, ref)).tree for ref in (asked.left, asked.right))
    stretches = spans.differing(trees, left, right, asked.start, asked.stop)
    return [Changed(place, left, right, start, stop) for start, stop in stretches]


def _as_diff(deltas: pa.Table) -> pa.Table:
    gone, was = bools(deltas["tombstone"]), bools(deltas["was"])
    kind = np.where(gone, "removed", np.where(was, "changed", "added"))
    columns = [pa.array(kind, pa.string()), deltas["path"]]
    for side, missing in (("", gone), ("was_", ~was)):
        nothing = pa.array(missing)
        columns += [_without(deltas[f"{side}{name}"], nothing) for name in WHOLE_ROW]
    names = ["kind", "path", *WHOLE_ROW, *(f"was_{name}" for name in WHOLE_ROW)]
    return pa.table(columns, names=names)


def _without(column: pa.ChunkedArray, nothing: pa.Array) -> pa.ChunkedArray:
    return pc.if_else(nothing, pa.scalar(None, column.type), column)


def _log(lake: Lake, repo: Repository, asked: Asked) -> list[Part]:
    def rows() -> Iterator[tuple[Any, ...]]:
        after: CommitID | None = None
        while True:
            page = log(lake, repo, asked.ref or repo.default_branch, after=after)
            for name, commit in page.items:
                yield (
                    name,
                    commit.parents,
                    commit.committer,
                    commit.message,
                    commit.date_ms * 1000,
                    list(commit.metadata.items()),
                    commit.generation,
                    digest_of(commit.tree),
                )
            if page.next is None:
                return
            after = page.next

    return _parts("log", rows())


def _refs(lake: Lake, repo: Repository, asked: Asked) -> list[Part]:
    def rows() -> Iterator[tuple[Any, ...]]:
        for name, record in branch_verbs.every(lake, repo, hidden=True):
            yield name, "branch", record.commit, record.hidden, record.clean
        for name, tag in tags.every(lake.kv, repo.uid):
            yield name, "tag", tag.commit, False, True

    return _parts("refs", rows())


def _layers(lake: Lake, repo: Repository, asked: Asked) -> list[Part]:
    def rows() -> Iterator[tuple[Any, ...]]:
        names = [asked.ref] if asked.ref else [name for name, _ in branch_verbs.every(lake, repo, hidden=True)]
        for name in names:
            for place, layer in enumerate(branch_verbs.staged(lake, repo, name).layers):
                told = msgspec.structs.asdict(layer)
                made_ms = told.pop("made_ms")
                yield name, place, *(told[field] for field in _LAYER), made_ms * 1000 if made_ms else None

    return _parts("layers", rows())


_LAYER: Final = ("level", "id", "rows", "more", "tombstones", "bytes", "files", "deletes")


def _parts(table: str, rows: Iterable[tuple[Any, ...]]) -> list[Part]:
    schema = SCHEMAS[table]
    known = list(rows)
    return [
        Rows(
            pa.table(
                [
                    pa.array(column, field.type)
                    for column, field in zip(zip(*known[at : at + _ROWS], strict=True), schema, strict=True)
                ],
                schema=schema,
            )
        )
        for at in range(0, len(known), _ROWS)
    ]


_PLANS: Final[dict[str, Callable[[Lake, Repository, Asked], list[Part]]]] = {
    "entries": _entries,
    "diff": _diff,
    "log": _log,
    "refs": _refs,
    "layers": _layers,
}


def asked_of(options: dict[str, str]) -> Asked:
    """From the options of a read. InvalidError names what is wrong."""
    table = options.get("table", "entries")
    if table not in SCHEMAS:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"no table {table!r}: write one of {', '.join(SCHEMAS)}")
    repository, ref, prefix = options.get("repository", ""), options.get("ref", ""), options.get("prefix", "")
    if "path" in options:  # as in `load("sales/main/orders/")`
        repository, _, rest = options["path"].removeprefix("lakefs://").removeprefix("esker://").partition("/")
        ref, _, prefix = rest.partition("/")
    if not repository:
        raise InvalidError(Kind.INVALID_ARGUMENT, "which repository? Say .option('repository', ...)")
    left, right = options.get("left", ""), options.get("right", "")
    if table == "diff" and not (left and right):
        raise InvalidError(Kind.INVALID_ARGUMENT, "a diff has two refs: say .option('left', ...) and 'right'")
    start, stop = spans.bounds(prefix)
    return Asked(table, repository, ref, left, right, start, stop)
