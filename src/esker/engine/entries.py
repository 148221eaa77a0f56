"""Entries on a branch or ref: get, list, put, delete.

A put, where single writes do not go through the memstore:

    1. look     at the branch, unless a put of this process just did: which token is open, and is it dirty?
    2. mark     it dirty, if it is not: one swap for each token, before anything is written to it
    3. put      the record into the token, on condition that its guard still says open

A token is sealed in the very swap that opens another, so a put that finds the guard open is visible at once, and one
that does not has changed nothing: it starts again, with the new token. A store without guarded puts writes, and then
looks whether the token still is the open one; until such a write is acknowledged it may be seen, vanish, and be seen
again (docs/consistency.md).
"""

from collections.abc import Iterable
from typing import Final

from esker.engine import layers, memstore, pressure, protection, sensor
from esker.engine.lake import Lake
from esker.engine.protection import Action
from esker.engine.snapshots import Snapshot, entry_at, has_layers, is_late, present, read
from esker.errors import (
    ContentionError,
    InvalidError,
    Kind,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from esker.model import Entry, Repository
from esker.refs.records import Branch
from esker.staging import tokens
from esker.staging.stack import View
from esker.stores.kv import ANYTHING, SCAN_LIMIT_MAX, Anything, Guarded, Version
from esker.streams.entries import NO_CHANGES, PATH_BYTES_MAX, changes_of
from esker.streams.listing import PAGE_MAX, Page, Sorted, page
from esker.streams.rows import Changes

_TRIES_MAX: Final = 100

_FEW: Final = 32
"""Writes that go into the key-value store one by one: a layer costs about as much, and each read looks into it."""

_OPEN_TOKENS_MAX: Final = 10_000
"""Branches whose open token is remembered. A branch that is not costs one read more for its next write."""


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
    """A page of what `ref` shows. Each page is of one moment (of a branch on which more than ten thousand changes are
    staged among the paths of one page, of several); pages of a changing branch may be of different ones.
    """
    check_prefix(prefix)
    check_prefix(after)

    def list_page(snapshot: Snapshot) -> Page:
        return page_of(lake, repo, snapshot, prefix=prefix, after=after, delimiter=delimiter, amount=amount)

    return read(lake, repo, ref, "list", list_page)


def page_of(
    lake: Lake,
    repo: Repository,
    snapshot: Snapshot,
    *,
    prefix: str = "",
    after: str = "",
    delimiter: str = "",
    amount: int = PAGE_MAX,
) -> Page:
    """A page of what a snapshot shows."""
    past = lake.past(repo)

    def below(path: str) -> tuple[Sorted, int] | None:
        return past.seek(snapshot.tree, path)

    if snapshot.stack is None:
        return page(below, prefix=prefix, after=after, delimiter=delimiter, amount=amount)
    view = View(snapshot.stack, below)
    found = page(view.seek, prefix=prefix, after=after, delimiter=delimiter, amount=amount)
    if view.windows > 1 and any(layer.token for layer in snapshot.stack.layers):
        # Read at several moments, and tokens may have changed between: read again, as much as can be at one.
        view = View(snapshot.stack, below, SCAN_LIMIT_MAX)
        found = page(view.seek, prefix=prefix, after=after, delimiter=delimiter, amount=amount)
    return found


def put(lake: Lake, repo: Repository, branch: str, entry: Entry, *, if_absent: bool = False) -> None:
    """Stage an entry. With `if_absent`, PreconditionError if the path is there: of several such puts, one wins."""
    check_entry(entry)
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    if memstore.is_on(lake, repo):
        if not if_absent:
            memstore.write(lake, repo, branch, {entry.path: entry})
        elif not memstore.put_if_absent(lake, repo, branch, entry):
            raise layers.already_there(repo, branch, entry.path)
        return
    value = tokens.encode(entry)
    if not if_absent:
        _stage(lake, repo, branch, entry.path, value)
    elif lake.kv.guards:
        _stage_if_absent(lake, repo, branch, entry.path, value)
    else:
        if layers.append_if_absent(lake, repo, branch, [entry]):
            raise layers.already_there(repo, branch, entry.path)


def delete(lake: Lake, repo: Repository, branch: str, path: str) -> None:
    """Stage that `path` is deleted. Deleting what is not there is no error."""
    check_path(path)
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    if memstore.is_on(lake, repo):
        memstore.write(lake, repo, branch, {path: None})
    else:
        _stage(lake, repo, branch, path, tokens.TOMBSTONE)


def write_many(
    lake: Lake, repo: Repository, branch: str, puts: Iterable[Entry] = (), deletes: Iterable[str] = ()
) -> None:
    """Stage many entries and deletions, with few swaps. A path both put and deleted is put; of several entries with one
    path, the last. If this fails, a part of them may be staged (of more than a few, all or nothing)."""
    writes: dict[str, Entry | None] = dict.fromkeys(deletes)
    for path in writes:
        check_path(path)
    for entry in puts:
        check_entry(entry)
        writes[entry.path] = entry
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    if not writes:
        return
    if len(writes) <= memstore.SHARE_MAX and memstore.is_on(lake, repo):
        memstore.write(lake, repo, branch, writes)
    elif len(writes) > _FEW:
        pressure.make_room(lake, repo, branch)
        gone = [path for path, entry in writes.items() if entry is None]
        changes = Changes(changes_of([entry for entry in writes.values() if entry is not None], gone))
        layers.append(lake, repo, branch, changes)
    else:
        for path, some in writes.items():
            _stage(lake, repo, branch, path, tokens.encode(some))


def delete_prefix(lake: Lake, repo: Repository, branch: str, prefix: str) -> None:
    """Stage that everything under `prefix` is deleted: one record, however much there is."""
    check_prefix(prefix)
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    if memstore.is_on(lake, repo):
        memstore.delete_prefix(lake, repo, branch, prefix)
    else:
        layers.append(lake, repo, branch, Changes(NO_CHANGES, (prefix,)))


def check_path(path: str) -> None:
    """InvalidError unless it can be the path of an entry."""
    size = check_prefix(path)
    if size == 0:
        raise InvalidError(Kind.INVALID_PATH, f"a path is 1 to {PATH_BYTES_MAX} bytes, not 0")


def check_prefix(prefix: str) -> int:
    """Its length in bytes. InvalidError unless a path can begin so."""
    try:
        size = len(prefix.encode())
    except UnicodeEncodeError:
        raise InvalidError(Kind.INVALID_PATH, f"path {prefix!r} is not valid UTF-8") from None
    if size > PATH_BYTES_MAX:
        raise InvalidError(Kind.INVALID_PATH, f"a path is 1 to {PATH_BYTES_MAX} bytes, not {size}: {prefix[:60]!r}")
    return size


def check_branch(lake: Lake, repo: Repository, branch: str) -> None:
    """NotFoundError if there is no such branch to write to. Of one that was just written to nothing is read: if it is
    gone since, the write itself finds out."""
    if (repo.uid, branch) not in lake.open_tokens:
        lake.branches(repo).get(branch)


def check_entry(entry: Entry) -> None:
    """InvalidError unless it can be committed."""
    if _is_plain(entry):
        return
    check_path(entry.path)
    texts = [entry.address, entry.checksum, entry.content_type, *entry.metadata.keys(), *entry.metadata.values()]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"{entry.path!r}: address, checksum, content type and metadata are strings"
        )
    if any(not _is_utf8(text) for text in texts):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{entry.path!r}: one of its fields is not valid UTF-8")
    if type(entry.size) is not int or not 0 <= entry.size < 1 << 63:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{entry.path!r}: a size is a number from 0 up, not {entry.size!r}")
    if type(entry.mtime_ms) is not int or not -(1 << 63) <= entry.mtime_ms < 1 << 63:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{entry.path!r}: {entry.mtime_ms!r} is no time in milliseconds")


