"""Rename: an object, or all that is in a directory, under another path at once; bytes stay where they are.

    1. look    at what is there, on a record of the branch that nothing is written to
    2. write   one layer: the old paths deleted, all of it put under the new ones
    3. lay     it on that very record: if somebody wrote in between, look again

Paths have no directories; one is what is under a path and a '/'.
"""

from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import layers, metrics, pressure, protection
from esker.engine.entries import check_path
from esker.engine.lake import Lake
from esker.engine.protection import Action
from esker.engine.snapshots import Snapshot, entry_at
from esker.errors import InvalidError, Kind, NotFoundError, PreconditionError
from esker.model import Entry, Layer, Repository
from esker.refs.records import Branch
from esker.staging.stack import View
from esker.streams.arrays import after_prefix
from esker.streams.entries import NO_ENTRIES, PATH_BYTES_MAX, as_changes, changes_of
from esker.streams.listing import Seek, Sorted, page
from esker.streams.rows import Changes, outside, overlay

_SEPARATOR: Final = "/"


@metrics.measured("rename")
def rename(lake: Lake, repo: Repository, branch: str, source: str, target: str, *, overwrite: bool = False) -> int:
    """Move the object at `source`, or else what is in the directory of that name: how many objects that was.

    NotFoundError if there is neither. PreconditionError if anything is at `target` or in a directory of that name
    (with `overwrite`, an object takes another's place, and an empty directory that of another), or if what should be a
    directory above it is an object.
    """
    source, target = source.removesuffix(_SEPARATOR), target.removesuffix(_SEPARATOR)
    check_path(source)
    check_path(target)
    if (target + _SEPARATOR).startswith(source + _SEPARATOR):
        raise InvalidError(Kind.INVALID_PATH, f"{source!r} cannot be moved to {target!r}, into itself")
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    pressure.make_room(lake, repo, branch)
    moved = 0

    def decide(seen: Branch) -> Layer | None:
        nonlocal moved
        tree = lake.commits(repo).get(seen.commit).tree
        snapshot = Snapshot(seen.compacted or tree, lake.stack(repo, seen), tree)
        changes, moved = _moved(lake, repo, snapshot, source, target)
        if not moved:
            return None
        _check_free(lake, repo, branch, snapshot, target, overwrite=overwrite, is_object=not changes.deletes)
        return layers.write(lake, repo, f"{branch}/L1", changes)

    if not layers.lay_upon(lake, repo, branch, decide):
        raise NotFoundError(Kind.OBJECT_NOT_FOUND, f"nothing is at {source!r} on {branch!r} of {repo.name!r}")
    return moved


def _moved(lake: Lake, repo: Repository, snapshot: Snapshot, source: str, target: str) -> tuple[Changes, int]:
    """What moving does, and to how many objects."""
    entry = entry_at(lake, repo, snapshot, source)
    if entry:
        return Changes(changes_of([msgspec.structs.replace(entry, path=target)], [source])), 1
    inside = source + _SEPARATOR
    rows = _shown(lake, repo, snapshot, inside)
    if not rows.num_rows:
        return Changes(as_changes(rows)), 0
    paths = pc.utf8_replace_slice(rows["path"], 0, len(inside), target + _SEPARATOR)
    longest = pc.max(pc.binary_length(paths)).as_py()
    if longest > PATH_BYTES_MAX:
        raise InvalidError(
            Kind.INVALID_PATH, f"under {target!r} a path would have {longest} bytes, and {PATH_BYTES_MAX} are the most"
        )
    # One prefix before all of them took the place of another, so they are in order still.
    return Changes(as_changes(rows.set_column(0, rows.schema.field("path"), paths)), (inside,)), rows.num_rows


def _shown(lake: Lake, repo: Repository, snapshot: Snapshot, prefix: str) -> pa.Table:
    """The entries under a prefix."""
    below = pa.concat_tables([NO_ENTRIES, *lake.past(repo).scan(snapshot.tree, prefix=prefix)]).combine_chunks()
    if snapshot.stack is None:
        return below
    staged = snapshot.stack.fold(prefix, after_prefix(prefix))
    kept = outside(below, staged.deletes)
    under = below if kept is None else below.take(pa.array(kept))
    return overlay(under, staged.rows)[0]


def _check_free(
    lake: Lake, repo: Repository, branch: str, snapshot: Snapshot, target: str, *, overwrite: bool, is_object: bool
) -> None:
    """PreconditionError unless the target may be taken."""
    where = f"on {branch!r} of {repo.name!r}"
    parts = target.split(_SEPARATOR)
    for above in (_SEPARATOR.join(parts[:n]) for n in range(1, len(parts))):
        if above and entry_at(lake, repo, snapshot, above):
            raise PreconditionError(Kind.OBJECT_EXISTS, f"{above!r} {where} is an object, and no directory")
    if entry_at(lake, repo, snapshot, target) and not (overwrite and is_object):
        raise layers.already_there(repo, branch, target)
    inside = target + _SEPARATOR
    there = page(_seek(lake, repo, snapshot), prefix=inside, amount=2).items
    is_empty = [entry.path for entry in there if isinstance(entry, Entry)] == [inside]
    if there and not (overwrite and is_empty and not is_object):
        raise PreconditionError(Kind.OBJECT_EXISTS, f"there is a directory {target!r} already {where}")


def _seek(lake: Lake, repo: Repository, snapshot: Snapshot) -> Seek:
    past = lake.past(repo)

    def below(path: str) -> tuple[Sorted, int] | None:
        return past.seek(snapshot.tree, path)

    return below if snapshot.stack is None else View(snapshot.stack, below).seek
