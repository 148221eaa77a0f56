"""Algorithms over sorted rows: overlay, prefix deletes, comparison, and reading a stream of batches up to a key."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esker.streams.arrays import (
    Bools,
    Ints,
    after_prefix,
    bools,
    fixed_width,
    integers,
    lower_bound,
    lower_bounds,
    only_chunk,
)
from esker.streams.entries import CHANGES, IDENTITY, SCHEMA
from esker.streams.prefixes import minimal

DELTAS: Final = pa.schema(
    [
        *CHANGES,
        pa.field("was", pa.bool_(), nullable=False),
        *(SCHEMA.field(name).with_name(f"was_{name}") for name in SCHEMA.names if name != "path"),
    ]
)
"""Differences from left to right: right's row (a tombstone where right has none), whether left *was* there, and left's
row (empty where it was not). Without the `was` columns they are the changes that lead from left to right."""

_RUN_ROWS_MIN: Final = 64
"""Runs of rows at least so long, on average, are copied as runs; shorter ones row by row."""

_RUNS_MAX: Final = 12
"""Equal paths are found in so many runs faster than by hashing them all."""

_WINDOW_ROWS: Final = 256
"""Compared at once at first, and then four times as many."""

_NOWHERE: Final = np.empty(0, dtype=np.int64)

WHOLE_ROW: Final = tuple(name for name in SCHEMA.names if name != "path")


class Feed:
    """A stream of sorted batches, taken key by key. Batches must follow each other in order."""

    def __init__(self, batches: Iterable[pa.Table]) -> None:
        self._batches = iter(batches)
        self._batch: pa.Table | None = None
        self._at = 0

    def peek(self) -> str | None:
        """The next row's path; None at the end."""
        while self._batch is None or self._at >= self._batch.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                self._batch = None
                return None
            self._batch, self._at = batch.combine_chunks(), 0
        path: str = self._batch["path"][self._at].as_py()
        return path

    def through(self, last: str | None) -> Iterator[pa.Table]:
        """The next rows, up to and with path `last` (all of them for None), in pieces of the stream's own batches."""
        while (path := self.peek()) is not None and (last is None or path <= last):
            assert self._batch is not None
            stop = self._batch.num_rows
            paths = self._batch["path"].chunk(0)
            if last is not None and paths[stop - 1].as_py() > last:
                stop = lower_bound(paths, last + "\0", self._at)  # no text lies between `last` and `last` + NUL
            piece = self._batch.slice(self._at, stop - self._at)
            self._at = stop
            yield piece


def overlay(under: pa.Table, over: pa.Table) -> tuple[pa.Table, Ints]:
    """Entries with changes laid over them, and where each row came from: its index in `under`, or `under.num_rows` plus
    its index in `over`.
    """
    origin = _origin(under, over, ~bools(over["tombstone"]))
    return _gather(under, over.select(SCHEMA.names), origin), origin


class Changes(NamedTuple):
    """What one layer does, or several folded into one: `deletes` hide all that lies below under these prefixes, and the
    rows, sorted `CHANGES`, come on top."""

    rows: pa.Table
    deletes: tuple[str, ...] = ()

    def over(self, older: "Changes") -> "Changes":
        """Both as one, this on top. Tombstones stay, unless these deletes cover them: what is below is not known."""
        kept = outside(older.rows, self.deletes)
        under = older.rows if kept is None else older.rows.take(pa.array(kept))
        origin = _origin(under, self.rows, np.ones(self.rows.num_rows, dtype=bool))
        return Changes(_gather(under, self.rows, origin), minimal(self.deletes + older.deletes))


def _origin(under: pa.Table, over: pa.Table, live: Bools) -> Ints:
    """The rows of both in order of path, those of `over` in place of equal ones and left out unless live: indices in
    `under`, and behind them in `over`."""
    below, above = only_chunk(under["path"]), only_chunk(over["path"])
    n = len(below)
    at = lower_bounds(below, above)
    hit = np.zeros(len(above), dtype=bool)
    inside = at < n
    if inside.any():
        hit[inside] = bools(pc.equal(below.take(pa.array(at[inside])), above.filter(pa.array(inside))))
    replaced = np.zeros(n + 1, dtype=bool)
    replaced[at[hit]] = True
    origin = np.insert(np.arange(n, dtype=np.int64), at[live], n + np.flatnonzero(live))
    return origin[(origin >= n) | ~replaced[np.minimum(origin, n)]]


