"""Reset: drop what is staged on a branch, all of it or under a prefix.

All of it is one swap. Of a prefix: a layer that says of each path changed under it what the commit says, laid on top of
everything, if the commit and the layers that were looked at are still there. So it takes effect at one moment, that of
its swap: what was acknowledged before under the prefix is undone as far as it was looked at, and later writes stay. A
commit in flight folds the layers below, and cannot undo it.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import cleaning, layers, metrics, protection, sensor
from esker.engine.entries import check_path, check_prefix
from esker.engine.lake import Lake
from esker.engine.protection import Action
from esker.engine.snapshots import Snapshot, folding, of_record, staged
from esker.errors import ContentionError, Kind
from esker.model import Layer, Repository
from esker.refs.records import Basis, Branch
from esker.staging.tables import UNKNOWN
from esker.streams.arrays import after_prefix
from esker.streams.entries import CHANGES, NO_CHANGES, changes_of
from esker.streams.prefixes import minimal
from esker.streams.rows import WHOLE_ROW, Changes

_TRIES_MAX: Final = 100


@metrics.measured("reset")
def reset(lake: Lake, repo: Repository, branch: str) -> None:
    """Drop everything that is staged."""
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    branches = lake.branches(repo)
    done = branches.update(branch, lambda record: record.reset(branches.fresh_token()))
    if done:
        sensor.of(lake).changed(repo, branch, done)
        cleaning.relieve(lake, repo, branch, done)


def reset_prefix(lake: Lake, repo: Repository, branch: str, prefix: str) -> None:
    """Drop what is staged of paths that begin with `prefix`."""
    check_prefix(prefix)
    if prefix == "":
        reset(lake, repo, branch)
        return

    def committed(seen: Snapshot) -> pa.Table:
        changes = clipped(staged(lake, repo, seen, prefix, after_prefix(prefix)), prefix)
        deltas = list(lake.past(repo).preview(seen.committed, changes, WHOLE_ROW))
        return pa.concat_tables([NO_CHANGES, *map(_undone, deltas)]).combine_chunks()

    _restore(lake, repo, branch, committed)


def reset_path(lake: Lake, repo: Repository, branch: str, path: str) -> None:
    """Drop what is staged of one path."""
    check_path(path)

    def committed(seen: Snapshot) -> pa.Table:
        entry = lake.past(repo).get(seen.committed, path)
        untouched = seen.stack is None or seen.stack.lookup(path) is UNKNOWN
        if untouched and (seen.tree == seen.committed or lake.past(repo).get(seen.tree, path) == entry):
            return NO_CHANGES
        return changes_of([entry] if entry else [], [path])

    _restore(lake, repo, branch, committed)


@metrics.measured("reset")
def _restore(lake: Lake, repo: Repository, branch: str, committed: Callable[[Snapshot], pa.Table]) -> None:
    """Lay what `committed` makes of all that is staged on top."""
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    branches = lake.branches(repo)
    for _ in range(_TRIES_MAX):
        seen = branches.update(branch, lambda record: record.rotated(branches.fresh_token()))
        assert seen is not None
        basis = seen.basis()
        with folding(lake, repo, branch, basis):
            changes = committed(of_record(lake, repo, seen, basis.layers))
        if changes.num_rows == 0:
            if branches.get(branch).holds(basis):
                return
            continue  # what fell off meanwhile may be gone, unnoticed
        layer = layers.write(lake, repo, f"{branch}/L1", Changes(changes))

        def on_top(now: Branch, basis: Basis = basis, layer: Layer = layer) -> Branch | None:
            again = layers.again(lake, repo, branch, now, layer)
            return now.restored(again, branches.fresh_token(), basis=basis)

        if branches.update(branch, on_top):
            return
    raise ContentionError(Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} kept changing: try again")


def clipped(changes: Changes, prefix: str) -> Changes:
    """The changes, their prefix deletes confined to what lies under `prefix`."""
    inside = (deleted if deleted.startswith(prefix) else prefix for deleted in changes.deletes)
    overlapping = (
        kept
        for kept, deleted in zip(inside, changes.deletes, strict=True)
        if deleted.startswith(prefix) or prefix.startswith(deleted)
    )
    return Changes(changes.rows, minimal(overlapping))


def _undone(deltas: pa.Table) -> pa.Table:
    """The changes that lead back: what was there, or a tombstone."""
    columns = {name: deltas[f"was_{name}"] for name in WHOLE_ROW}
    return (
        pa.table({"path": deltas["path"], **columns, "tombstone": pc.invert(deltas["was"])})
        .select(CHANGES.names)
        .cast(CHANGES)
    )
