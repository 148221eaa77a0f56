"""Entries on a branch or ref: get, list, put, delete.

A put through the key-value store:

    1. look     at the branch: which token is open, and is it dirty?
    2. mark     it dirty, if it is not: one swap for each token, before anything is written to it
    3. put      the record into the token, on condition that its guard still says open

A token is sealed in the very swap that opens another, so a put that finds the guard open is visible at once, and one
that does not has changed nothing: it starts again, with the new token. A store without guarded puts writes, and then
looks whether the token still is the open one; until such a write is acknowledged it may be seen, vanish, and be seen
again (docs/explanation of consistency).
"""

from typing import Final

from esker.engine import layers, protection
from esker.engine.lake import Lake
from esker.engine.protection import Action
from esker.engine.snapshots import Snapshot, entry_at, present, read
from esker.errors import ContentionError, InvalidError, Kind, NotFoundError
from esker.model import Entry, Repository
from esker.refs.records import Branch
from esker.staging import tokens
from esker.staging.stack import View
from esker.stores.kv import ANYTHING, Anything, Guarded, Version
from esker.streams.entries import PATH_BYTES_MAX
from esker.streams.listing import PAGE_MAX, Page, page

_TRIES_MAX: Final = 100


def get(lake: Lake, repo: Repository, ref: str, path: str) -> Entry:
    """The entry at `path`. NotFoundError if there is none."""
    check_path(path)
    entry = read(lake, repo, ref, "get", lambda snapshot: entry_at(lake, repo, snapshot, path))
    if entry is None:
        raise NotFoundError(Kind.OBJECT_NOT_FOUND, f"no object {path!r} on {ref!r} of {repo.name!r}")
    return entry


def listing(
    lake: Lake,
    repo: Repository,
    ref: str,
    *,
    prefix: str = "",
    after: str = "",
    delimiter: str = "",
    amount: int = PAGE_MAX,
) -> Page:
    """A page of what `ref` shows. Each page is of one moment; pages of a changing branch may be of different ones."""

    def list_page(snapshot: Snapshot) -> Page:
        past = lake.past(repo)
        seek = lambda path: past.seek(snapshot.tree, path)  # noqa: E731
        if snapshot.stack:
            seek = View(snapshot.stack, seek).seek
        return page(seek, prefix=prefix, after=after, delimiter=delimiter, amount=amount)

    return read(lake, repo, ref, "list", list_page)


def put(lake: Lake, repo: Repository, branch: str, entry: Entry, *, if_absent: bool = False) -> None:
    """Stage an entry. With `if_absent`, PreconditionError if the path is there: of several such puts, one wins."""
    check_path(entry.path)
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    value = tokens.encode(entry)
    if not if_absent:
        _stage(lake, repo, branch, entry.path, value)
    elif lake.kv.guards:
        _stage_if_absent(lake, repo, branch, entry.path, value)
    else:
        layers.append_if_absent(lake, repo, branch, entry)


def delete(lake: Lake, repo: Repository, branch: str, path: str) -> None:
    """Stage that `path` is deleted. Deleting what is not there is no error."""
    check_path(path)
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    _stage(lake, repo, branch, path, tokens.TOMBSTONE)


def delete_prefix(lake: Lake, repo: Repository, branch: str, prefix: str) -> None:
    """Stage that everything under `prefix` is deleted: one record, however much there is."""
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    if len(prefix.encode()) > PATH_BYTES_MAX:
        raise InvalidError(Kind.INVALID_PATH, f"a prefix is at most {PATH_BYTES_MAX} bytes")
    layers.append(lake, repo, branch, deletes=(prefix,))


def check_path(path: str) -> None:
    """InvalidError unless it can be the path of an entry."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise InvalidError(Kind.INVALID_PATH, f"path {path!r} is not valid UTF-8") from None
    if not 0 < size <= PATH_BYTES_MAX:
        raise InvalidError(Kind.INVALID_PATH, f"a path is 1 to {PATH_BYTES_MAX} bytes, not {size}: {path[:60]!r}")


def open_token(lake: Lake, repo: Repository, branch: str) -> Branch:
    """The branch's record, its token ready to take writes."""
    record = lake.branches(repo).get(branch)
    if record.dirty:
        return record
    marked = lake.branches(repo).update(branch, Branch.marked_dirty)
    assert marked is not None
    return marked


def _stage(lake: Lake, repo: Repository, branch: str, path: str, value: bytes) -> None:
    for _ in range(_TRIES_MAX):
        record = open_token(lake, repo, branch)
        stored = _put(lake, repo, record, path, value) is Guarded.STORED
        if stored and (lake.kv.guards or lake.branches(repo).get(branch).token == record.token):
            return
    raise _overtaken(repo, branch)


def _stage_if_absent(lake: Lake, repo: Repository, branch: str, path: str, value: bytes) -> None:
    """What is below the open token does not change while its guard is open, so an absence seen after it was marked
    dirty still holds when the guarded put lands."""
    for _ in range(_TRIES_MAX):
        record = open_token(lake, repo, branch)
        staged = lake.kv.get(tokens.partition(record.token), path.encode())
        gone = staged is not None and staged.value == tokens.TOMBSTONE
        if not gone and (staged or present(lake, repo, record, path)):
            if lake.branches(repo).get(branch).token != record.token:
                continue  # what was looked at is past
            raise layers.already_there(repo, branch, path)
        if _put(lake, repo, record, path, value, staged.version if staged else None) is Guarded.STORED:
            return
    raise _overtaken(repo, branch)


def _put(
    lake: Lake,
    repo: Repository,
    record: Branch,
    path: str,
    value: bytes,
    expected: Version | None | Anything = ANYTHING,
) -> Guarded:
    partition = tokens.partition(record.token)
    if not lake.kv.guards:
        lake.kv.put(partition, path.encode(), value)
        return Guarded.STORED
    guard = lake.branches(repo).guard(record.token)
    return lake.kv.put_guarded(partition, path.encode(), value, guard=guard, expected=expected)


def _overtaken(repo: Repository, branch: str) -> ContentionError:
    return ContentionError(
        Kind.CONTENTION,
        f"branch {branch!r} of {repo.name!r} was sealed through {_TRIES_MAX} tries of a write: try again",
    )
