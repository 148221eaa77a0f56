"""Trees built in pieces, by several processes at once, and put together by one.

A piece is a run of sorted entries. Since a hash cut is always a cut, all ranges between a piece's first hash cut and
its last are what they would be in the whole tree, whatever lies beside the piece: who has the piece writes them. What
is before and after, its head and tail, is cut where the pieces meet. So a tree of pieces has the id of one built at
once, and whoever puts them together sees a few thousand entries of each, however large it is.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from esker.errors import InvalidError, Kind
from esker.model import FileName
from esker.streams.arrays import after_prefix, lower_bound, only_chunk
from esker.streams.entries import NO_ENTRIES, check
from esker.tree.trees import Metarange, RangeInfo, Trees
from esker.tree.writer import Writer


class Piece(NamedTuple):
    """Entries, sorted: the first of them, up to a hash cut; those whose ranges are written; and what follows the last
    hash cut."""

    head: pa.Table
    ranges: Sequence[RangeInfo]
    tail: pa.Table

    @property
    def rows(self) -> int:
        count: int = self.head.num_rows + self.tail.num_rows
        return count + sum(info.count for info in self.ranges)

    def ends(self) -> tuple[str, str] | None:
        """Its first path and its last; None if it is empty."""
        firsts = [table["path"][0].as_py() for table in (self.head, self.tail) if table.num_rows]
        lasts = [table["path"][-1].as_py() for table in (self.head, self.tail) if table.num_rows]
        firsts += [info.min for info in self.ranges[:1]]
        lasts += [info.max for info in self.ranges[-1:]]
        return (min(firsts), max(lasts)) if firsts else None


def write(trees: Trees, batches: Iterable[pa.Table], reads: Sequence[FileName] = ()) -> Piece:
    """A piece of entries that are sorted by path within and across batches; else InvalidError naming the row. Ranges
    that one of the trees in `reads` has are not stored again."""
    head: list[pa.Table] = [NO_ENTRIES]
    tail: list[pa.Table] = []
    writer: Writer | None = None
    for table in _in_order(batches):
        ends = trees.cutting.cuts_after(only_chunk(table["path"]))
        cuts = np.flatnonzero(ends) + 1
        start = 0
        if writer is None:
            start = int(cuts[0]) if len(cuts) else table.num_rows
            head.append(table.slice(0, start))
            if not len(cuts):
                continue
            writer = Writer(trees, [trees.metarange(tree) for tree in reads])
        stop = int(cuts[-1]) if len(cuts) else 0
        if stop > start:
            for rows in tail:
                writer.rows(rows, np.zeros(rows.num_rows, dtype=bool))
            writer.rows(table.slice(start, stop - start), ends[start:stop])
            tail, start = [], stop
        tail.append(table.slice(start))
    written = writer.written_since(0) if writer else []
    assert written is not None, "it began and ended at hash cuts"
    return Piece(_whole(head), [future.result() for future in written], _whole([NO_ENTRIES, *tail]))


def replace(trees: Trees, base: FileName, regions: Iterable[tuple[str, Iterable[Piece]]]) -> FileName:
    """The tree of `base` with other content under some prefixes: of each, sorted and none of them within another, the
    pieces in order."""
    old = _Old(trees, trees.metarange(base))
    last = ""
    for prefix, pieces in regions:
        old.copy(prefix)
        for piece in pieces:
            ends = piece.ends()
            if ends is None:
                continue
            if not last < ends[0] or not ends[0].startswith(prefix) or not ends[1].startswith(prefix):
                raise InvalidError(Kind.INVALID_BATCH, f"{ends[0]!r} comes after {last!r}, or is not below {prefix!r}")
            last = ends[1]
            old.writer.rows(piece.head)
            if piece.ranges:
                old.writer.take([_done(old.known(info)) for info in piece.ranges])
            old.writer.rows(piece.tail)
        old.skip(after_prefix(prefix))
    old.copy(None)
    return old.writer.finish()


class _Old:
    """A tree, read in order of path while a new one is written."""

    def __init__(self, trees: Trees, meta: Metarange) -> None:
        self.writer = Writer(trees, [meta])
        self._trees = trees
        self._meta = meta
        self._at = 0
        self._rows = NO_ENTRIES
        """What is left of the range before `_at`, where that was opened."""

    def copy(self, stop: str | None) -> None:
        """Take over what comes before `stop`."""
        self._take(stop)
        if self._rows.num_rows:
            return
        end = len(self._meta) if stop is None else max(self._at, self._meta.find(stop))
        self.writer.keep(self._meta, self._at, end)
        self._at = end
        if self._open(stop):
            self._take(stop)

    def skip(self, stop: str | None) -> None:
        """Leave out what comes before `stop`."""
        self._rows = self._rows.slice(_before(self._rows, stop))
        if self._rows.num_rows:
            return
        self._at = len(self._meta) if stop is None else max(self._at, self._meta.find(stop))
        if self._open(stop):
            self._rows = self._rows.slice(_before(self._rows, stop))

    def known(self, info: RangeInfo) -> RangeInfo:
        """The range, as the old tree has it if it does: then that file is named, and the new one is garbage."""
        name = self._meta.same_range(info.id, info.max)
        return info if name is None else msgspec.structs.replace(info, name=name)

    def _take(self, stop: str | None) -> None:
        count = _before(self._rows, stop)
        self.writer.rows(self._rows.slice(0, count))
        self._rows = self._rows.slice(count)

    def _open(self, stop: str | None) -> bool:
        """Open the next range if it begins before `stop`."""
        if stop is None or self._at == len(self._meta) or self._meta.mins[self._at] >= stop:
            return False
        self._rows = self._trees.rows(self._meta.info(self._at)).table
        self._at += 1
        return True


def _before(rows: pa.Table, stop: str | None) -> int:
    """How many of the sorted rows come before `stop`."""
    return rows.num_rows if stop is None else lower_bound(only_chunk(rows["path"]), stop)


def _in_order(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    last = ""
    for batch in batches:
        table = check(batch)
        if not table.num_rows:
            continue
        first = table["path"][0].as_py()
        if first <= last:
            raise InvalidError(
                Kind.INVALID_BATCH, f"{first!r} comes after {last!r}: entries must be sorted, each path once"
            )
        last = table["path"][-1].as_py()
        yield table


def _whole(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def _done(info: RangeInfo) -> "Future[RangeInfo]":
    done: Future[RangeInfo] = Future()
    done.set_result(info)
    return done
