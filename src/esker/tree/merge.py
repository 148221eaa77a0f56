"""Three-way merge: what changed from base to source, decided key by key against the destination.

For each path whose row differs between base and source (deleted is a value like others):

    the destination's row is the base's           the source's row
    the source's content is the base's            the destination's row
    the destination's content is the base's       the source's row
    both have the same content                    the destination's row
    else                                          a conflict, or the side that the strategy names

All other paths keep the destination's row. Only ranges are opened in which base and source differ, and those of the
destination into which these differences fall. A destination that still is the base takes the source's tree unread, and
the rules above give the same tree.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esker.model import Digest, FileName
from esker.streams.arrays import Bools, bools, lower_bounds, only_chunk
from esker.streams.entries import CHANGES, IDENTITY
from esker.streams.rows import WHOLE_ROW
from esker.tree import rewrite
from esker.tree.diff import diff
from esker.tree.rewrite import Decision, Done
from esker.tree.trees import Trees

_REMEMBERED_ROWS_MAX: Final = 1_000_000
"""About half a gigabyte. A larger merge reads its differences again when it is tried again."""


class Strategy(StrEnum):
    """What decides where both sides changed."""

    NONE = ""
    SOURCE_WINS = "source-wins"
    DEST_WINS = "dest-wins"


class Merged(NamedTuple):
    tree: FileName | None
    """None if there are conflicts."""
    conflicts: list[str]
    """All paths, in order."""


class Memo:
    """What merging one source has worked out so far, for merging it again when the destination has moved.

    A merge is a pure function of trees, and trees are named by content; so what was done for a range stands as long as
    the range does, whatever happened elsewhere in the destination, and the result is that of a merge from scratch.
    """

    def __init__(self, known: Sequence[FileName] = ()) -> None:
        self.known = list(known)
        """Results of earlier tries: whatever they hold is not stored again."""
        self.of: tuple[Digest, Digest, Strategy] | None = None
        self.deltas: list[pa.Table] | None = None
        """What leads from base to source, if it is not too much to remember."""
        self.done: Done = {}

    def start(self, base: Digest, source: Digest, strategy: Strategy) -> None:
        """Forget the work if it is not of this very merge."""
        if self.of != (base, source, strategy):
            self.of, self.deltas, self.done = (base, source, strategy), None, {}

    def remembered(self, deltas: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The same, kept for the next time as they pass."""
        kept: list[pa.Table] = []
        rows = 0
        for batch in deltas:
            rows += batch.num_rows
            if rows <= _REMEMBERED_ROWS_MAX:
                kept.append(batch)
            yield batch
        if rows <= _REMEMBERED_ROWS_MAX:
            self.deltas = kept


def merge(
    trees: Trees,
    base: FileName,
    source: FileName,
    dest: FileName,
    strategy: Strategy = Strategy.NONE,
    memo: Memo | None = None,
) -> Merged:
    """The destination with what the source changed since the base."""
    ids = [trees.metarange(name).id for name in (base, source, dest)]
    if ids[1] == ids[0] or ids[1] == ids[2]:
        return Merged(dest, [])
    if ids[2] == ids[0]:
        return Merged(source, [])
    memo = memo or Memo()
    deltas = _leading(trees, base, source, strategy, memo)
    reads = (base, source, *(name for name in memo.known[-1:] if trees.has(name)))
    merged = Merged(*rewrite.rewrite(trees, dest, deltas, partial(_decide, strategy), also_reads=reads, done=memo.done))
    if merged.tree:
        memo.known.append(merged.tree)
    return merged


def merge_ahead(
    trees: Trees,
    base: FileName,
    source: FileName,
    dest: FileName,
    strategy: Strategy,
    memo: Memo,
    is_mine: Callable[[Digest], bool],
) -> None:
    """Work out for the memo what merging comes to, in those ranges of the destination that are `is_mine`."""
    if trees.metarange(dest).id in (trees.metarange(base).id, trees.metarange(source).id):
        return
    deltas = _leading(trees, base, source, strategy, memo)
    try:
        with trees.writing_behind():
            decide = partial(_decide, strategy)
            rewrite.ahead(trees, dest, deltas, decide, memo.done, is_mine, also_reads=(base, source))
    except BaseException:
        memo.done.clear()  # it is not known what was stored
        raise


def _leading(trees: Trees, base: FileName, source: FileName, strategy: Strategy, memo: Memo) -> Iterable[pa.Table]:
    """What leads from base to source."""
    memo.start(trees.metarange(base).id, trees.metarange(source).id, strategy)
    return memo.remembered(diff(trees, base, source, WHOLE_ROW)) if memo.deltas is None else memo.deltas


def _decide(strategy: Strategy, dest: pa.Table, deltas: pa.Table) -> Decision:
    """The rules, for some rows of the destination and what the source changed among them."""
    present, at = _find(dest, deltas)
    there = dest.take(at)
    was, deleted = bools(deltas["was"]), bools(deltas["tombstone"])
    dest_same = was & present & _same(there, "", deltas, "was_", IDENTITY)
    dest_is_base = np.where(was, dest_same & _same(there, "", deltas, "was_", _ASIDE), ~present)
    source_same = was & ~deleted & _same(deltas, "", deltas, "was_", IDENTITY)
    both_same = np.where(deleted, ~present, present & _same(there, "", deltas, "", IDENTITY))
    takes = dest_is_base | (dest_same & ~source_same)
    conflict = ~(takes | source_same | both_same)
    if strategy is Strategy.SOURCE_WINS:
        takes |= conflict
    conflicts = deltas["path"].filter(pa.array(conflict)).to_pylist() if strategy is Strategy.NONE else []
    return Decision(deltas.select(CHANGES.names).filter(pa.array(takes)), conflicts)


def _find(dest: pa.Table, deltas: pa.Table) -> tuple[Bools, pa.Array]:
    """For each difference, whether the destination has its path, and in which row (any row where it has not)."""
    paths = only_chunk(deltas["path"])
    if dest.num_rows == 0:
        return np.zeros(len(paths), dtype=bool), pa.nulls(len(paths), pa.int64())
    at = pa.array(np.minimum(lower_bounds(only_chunk(dest["path"]), paths), dest.num_rows - 1))
    return bools(pc.equal(only_chunk(dest["path"]).take(at), paths)), at


def _same(one: pa.Table, one_prefix: str, other: pa.Table, other_prefix: str, columns: Sequence[str]) -> Bools:
    """For each pair of rows, whether these columns are equal. Rows that are not there are equal to none."""
    found = np.ones(one.num_rows, dtype=bool)
    for name in columns:
        equal = pc.equal(one[one_prefix + name], other[other_prefix + name])
        found &= bools(pc.fill_null(equal, False) if equal.null_count else equal)
    return found


_ASIDE: Final = tuple(name for name in WHOLE_ROW if name not in IDENTITY)
