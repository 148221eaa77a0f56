"""When to compact: a pure function of what reading a branch has to go through."""

from enum import StrEnum
from typing import Final, NamedTuple


class Compaction(StrEnum):
    MINOR = "minor"
    MAJOR = "major"


class Load(NamedTuple):
    """What reading a branch has to go through."""

    sealed: int
    """Layers over level 2: each may be looked into by every read."""
    tombstones: int
    """Each is read, and shows nothing."""
    l2_rows: int
    tree_rows: int


_SEALED_MAX: Final = 16
_TOMBSTONES_MAX: Final = 5_000
"""Listings read through so many of them without filling a page."""
_L2_ROWS_MIN: Final = 100_000
_L2_SHARE: Final = 4


def due(load: Load) -> Compaction | None:
    """What the load calls for, if anything."""
    if load.tombstones >= _TOMBSTONES_MAX:
        return Compaction.MAJOR
    if load.l2_rows >= max(_L2_ROWS_MIN, load.tree_rows // _L2_SHARE):
        return Compaction.MAJOR
    return Compaction.MINOR if load.sealed >= _SEALED_MAX else None
