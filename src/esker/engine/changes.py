"""What changed: on a branch since its commit, or between two refs. In pages, in order of path.

- uncommitted: what is staged, against the commit
- two dots:    from the left ref to the right
- three dots:  what merging the right ref into the left would bring, and where it would conflict
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from esker.engine import snapshots
from esker.engine.lake import Lake
from esker.engine.refs import commit_of
from esker.engine.reset import clipped
from esker.engine.snapshots import Snapshot, read
from esker.errors import InvalidError, Kind
from esker.model import Entry, FileName, Repository
from esker.refs import history
from esker.streams.arrays import after_prefix
from esker.streams.entries import SCHEMA, entries_in
from esker.streams.listing import PAGE_MAX, first_after
from esker.streams.rows import WHOLE_ROW
from esker.tree.past import Past

_SLICE_ROWS: Final = 256
"""Rows made into changes at a time: a page may need few of a batch."""


class ChangeKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    CONFLICT = "conflict"
    PREFIX_CHANGED = "prefix_changed"


class Change(msgspec.Struct, frozen=True):
    """`entry` is what is there now; what was there, if it was removed; None for a common prefix."""

    kind: ChangeKind
    path: str
    entry: Entry | None


class ChangePage(NamedTuple):
    items: list[Change]
    next: str | None
    """What to pass as `after` for the page that follows; None if there is none."""


def uncommitted(
    lake: Lake,
    repo: Repository,
    branch: str,
    *,
    prefix: str = "",
    after: str = "",
    delimiter: str = "",
    amount: int = PAGE_MAX,
) -> ChangePage:
    """What is staged on `branch`, against its commit. Nothing is looked at on a clean branch."""

    def staged(snapshot: Snapshot) -> ChangePage:
        if snapshot.stack is None:
            return ChangePage([], None)
        changes = clipped(snapshots.staged(lake, repo, snapshot, max(prefix, after), after_prefix(prefix)), prefix)
        deltas = lake.past(repo).preview(snapshot.committed, changes)
        return _page(_changes(deltas), prefix, after, delimiter, amount)

    return read(lake, repo, branch, "diff", staged)


def is_clean(lake: Lake, repo: Repository, branch: str) -> bool:
    """Whether nothing is staged on `branch`: for most clean branches, one record read."""
    return not uncommitted(lake, repo, branch, amount=1).items


def between(
    lake: Lake,
    repo: Repository,
    left: str,
    right: str,
    *,
    three_dot: bool = False,
    prefix: str = "",
    after: str = "",
    delimiter: str = "",
    amount: int = PAGE_MAX,
) -> ChangePage:
    """What leads from `left` to `right`; with `three_dot`, what merging `right` into `left` would bring."""
    past, commits = lake.past(repo), lake.commits(repo)
    ours, theirs = commit_of(lake, repo, left), commit_of(lake, repo, right)
    dest, source = commits.get(ours).tree, commits.get(theirs).tree
    start, stop = max(prefix, after), after_prefix(prefix)
    if not three_dot:
        deltas = past.diff(dest, source, start=start, stop=stop)
        return _page(_changes(deltas), prefix, after, delimiter, amount)
    base = history.merge_base(commits.get, ours, theirs)
    if base is None:
        raise InvalidError(Kind.NO_MERGE_BASE, f"{left!r} and {right!r} of {repo.name!r} share no history")
    brought = _brought(past, dest, past.diff(commits.get(base).tree, source, start=start, stop=stop))
    return _page((change for change, _ in brought), prefix, after, delimiter, amount)


def _changes(deltas: Iterable[pa.Table]) -> Iterator[Change]:
    """Rows of `DELTAS`, one by one, made as they are asked for."""
    return (change for change, _ in _with_former(deltas))


def _with_former(deltas: Iterable[pa.Table]) -> Iterator[tuple[Change, Entry | None]]:
    """Each change with what was there before."""
    for batch in deltas:
        for start in range(0, batch.num_rows, _SLICE_ROWS):
            some = batch.slice(start, _SLICE_ROWS)
            former = some.select(["path", *(f"was_{name}" for name in WHOLE_ROW)]).rename_columns(SCHEMA.names)
            rows = zip(
                entries_in(some),
                entries_in(former),
                some["was"].to_pylist(),
                some["tombstone"].to_pylist(),
                strict=True,
            )
            for entry, before, was, gone in rows:
                kind = ChangeKind.REMOVED if gone else ChangeKind.CHANGED if was else ChangeKind.ADDED
                yield Change(kind, entry.path, before if gone else entry), before if was else None


def _brought(past: Past, dest: FileName, deltas: Iterable[pa.Table]) -> Iterator[tuple[Change, Entry | None]]:
    """Of what the source changed, what the destination does not have already; conflicts where it changed it, too."""
    for change, base in _with_former(deltas):
        there = past.get(dest, change.path)
        theirs = None if change.kind is ChangeKind.REMOVED else change.entry
        if _identity(there) == _identity(base):
            yield change, base
        elif _identity(there) != _identity(theirs):
            yield Change(ChangeKind.CONFLICT, change.path, theirs or there), base


def _identity(entry: Entry | None) -> object:
    return entry and entry.identity()


def _page(changes: Iterator[Change], prefix: str, after: str, delimiter: str, amount: int) -> ChangePage:
    """The changes of a page, those that go on behind a delimiter folded into one for each common prefix."""
    if not 0 < amount <= PAGE_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"a page has 1 to {PAGE_MAX} items, not {amount}")
    start = first_after(after, prefix, delimiter)
    items: list[Change] = []
    for change in changes:
        if start is None or (change.path > prefix and not change.path.startswith(prefix)):
            break
        if change.path < start:
            continue
        cut = change.path.find(delimiter, len(prefix)) if delimiter else -1
        item = change if cut < 0 else Change(ChangeKind.PREFIX_CHANGED, change.path[: cut + len(delimiter)], None)
        if items and items[-1].kind is ChangeKind.PREFIX_CHANGED and items[-1].path == item.path:
            continue
        if len(items) == amount:
            return ChangePage(items, items[-1].path)
        items.append(item)
    return ChangePage(items, None)
