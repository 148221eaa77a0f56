"""Laying whole layers on a branch: prefix deletes, and tables of changes of any size.

    1. write    the tables, to which nothing points yet      staging
    2. append   one swap: the layer is on top of all that was acknowledged before

A lost swap is swapped again, and nothing is written again.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from esker.engine import sensor
from esker.engine.lake import Lake
from esker.engine.snapshots import present
from esker.errors import ContentionError, ForbiddenError, Kind, PreconditionError
from esker.model import Entry, Layer, LayerID, Repository
from esker.refs.records import LAYERS_MAX, Branch
from esker.streams.entries import changes_of
from esker.streams.prefixes import minimal
from esker.streams.rows import Changes

_TRIES_MAX: Final = 100
_ID_BYTES: Final = 12

DELETES_MAX: Final = 32
"""Prefix deletes in the record of a branch, for each layer. More go to a table: the record is read by everybody."""


def append(lake: Lake, repo: Repository, branch: str, changes: Changes) -> Branch:
    """Lay changes on top of everything that was acknowledged before: the record installed, or a later one."""
    lake.branches(repo).get(branch)  # before anything is uploaded
    layer = write(lake, repo, f"{branch}/L1", changes)
    return lay(lake, repo, branch, layer)


def lay(lake: Lake, repo: Repository, branch: str, layer: Layer) -> Branch:
    """Lay a written layer on top."""
    branches = lake.branches(repo)

    def on_top(record: Branch) -> Branch:
        return record.appended([again(lake, repo, branch, record, layer)], branches.fresh_token())

    installed = branches.update(branch, on_top)
    assert installed is not None, "a layer can always be laid on top"
    sensor.of(lake).appended(repo, branch, installed)
    return installed


def append_if_absent(lake: Lake, repo: Repository, branch: str, entries: Sequence[Entry]) -> set[str]:
    """Stage those entries whose paths are absent, as one layer: the paths that were there. Exact on every store.

    The layer is laid by a swap that succeeds only on the very record under which the paths were absent, its token
    clean: whatever could have come between would have changed the record. So nothing is written again but what a race
    made smaller.
    """
    branches = lake.branches(repo)
    layer: Layer | None = None
    absent: list[Entry] = []
    for _ in range(_TRIES_MAX):
        seen = branches.update(branch, lambda record: record.rotated(branches.fresh_token()))
        assert seen is not None
        if seen.dirty:
            continue  # sealed by us, and written to again before we were told
        there = {entry.path for entry in entries if present(lake, repo, seen, entry.path)}
        if len(there) == len(entries):
            if not branches.get(branch).is_same_moment(seen):
                continue  # what was looked at is past
            return there
        wanted = [entry for entry in entries if entry.path not in there]
        if layer is None or wanted != absent:
            layer, absent = write(lake, repo, f"{branch}/L1", Changes(changes_of(wanted))), wanted

        def on_top(record: Branch, seen: Branch = seen, layer: Layer = layer) -> Branch | None:
            if not record.is_same_moment(seen):
                return None
            return record.appended([again(lake, repo, branch, record, layer)], branches.fresh_token())

        if branches.update(branch, on_top):
            return there
    raise ContentionError(Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} kept changing: try again")


def write(lake: Lake, repo: Repository, where: str, changes: Changes) -> Layer:
    """A layer of these changes, its tables written for a branch and level: `main/L1`. Nothing points to it yet."""
    tables = lake.tables(repo)
    deletes = minimal(changes.deletes)
    many = len(deletes) > DELETES_MAX
    return Layer(
        id=fresh_id(lake),
        tables=tables.write(changes.rows, where) if changes.rows.num_rows else (),
        deletes=() if many else deletes,
        more_deletes=tables.write_prefixes(changes_of(deletes=deletes), where) if many else None,
        made_ms=lake.world.now_ms(),
    )


def again(lake: Lake, repo: Repository, branch: str, record: Branch, layer: Layer) -> Layer:
    """The layer under an id of its own, for one attempt to lay it, if the record has room for one more."""
    if len(record.sealed) >= LAYERS_MAX:
        raise ForbiddenError(
            Kind.TOO_MANY_LAYERS,
            f"branch {branch!r} of {repo.name!r} has {LAYERS_MAX} staged layers: commit or compact it first",
        )
    return msgspec.structs.replace(layer, id=fresh_id(lake))


def fresh_id(lake: Lake) -> LayerID:
    return LayerID(lake.world.token(_ID_BYTES))


def already_there(repo: Repository, branch: str, path: str) -> PreconditionError:
    return PreconditionError(Kind.OBJECT_EXISTS, f"object {path!r} already exists on {branch!r} of {repo.name!r}")
