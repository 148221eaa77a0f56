"""Writing a tree: rows and whole ranges in order of path, cut where `cutting` says, whatever road they came by.

The invariant that makes trees history-independent: boundaries depend on nothing but the rows since the last boundary.
So a range of an older tree may be kept, unopened, exactly when no rows are pending before it; else its rows are written
like others, until one of its ends is a boundary again. The last range of a tree may end by the end of input instead of
a cut: when more follows it, it is opened too.
"""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from esker.format.files import RANGES
from esker.model import Digest, FileName
from esker.streams.arrays import Bools, only_chunk
from esker.tree.cutting import row_bytes
from esker.tree.trees import Metarange, RangeInfo, Trees

_REMEMBERED_MAX: Final = 16
"""So many ranges of a tree made from others are cached as they are written. More would push out what is read."""


@dataclass
class _Kept:
    """Ranges `start` to `stop` of a tree, taken over as they are."""

    meta: Metarange
    start: int
    stop: int


class Writer:
    """One tree being written. `reads` are the trees that the operation reads from: a range that equals one of theirs is
    not stored again, since its file cannot be collected while they are reachable.
    """

    def __init__(self, trees: Trees, reads: Sequence[Metarange] = ()) -> None:
        self._trees = trees
        self._reads = reads
        self._pieces: list[_Kept | Future[RangeInfo]] = []
        self._unwritten: deque[Future[RangeInfo]] = deque()
        self._cuts = 0
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0

    def keep(self, meta: Metarange, start: int, stop: int) -> None:
        """Ranges `start` to `stop` of another tree, cut by the same rules."""
        while start < stop and self._open_ended():
            self.rows(self._trees.rows(meta.info(start)).table)
            start += 1
        if start < stop:
            self._pieces.append(_Kept(meta, start, stop))

    def rows(self, table: pa.Table, hash_cuts: Bools | None = None) -> None:
        """More entries. `hash_cuts` tells after which of them the hash cuts, where the caller knows already."""
        if table.num_rows == 0:
            return
        if self._open_ended():
            self._open_last_kept()
        cutting = self._trees.cutting
        if hash_cuts is None:
            hash_cuts = cutting.cuts_after(only_chunk(table["path"]))
        ends_by_hash = np.flatnonzero(hash_cuts) + 1
        sizes = np.concatenate([[0], np.cumsum(row_bytes(table))])
        start = 0
        while start < table.num_rows:
            at = int(np.searchsorted(ends_by_hash, start, side="right"))
            by_hash = int(ends_by_hash[at]) if at < len(ends_by_hash) else table.num_rows + 1
            by_count = start + cutting.entries_max - self._pending_rows
            by_bytes = int(np.searchsorted(sizes, sizes[start] + cutting.bytes_max - self._pending_bytes))
            stop = max(start + 1, min(by_hash, by_count, by_bytes))
            self._add(table.slice(start, stop - start), int(sizes[min(stop, table.num_rows)] - sizes[start]))
            if stop <= table.num_rows:
                self._cut()
            start = stop

    def at_boundary(self) -> bool:
        """Whether what comes next starts a range."""
        return not self._open_ended()

    def take(self, ranges: "list[Future[RangeInfo]]") -> None:
        """Ranges that another writer has written, which begin here and end at a boundary."""
        assert self.at_boundary()
        self._pieces += ranges

    def mark(self) -> int | None:
        """Where it stands now, to ask `written_since`."""
        return len(self._pieces) if self.at_boundary() else None

    def written_since(self, mark: int | None) -> "list[Future[RangeInfo]] | None":
        """The ranges written since, if nothing but whole ranges was, from a boundary to a boundary."""
        if mark is None or self._pending:
            return None
        written = [piece for piece in self._pieces[mark:] if not isinstance(piece, _Kept)]
        return written if len(written) == len(self._pieces) - mark else None

    def finish(self) -> FileName:
        """Write what is pending, and the metarange: the name of the tree."""
        if self._pending:
            self._cut()
        tables: list[pa.Table] = []
        written: list[RangeInfo] = []

        def flush() -> None:
            if written:
                tables.append(pa.Table.from_pylist(list(map(msgspec.structs.asdict, written)), schema=RANGES))
                written.clear()

        for piece in self._pieces:
            if isinstance(piece, _Kept):
                flush()
                tables.append(piece.meta.table.slice(piece.start, piece.stop - piece.start))
            else:
                written.append(piece.result())
        flush()
        table = pa.concat_tables([RANGES.empty_table(), *tables]).combine_chunks()
        return self._trees.write_metarange(table, self._known_tree)

    def _open_ended(self) -> bool:
        """Whether what was written does not end in a boundary, so that what follows belongs to its last range."""
        if self._pending:
            return True
        if not self._pieces or not isinstance(self._pieces[-1], _Kept):
            return False
        kept = self._pieces[-1]
        if kept.stop < len(kept.meta):
            return False  # followed by another range in its own tree
        last = kept.meta.info(kept.stop - 1)
        cutting = self._trees.cutting
        return not (cutting.is_full(last.count, last.bytes) or cutting.cuts_after(pa.array([last.max]))[0])

    def _open_last_kept(self) -> None:
        if self._pending:
            return
        kept = self._pieces.pop()
        assert isinstance(kept, _Kept)
        if kept.start < kept.stop - 1:
            self._pieces.append(_Kept(kept.meta, kept.start, kept.stop - 1))
        info = kept.meta.info(kept.stop - 1)
        self._add(self._trees.rows(info).table, info.bytes)

    def _add(self, table: pa.Table, size: int) -> None:
        self._pending.append(table)
        self._pending_rows += table.num_rows
        self._pending_bytes += size

    def _cut(self) -> None:
        remember = bool(self._reads) and self._cuts < _REMEMBERED_MAX
        self._cuts += 1
        future = self._trees.write_range(self._pending, self._known_range, remember=remember)
        self._pieces.append(future)
        self._unwritten.append(future)
        if len(self._unwritten) > self._trees.ahead:
            self._unwritten.popleft().result()  # holds back a fast reader, and fails soon where the store does
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0

    def _known_range(self, content: Digest, last: str) -> FileName | None:
        return next((name for meta in self._reads if (name := meta.same_range(content, last))), None)

    def _known_tree(self, content: Digest) -> FileName | None:
        return next((meta.name for meta in self._reads if meta.id == content), None)
