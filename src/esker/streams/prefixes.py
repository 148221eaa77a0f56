"""Sets of prefixes, as prefix deletes have them."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import AnyStr


def minimal(prefixes: Iterable[AnyStr]) -> tuple[AnyStr, ...]:
    """The prefixes in order, without those that another one covers."""
    kept: list[AnyStr] = []
    for prefix in sorted(set(prefixes)):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)


class Prefixes:
    """Prefixes of encoded paths, however many, none of which covers another. Of those, only the last that is not above
    a path can be a prefix of it."""

    __slots__ = ("all",)

    def __init__(self, prefixes: Iterable[bytes]) -> None:
        self.all = minimal(prefixes)

    def __bool__(self) -> bool:
        return bool(self.all)

    def __or__(self, other: "Prefixes") -> "Prefixes":
        if not self.all or not other.all:
            return self if self.all else other
        return Prefixes(self.all + other.all)

    def covers(self, path: bytes) -> bool:
        """Whether the path begins with one of them."""
        at = bisect_right(self.all, path) - 1
        return at >= 0 and path.startswith(self.all[at])

    def between(self, start: bytes, end: bytes | None) -> tuple[str, ...]:
        """Those that may cover a path from `start` through `end`, as text."""
        low = max(0, bisect_right(self.all, start) - 1)
        high = len(self.all) if end is None else bisect_right(self.all, end)
        return tuple(prefix.decode() for prefix in self.all[low:high])


NO_PREFIXES = Prefixes(())
