"""What a ref shows, read so that the answer is of one moment.

Nothing that a branch record names is taken away sooner than the grace time after it fell off the branch. So an answer
that came from a record's layers within half of that time stands. A later one stands if the branch, looked at again,
still has all of these layers; else it is read again.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

import pyarrow as pa

from esker.engine import metrics, readahead
from esker.engine.lake import Lake
from esker.engine.refs import Ref, resolve
from esker.errors import ContentionError, CorruptError, Kind
from esker.model import Entry, FileName, Layer, Repository
from esker.refs.records import Basis, Branch
from esker.staging.stack import Stack
from esker.staging.tables import UNKNOWN
from esker.streams.entries import CHANGES, NO_CHANGES
from esker.streams.rows import WHOLE_ROW, Changes

T = TypeVar("T")

_TRIES_MAX: Final = 20


class Snapshot(NamedTuple):
    """A tree, and the layers over it, if there are any to look into."""

    tree: FileName
    stack: Stack | None
    committed: FileName
    """The commit's tree: `tree`, unless compaction made another that stands in for it."""


def read(lake: Lake, repo: Repository, ref: str, op: str, action: Callable[[Snapshot], T]) -> T:
    """What `action` makes of what `ref` shows; `op` names it in the metrics."""
    for _ in range(_TRIES_MAX):
        seen_s = lake.world.monotonic_s()
        found = resolve(lake, repo, ref)
        snapshot = snapshot_of(lake, repo, found, op)
        try:
            answer = action(snapshot)
        except CorruptError as error:
            if error.kind is not Kind.MISSING_FILE or _still_there(lake, repo, found):
                raise
            continue
        if snapshot.stack is None or not is_late(lake, seen_s):
            return answer
        if _still_there(lake, repo, found):
            return answer
    raise ContentionError(Kind.CONTENTION, f"{ref!r} of {repo.name!r} changed faster than it could be read: try again")


def snapshot_of(lake: Lake, repo: Repository, found: Ref, op: str) -> Snapshot:
    """The tree and the layers of a resolved ref."""
    tree = lake.commits(repo).get(found.commit).tree
    if found.branch is None or found.record is None:
        return Snapshot(tree, None, tree)
    looks = not found.record.clean or not lake.settings.dirty_read_optimization
    metrics.branch_read(repo.name, found.branch, dirty=not found.record.clean, staging=looks, op=op)
    if looks:
        readahead.of(lake).was_read(repo, found.branch, found.record)
    return Snapshot(found.record.compacted or tree, lake.stack(repo, found.record) if looks else None, tree)


def entry_at(lake: Lake, repo: Repository, snapshot: Snapshot, path: str) -> Entry | None:
    """The entry at `path`, if there is one."""
    found = snapshot.stack.lookup(path) if snapshot.stack else UNKNOWN
    return lake.past(repo).get(snapshot.tree, path) if found is UNKNOWN else found


def present(lake: Lake, repo: Repository, record: Branch, path: str) -> bool:
    """Whether the branch shows an entry at `path`, as the record has it."""
    tree = lake.commits(repo).get(record.commit).tree
    snapshot = Snapshot(record.compacted or tree, lake.stack(repo, record), tree)
    return entry_at(lake, repo, snapshot, path) is not None


def staged(lake: Lake, repo: Repository, snapshot: Snapshot, start: str = "", stop: str | None = None) -> Changes:
    """All that is staged over the commit's tree, what compaction has folded included, as one layer; of the paths from
    `start` on and before `stop`."""
    folded = Changes(NO_CHANGES) if snapshot.stack is None else snapshot.stack.fold(start, stop)
    if snapshot.tree == snapshot.committed:
        return folded
    deltas = lake.past(repo).diff(snapshot.committed, snapshot.tree, WHOLE_ROW, start, stop)
    rows = pa.concat_tables([NO_CHANGES, *(some.select(CHANGES.names) for some in deltas)]).combine_chunks()
    return folded.over(Changes(rows))


@contextmanager
def folding(lake: Lake, repo: Repository, branch: str, basis: Basis) -> Iterator[None]:
    """While what `basis` names is folded. If it falls off the branch and is taken away before it was read, that is a
    ContentionError, and no damage."""
    try:
        yield
    except CorruptError as error:
        if error.kind is not Kind.MISSING_FILE or lake.branches(repo).get(branch).holds(basis):
            raise
        raise ContentionError(
            Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} changed faster than it could be folded: try again"
        ) from error


def of_record(lake: Lake, repo: Repository, record: Branch, layers: tuple[Layer, ...]) -> Snapshot:
    """What the record shows of its tree and these of its layers."""
    tree = lake.commits(repo).get(record.commit).tree
    return Snapshot(record.compacted or tree, lake.stack_of(repo, layers), tree)


def is_late(lake: Lake, seen_s: float) -> bool:
    """Whether a record read at `seen_s` may name what has been taken away since."""
    return lake.world.monotonic_s() - seen_s >= lake.settings.grace_s / 2


def has_layers(lake: Lake, repo: Repository, branch: str, record: Branch) -> bool:
    """Whether the branch still has every layer, and the compacted tree, that the record has."""
    now = lake.branches(repo).find(branch)
    if now is None or record.compacted not in (None, now.compacted):
        return False
    return {layer.id for layer in record.layers} <= {layer.id for layer in (now.open_layer, *now.layers)}


def _still_there(lake: Lake, repo: Repository, found: Ref) -> bool:
    """Whether every layer that was looked into is still on its branch."""
    return found.branch is None or found.record is None or has_layers(lake, repo, found.branch, found.record)
