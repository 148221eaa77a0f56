"""Differences between two trees. Ranges that both have are never opened: a range's digest covers its paths, and a path
stands once in a tree, so what one side's other ranges hold can only differ from the other side's other ranges.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esker.model import FileName
from esker.streams.arrays import after_prefix, bools, lower_bound, only_chunk
from esker.streams.entries import IDENTITY, NO_ENTRIES
from esker.streams.rows import between, compare
from esker.tree.trees import Metarange, RangeInfo, Trees


def diff(
    trees: Trees,
    left: FileName,
    right: FileName,
    columns: Sequence[str] = IDENTITY,
    start: str = "",
    stop: str | None = None,
) -> Iterator[pa.Table]:
    """What leads from left to right, as batches of `streams.rows.DELTAS`, in order: rows on one side only, or unequal
    in `columns` (by default: whose content changed), of the paths from `start` on and before `stop`.
    """
    lefts, rights = trees.metarange(left), trees.metarange(right)
    if lefts.id == rights.id:
        return
    sides = (_inside(_only_in(one, other), start, stop) for one, other in ((lefts, rights), (rights, lefts)))
    for deltas in _compared(trees, _regions(*sides), columns):
        paths = only_chunk(deltas["path"])
        low = lower_bound(paths, start)
        high = len(paths) if stop is None else lower_bound(paths, stop, low)
        if low < high:
            yield deltas.slice(low, high - low)


def differs(trees: Trees, left: FileName, right: FileName, prefix: str) -> bool:
    """Whether the content of anything under `prefix` differs. Only ranges that may hold such paths are opened."""
    return next(diff(trees, left, right, IDENTITY, prefix, after_prefix(prefix)), None) is not None


def _inside(infos: list[RangeInfo], start: str, stop: str | None) -> list[RangeInfo]:
    return [info for info in infos if info.max >= start and (stop is None or info.min < stop)]


class _Region(NamedTuple):
    """The paths behind `after` up to `last`, which at most one range of either side holds."""

    after: str | None
    last: str
    left: RangeInfo | None
    right: RangeInfo | None


def _compared(trees: Trees, regions: Iterator[_Region], columns: Sequence[str]) -> Iterator[pa.Table]:
    """What differs in each region that has differences."""
    needs = ((region, [info for info in (region.left, region.right) if info]) for region in regions)
    for region, found in trees.reading_ahead(needs):
        sides = iter(found)
        left, right = (
            between(next(sides).table, region.after, region.last) if info else NO_ENTRIES
            for info in (region.left, region.right)
        )
        deltas = compare(left, right, columns)
        if deltas.num_rows:
            yield deltas


def _regions(lefts: list[RangeInfo], rights: list[RangeInfo]) -> Iterator[_Region]:
    """All regions in order: each ends where a range of either side does."""
    i = j = 0
    after: str | None = None
    while i < len(lefts) or j < len(rights):
        left = lefts[i] if i < len(lefts) else None
        right = rights[j] if j < len(rights) else None
        last = min(info.max for info in (left, right) if info)
        yield _Region(
            after, last, left if left and left.min <= last else None, right if right and right.min <= last else None
        )
        i += left is not None and left.max == last
        j += right is not None and right.max == last
        after = last


def _only_in(one: Metarange, other: Metarange) -> list[RangeInfo]:
    shared = bools(pc.is_in(one.table["id"], value_set=other.table["id"]))
    return [one.info(at) for at in np.flatnonzero(~shared).tolist()]