def _gather(first: pa.Table, second: pa.Table, places: Ints) -> pa.Table:
    """Rows of two tables, the second's counted behind the first's."""
    if len(places) == 0:
        return first.slice(0, 0)
    from_second = places >= first.num_rows
    starts = np.flatnonzero((np.diff(places) != 1) | (from_second[1:] != from_second[:-1])) + 1
    if len(starts) > len(places) // _RUN_ROWS_MIN:
        return pa.concat_tables([first, second]).combine_chunks().take(pa.array(places))
    runs = []
    for start, stop in pairwise([0, *starts.tolist(), len(places)]):
        table, offset = (second, first.num_rows) if from_second[start] else (first, 0)
        runs.append(table.slice(int(places[start]) - offset, stop - start))
    return pa.concat_tables(runs).combine_chunks()


def between(table: pa.Table, after: str | None, last: str) -> pa.Table:
    """The rows behind `after` (None: from the start), up to and with `last`."""
    paths = only_chunk(table["path"])
    start = 0 if after is None else lower_bound(paths, after + "\0")  # no text lies between `after` and `after` + NUL
    return table.slice(start, lower_bound(paths, last + "\0", start) - start)


def within(paths: pa.StringArray, prefix: str) -> slice:
    """Where the sorted paths begin with `prefix`."""
    end = after_prefix(prefix)
    start = lower_bound(paths, prefix)
    return slice(start, len(paths) if end is None else lower_bound(paths, end, start))


def outside(table: pa.Table, prefixes: Sequence[str]) -> Ints | None:
    """Which rows begin with none of the prefixes; None if all do not."""
    kept = np.ones(table.num_rows, dtype=bool)
    paths = only_chunk(table["path"])
    for prefix in prefixes:
        kept[within(paths, prefix)] = False
    return None if kept.all() else np.flatnonzero(kept)


def compare(left: pa.Table, right: pa.Table, columns: Sequence[str] = IDENTITY) -> pa.Table:
    """What differs between two sorted tables, as `DELTAS`."""
    runs = _runs(only_chunk(left["path"]), only_chunk(right["path"]))
    if runs is None:
        return _compare_anyhow(left, right, columns)
    added, removed = np.ones(right.num_rows, dtype=bool), np.ones(left.num_rows, dtype=bool)
    in_left, in_right = [_NOWHERE], [_NOWHERE]
    for i, j, n in runs:
        removed[i : i + n] = added[j : j + n] = False
        changed = np.flatnonzero(~_equal(left, right, slice(i, i + n), slice(j, j + n), columns))
        in_left.append(changed + i)
        in_right.append(changed + j)
    return _deltas(left, right, np.concatenate(in_left), np.concatenate(in_right), added, removed)


def _runs(left: pa.StringArray, right: pa.StringArray) -> list[tuple[int, int, int]] | None:
    """Runs of equal paths, as where they begin on both sides and how long they are: what comes between stands on one
    side only. None if they are many, or will be if it goes on as it began."""
    runs: list[tuple[int, int, int]] = []
    i = j = 0
    while i < len(left) and j < len(right):
        n = _equal_from(left, i, right, j)
        if n:
            runs.append((i, j, n))
            i, j = i + n, j + n
        elif left[i].as_py() < right[j].as_py():
            i = lower_bound(left, right[j].as_py(), i)
        else:
            j = lower_bound(right, left[i].as_py(), j)
        if len(runs) > 1 and len(runs) * len(left) > _RUNS_MAX * i:
            return None
    return runs


def _equal_from(left: pa.StringArray, i: int, right: pa.StringArray, j: int) -> int:
    """How many texts are equal from `i` and `j` on."""
    n, window = 0, _WINDOW_ROWS
    while size := min(window, len(left) - i - n, len(right) - j - n):
        same = bools(pc.equal(left.slice(i + n, size), right.slice(j + n, size)))
        if not same.all():
            return n + int(same.argmin())
        n, window = n + size, 4 * window
    return n


