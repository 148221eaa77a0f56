"""A page of a listing: entries and common prefixes, from anything that can seek."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from esker.errors import InvalidError, Kind
from esker.model import Entry
from esker.streams.arrays import after_prefix

PAGE_MAX: Final = 1000


class Sorted(Protocol):
    """Some sorted entries at hand."""

    def __len__(self) -> int: ...
    def path(self, at: int) -> bytes: ...
    def find(self, path: bytes, low: int = 0) -> int: ...
    def entries(self, places: list[int]) -> list[Entry]: ...


Seek = Callable[[str], tuple[Sorted, int] | None]
"""The entries at hand from the first at or after a path on, and where it stands among them; None if there is none."""


class Page(NamedTuple):
    """`items` in order: entries, and common prefixes as text."""

    items: list[Entry | str]
    next: str | None
    """What to pass as `after` for the page that follows; None if there is none."""


def page(seek: Seek, *, prefix: str = "", after: str = "", delimiter: str = "", amount: int = PAGE_MAX) -> Page:
    """Up to `amount` items that begin with `prefix` and come after `after`.

    With a delimiter, all entries that go on behind one after the prefix stand as one item, their common prefix; what
    lies under it is sought past, not read. `after` is the last item of the page before, an entry's path or a common
    prefix: nothing under a common prefix comes again.
    """
    if not 0 < amount <= PAGE_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"a page has 1 to {PAGE_MAX} items, not {amount}")
    end = after_prefix(prefix)
    start = first_after(after, prefix, delimiter)
    items: list[Entry | str] = []
    while start is not None and len(items) <= amount and (found := seek(start)):
        rows, at = found
        stop = len(rows) if end is None else rows.find(end.encode(), at)
        places, start = _items(rows, at, stop, prefix, delimiter, amount + 1 - len(items))
        entries = iter(rows.entries([place for place in places if isinstance(place, int)]))
        items += [place if isinstance(place, str) else next(entries) for place in places]
        if stop < len(rows):
            break
    if len(items) <= amount:
        return Page(items, None)
    last = items[amount - 1]
    return Page(items[:amount], last if isinstance(last, str) else last.path)


def first_after(after: str, prefix: str, delimiter: str) -> str | None:
    """Where to go on behind `after`; None if nothing can come behind it."""
    if after < prefix:
        return prefix
    if delimiter and after.find(delimiter, len(prefix)) == len(after) - len(delimiter) >= len(prefix):
        return after_prefix(after)  # a common prefix was the last item
    return after + "\0" if after else prefix


def _items(
    rows: Sorted, at: int, stop: int, prefix: str, delimiter: str, amount: int
) -> tuple[list[int | str], str | None]:
    """The items among the rows `at` to `stop`, entries as places, and where to go on behind the rows at hand."""
    if not delimiter:
        stop = min(stop, at + amount)
        return list(range(at, stop)), rows.path(stop - 1).decode() + "\0" if stop > at else None
    separator, skip = delimiter.encode(), len(prefix.encode())
    places: list[int | str] = []
    start: str | None = None
    while at < stop and len(places) < amount:
        path = rows.path(at)
        cut = path.find(separator, skip)
        if cut < 0:
            places.append(at)
            start = path.decode() + "\0"
            at += 1
            continue
        common = path[: cut + len(separator)].decode()
        places.append(common)
        start = after_prefix(common)
        at = stop if start is None else rows.find(start.encode(), at + 1)
    return places, start
