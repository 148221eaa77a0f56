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

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esker.model import FileName
from esker.streams.arrays import Bools, bools, lower_bounds, only_chunk
from esker.streams.entries import CHANGES, IDENTITY
from esker.streams.rows import WHOLE_ROW
from esker.tree.diff import diff
from esker.tree.rewrite import Decision, rewrite
from esker.tree.trees import Trees


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


def merge(trees: Trees, base: FileName, source: FileName, dest: FileName, strategy: Strategy = Strategy.NONE) -> Merged:
    """The destination with what the source changed since the base."""
    ids = [trees.metarange(name).id for name in (base, source, dest)]
    if ids[1] == ids[0] or ids[1] == ids[2]:
        return Merged(dest, [])
    if ids[2] == ids[0]:
        return Merged(source, [])
    changes = diff(trees, base, source, WHOLE_ROW)
    return Merged(*rewrite(trees, dest, changes, partial(_decide, strategy), also_reads=(base, source)))


def _decide(strategy: Strategy, dest: pa.Table, deltas: pa.Table) -> Decision:
    """The rules, for some rows of the destination and what the source changed among them."""
    present, at = _find(dest, deltas)
    there = dest.take(at)
    was, deleted = bools(deltas["was"]), bools(deltas["tombstone"])
    dest_is_base = np.where(was, present & _same(there, "", deltas, "was_", WHOLE_ROW), ~present)
    source_same = was & ~deleted & _same(deltas, "", deltas, "was_", IDENTITY)
    dest_same = was & present & _same(there, "", deltas, "was_", IDENTITY)
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
        found &= bools(pc.fill_null(equal, False))
    return found
