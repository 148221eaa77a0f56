"""Laying whole layers on a branch: prefix deletes, and files of changes."""

from typing import Final

import pyarrow as pa

from esker.engine.lake import Lake
from esker.engine.snapshots import present
from esker.errors import ContentionError, ForbiddenError, Kind, PreconditionError
from esker.model import Entry, FileName, Layer, LayerID, Repository
from esker.refs.records import LAYERS_MAX, Branch
from esker.streams.entries import changes_of

_TRIES_MAX: Final = 100
_ID_BYTES: Final = 12


def append(
    lake: Lake, repo: Repository, branch: str, *, changes: pa.Table | None = None, deletes: tuple[str, ...] = ()
) -> None:
    """Lay a layer on top of everything that was acknowledged before."""
    branches = lake.branches(repo)
    file = None if changes is None else lake.past(repo).write_layer(changes)

    def on_top(record: Branch) -> Branch:
        return record.appended(fresh_layer(lake, repo, branch, record, file, deletes), branches.fresh_token())

    branches.update(branch, on_top)


def append_if_absent(lake: Lake, repo: Repository, branch: str, entry: Entry) -> None:
    """Stage an entry as a layer of its own if its path is absent: exact on a store without guarded puts, too.

    The layer is laid by a swap that succeeds only on the very record under which the path was absent, its token clean:
    whatever could have come between would have changed the record.
    """
    branches = lake.branches(repo)
    file: FileName | None = None
    for _ in range(_TRIES_MAX):
        seen = branches.update(branch, lambda record: record.rotated(branches.fresh_token()))
        assert seen is not None
        if seen.dirty:
            continue  # sealed by us, and written to again before we were told
        if present(lake, repo, seen, entry.path):
            if not branches.get(branch).is_same_moment(seen):
                continue  # what was looked at is past
            raise already_there(repo, branch, entry.path)
        file = file or lake.past(repo).write_layer(changes_of([entry]))

        def on_top(record: Branch, seen: Branch = seen, file: FileName = file) -> Branch | None:
            if not record.is_same_moment(seen):
                return None
            return record.appended(fresh_layer(lake, repo, branch, record, file, ()), branches.fresh_token())

        if branches.update(branch, on_top):
            return
    raise ContentionError(Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} kept changing: try again")


def fresh_layer(
    lake: Lake, repo: Repository, branch: str, record: Branch, file: FileName | None, deletes: tuple[str, ...]
) -> Layer:
    """A layer with an id of its own, if the record has room for one more."""
    if len(record.sealed) >= LAYERS_MAX:
        raise ForbiddenError(
            Kind.TOO_MANY_LAYERS, f"branch {branch!r} of {repo.name!r} has {LAYERS_MAX} staged layers: commit it first"
        )
    return Layer(id=LayerID(lake.world.token(_ID_BYTES)), file=file, deletes=deletes)


def already_there(repo: Repository, branch: str, path: str) -> PreconditionError:
    return PreconditionError(Kind.OBJECT_EXISTS, f"object {path!r} already exists on {branch!r} of {repo.name!r}")
