"""Walks through history: the log, merge bases, ancestors.

They read commits by a function that is passed in, and rely on generations: a commit's is larger than its parents', so a
walk in order of generation has seen all children of a commit before it comes to the commit itself. It then never comes
back to one that it left behind, and needs to remember only those that wait.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from esker.errors import InvalidError, Kind
from esker.model import Commit, CommitID

PAGE_MAX: Final = 1000

Get = Callable[[CommitID], Commit]

Touches = Callable[[Commit, Commit | None], bool]
"""Whether a commit differs from this parent of its, or from nothing at all, in what the reader of a log cares for."""


class Page(NamedTuple):
    items: list[tuple[CommitID, Commit]]
    next: CommitID | None
    """What to pass as `after` for the page that follows; None if there is none."""


def log(
    get: Get,
    start: CommitID,
    *,
    first_parent: bool = False,
    after: CommitID | None = None,
    amount: int = PAGE_MAX,
    since_ms: int | None = None,
    until_ms: int | None = None,
    touches: Touches | None = None,
) -> Page:
    """Up to `amount` of the commits that `start` descends from, itself among them, in the order of `newest_first`.

    With `touches`, only those that differ from each of their parents: a merge that took one side as it was is left out,
    and the commit that made the change is listed. `since_ms` and `until_ms` are inclusive. A page walks from `start`
    again, since `after` alone does not tell what else was waiting; it reads no commit behind what it needs.
    """
    if not 0 < amount <= PAGE_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"a page is 1 to {PAGE_MAX} commits, not {amount}")
    last = None if after is None else _place(after, get(after))

    def listed(name: CommitID, commit: Commit) -> bool:
        return (
            (last is None or _place(name, commit) > last)
            and (since_ms is None or commit.date_ms >= since_ms)
            and (until_ms is None or commit.date_ms <= until_ms)
            and (touches is None or all(touches(commit, parent) for parent in parents(commit)))
        )

    def parents(commit: Commit) -> Iterator[Commit | None]:
        names = _parents(commit, first_parent)
        return map(get, names) if names else iter([None])

    walk = newest_first(get, start, first_parent=first_parent)
    items = list(islice((item for item in walk if listed(*item)), amount + 1))
    return Page(items[:amount], items[amount - 1][0] if len(items) > amount else None)


def newest_first(get: Get, start: CommitID, *, first_parent: bool = False) -> Iterator[tuple[CommitID, Commit]]:
    """`start` and all that it descends from, each once: no commit before one that descends from it, and of equal
    generation the later date, then the smaller id, first. Commits are read as the walk comes to them, each once."""
    waiting = {start}
    queue = [(_place(start, commit := get(start)), commit)]
    while queue:
        (*_, name), commit = heappop(queue)
        waiting.remove(name)
        yield name, commit
        for parent in _parents(commit, first_parent):
            if parent not in waiting:
                waiting.add(parent)
                heappush(queue, (_place(parent, commit := get(parent)), commit))


def first_parents(get: Get, start: CommitID) -> Iterator[tuple[CommitID, Commit]]:
    """`start`, its first parent, that one's, and so on."""
    return newest_first(get, start, first_parent=True)


def merge_base(get: Get, one: CommitID, other: CommitID) -> CommitID | None:
    """A best common ancestor: one from which no other common ancestor descends. A commit is its own ancestor.

    Histories that crossed may have several. It is then the first in the order of `newest_first`: the same whichever
    side is named first. (git looks at dates before generations, so it may choose another of them.) None if there is
    none. Each commit is read at most once, and none of an earlier generation than the base's parents.
    """
    if one == other:
        return one
    sides = {one: 1, other: 2}
    # One flat tuple each, and no call but `get`: this loop is what a merge into a long history waits for.
    queue: list[tuple[int, int, CommitID, Commit]] = []
    for name in sides:
        commit = get(name)
        heappush(queue, (-commit.generation, -commit.date_ms, name, commit))
    while queue:
        _, _, name, commit = heappop(queue)
        side = sides.pop(name)
        if side == 3:
            return name
        for parent in commit.parents:
            known = sides.get(parent)
            if known is None:
                commit = get(parent)
                heappush(queue, (-commit.generation, -commit.date_ms, parent, commit))
                sides[parent] = side
            else:
                sides[parent] = known | side
    return None


def is_ancestor(get: Get, ancestor: CommitID, name: CommitID) -> bool:
    """Whether `name` is `ancestor` or descends from it. Commits of generations before it are not walked through."""
    floor = get(ancestor).generation
    seen = {name}
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name == ancestor:
            return True
        commit = get(name)
        if commit.generation > floor:
            fresh = [parent for parent in commit.parents if parent not in seen]
            seen.update(fresh)
            waiting += fresh
    return False


def _place(name: CommitID, commit: Commit) -> tuple[int, int, CommitID]:
    """Where a commit stands in a log."""
    return -commit.generation, -commit.date_ms, name


def _parents(commit: Commit, first_parent: bool) -> tuple[CommitID, ...]:
    return commit.parents[:1] if first_parent else commit.parents