def _is_plain(entry: Entry) -> bool:
    """Whether a look is enough to see that all is well, as it is of most entries."""
    try:
        texts = "".join((entry.path, entry.address, entry.checksum, entry.content_type))
    except TypeError:
        return False
    return (
        texts.isascii()
        and 0 < len(entry.path) <= PATH_BYTES_MAX
        and type(entry.size) is type(entry.mtime_ms) is int
        and 0 <= entry.size < 1 << 63
        and 0 <= entry.mtime_ms < 1 << 63
        and not entry.metadata
    )


def _is_utf8(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def open_token(lake: Lake, repo: Repository, branch: str) -> Branch:
    """The branch's record, its token ready to take writes."""
    record = lake.branches(repo).get(branch)
    if record.dirty:
        return record
    marked = lake.branches(repo).update(branch, Branch.marked_dirty)
    assert marked is not None
    sensor.of(lake).opened(marked.token)
    return marked if marked.dirty else open_token(lake, repo, branch)  # told late: sealed since


def _stage(lake: Lake, repo: Repository, branch: str, path: str, value: bytes) -> None:
    """With guards, the record may be one that was read before: a guard that is open says that its token still is the
    open one, whatever else has changed."""
    written = False
    key = (repo.uid, branch)
    try:
        for _ in range(_TRIES_MAX):
            record = lake.open_tokens.get(key) or open_token(lake, repo, branch)
            stored = _put(lake, repo, record, path, value) is Guarded.STORED
            if stored and lake.kv.guards:
                if len(lake.open_tokens) >= _OPEN_TOKENS_MAX:
                    lake.open_tokens.clear()
                lake.open_tokens[key] = record
                sensor.of(lake).wrote(repo, branch, record.token, deletes=value == tokens.TOMBSTONE)
                return
            written = written or stored
            if stored and lake.branches(repo).get(branch).token == record.token:
                sensor.of(lake).wrote(repo, branch, record.token, deletes=value == tokens.TOMBSTONE)
                return
            if not stored and lake.open_tokens.pop(key, None) is None:
                _rotate_if_open(lake, repo, branch, record)
    except (UnavailableError, ContentionError) as error:
        if written:  # and not yet known to be in the open token: it may be seen, or be gone
            raise OutcomeUnknownError(message=f"a write of {path!r} was stored, and not confirmed") from error
        raise
    if written:
        raise OutcomeUnknownError(message=f"a write of {path!r} was overtaken through {_TRIES_MAX} tries")
    raise _overtaken(repo, branch)


def _stage_if_absent(lake: Lake, repo: Repository, branch: str, path: str, value: bytes) -> None:
    """What is below the open token does not change while its guard is open, so an absence seen after it was marked
    dirty still holds when the guarded put lands."""
    for _ in range(_TRIES_MAX):
        seen_s = lake.world.monotonic_s()
        record = open_token(lake, repo, branch)
        staged = lake.kv.get(tokens.partition(record.token), path.encode())
        gone = staged is not None and staged.value == tokens.TOMBSTONE
        if not gone and (staged or present(lake, repo, record, path)):
            if lake.branches(repo).get(branch).token != record.token:
                continue  # what was looked at is past
            raise layers.already_there(repo, branch, path)
        if is_late(lake, seen_s) and not has_layers(lake, repo, branch, record):
            continue  # what fell off the branch may have been taken away before it was looked at
        if _put(lake, repo, record, path, value, staged.version if staged else None) is Guarded.STORED:
            sensor.of(lake).wrote(repo, branch, record.token, deletes=0)
            return
        _rotate_if_open(lake, repo, branch, record)
    raise _overtaken(repo, branch)


def _rotate_if_open(lake: Lake, repo: Repository, branch: str, refused: Branch) -> None:
    """Give the branch another token if this one still is the open one, though its guard takes no writes: a record from
    before there were guards has none."""
    branches = lake.branches(repo)
    if branches.get(branch).token == refused.token:
        branches.update(branch, lambda now: now.rotated(branches.fresh_token()) if now.token == refused.token else now)


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