def _compare_anyhow(left: pa.Table, right: pa.Table, columns: Sequence[str]) -> pa.Table:
    """As `compare`, with paths that stand on one side only everywhere."""
    in_left, in_right = _matches(only_chunk(left["path"]), only_chunk(right["path"]))
    added = np.ones(right.num_rows, dtype=bool)
    added[in_right] = False
    removed = np.ones(left.num_rows, dtype=bool)
    removed[in_left] = False
    if len(in_left):
        changed = ~_equal(left, right, in_left, in_right, columns)
        in_left, in_right = in_left[changed], in_right[changed]
    return _deltas(left, right, in_left, in_right, added, removed)


def _matches(left: pa.StringArray, right: pa.StringArray) -> tuple[Ints, Ints]:
    """Where the same path stands on both sides."""
    if len(left) == len(right) and bools(pc.equal(left, right)).all():
        return np.arange(len(left)), np.arange(len(left))
    if not len(left) or not len(right):
        return _NOWHERE, _NOWHERE
    found = pc.index_in(right, value_set=left)
    in_right = np.flatnonzero(bools(pc.is_valid(found)))
    return found.drop_null().to_numpy().astype(np.int64), in_right


def _equal(
    left: pa.Table, right: pa.Table, in_left: Ints | slice, in_right: Ints | slice, columns: Sequence[str]
) -> Bools:
    """For each pair of rows, whether all these columns are equal."""
    found: Bools | None = None
    for name in columns:
        same = _equal_values(only_chunk(left[name]), only_chunk(right[name]), in_left, in_right)
        found = same if found is None else found & same
    assert found is not None
    return found


def _equal_values(left: pa.Array, right: pa.Array, in_left: Ints | slice, in_right: Ints | slice) -> Bools:
    if isinstance(in_left, slice) or isinstance(in_right, slice):
        return bools(pc.equal(left[in_left], right[in_right]))
    if not pa.types.is_string(left.type):
        numbers: Bools = integers(left)[in_left] == integers(right)[in_right]
        return numbers
    ones, others = fixed_width(left), fixed_width(right)
    if ones is None or others is None:
        return bools(pc.equal(left.take(pa.array(in_left)), right.take(pa.array(in_right))))
    if ones.shape[1] != others.shape[1]:
        return np.zeros(len(in_left), dtype=bool)
    same = np.ones(len(in_left), dtype=bool)
    if (ones == others[0]).all() and (others == others[0]).all():  # as content types mostly are
        return same
    equal = ones.take(in_left, axis=0) == others.take(in_right, axis=0)
    for word in equal.T:
        same &= word
    return same


def _deltas(left: pa.Table, right: pa.Table, in_left: Ints, in_right: Ints, added: Bools, removed: Bools) -> pa.Table:
    """`DELTAS` of rows that stand on both sides, by their places, and of those that stand on one."""
    added_at, removed_at = np.flatnonzero(added), np.flatnonzero(removed)
    in_left = np.concatenate([in_left, np.full(len(added_at), -1), removed_at])
    in_right = np.concatenate([in_right, added_at, np.full(len(removed_at), -1)])
    here, was = pa.array(in_right, mask=in_right < 0), pa.array(in_left, mask=in_left < 0)
    paths = pc.coalesce(only_chunk(right["path"]).take(here), only_chunk(left["path"]).take(was))
    order = pc.sort_indices(paths)
    here, was = here.take(order), was.take(order)
    new = _taken(right.select(WHOLE_ROW), here)
    old = _taken(left.select(WHOLE_ROW), was)
    return pa.table([paths.take(order), *new, here.is_null(), was.is_valid(), *old], schema=DELTAS)


def _taken(table: pa.Table, places: pa.Array) -> list[pa.ChunkedArray]:
    """The columns of these rows, empty where there is no place."""
    columns: list[pa.ChunkedArray] = table.take(places).columns
    if places.null_count:
        columns = [pc.fill_null(column, _EMPTY[column.type]) for column in columns]
    return columns


_EMPTY: Final = {
    pa.string(): pa.scalar(""),
    pa.int64(): pa.scalar(0, pa.int64()),
    SCHEMA.field("mtime").type: pa.scalar(0, SCHEMA.field("mtime").type),
}
