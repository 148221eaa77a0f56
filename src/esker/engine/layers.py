"""Laying whole layers on a branch: prefix deletes, and tables of changes of any size.

    1. write    the tables, to which nothing points yet      staging
    2. append   one swap: the layer is on top of all that was acknowledged before

A lost swap is swapped again, and nothing is written again.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from esker.activity import since
from esker.engine import sensor
from esker.engine.lake import Lake
from esker.engine.snapshots import present
from esker.errors import ContentionError, CorruptError, EskerError, ForbiddenError, Kind, PreconditionError
from esker.model import Entry, Layer, LayerID, Repository, Table
from esker.refs.records import LAYERS_MAX, Branch
from esker.stores.kv import VALUE_BYTES_MAX
from esker.streams.entries import changes_of
from esker.streams.prefixes import minimal
from esker.streams.rows import Changes

_TRIES_MAX: Final = 100
_ID_BYTES: Final = 12

RECORD_BYTES_MAX: Final = VALUE_BYTES_MAX * 3 // 4
"""Of a branch on which one more layer may be laid: what commits and compactions do to its record has to fit as well."""

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

    with since(layer.made_ms):
        installed = branches.update(branch, on_top)
    assert installed is not None, "a layer can always be laid on top"
    sensor.of(lake).changed(repo, branch, installed)
    return installed


def append_if_absent(lake: Lake, repo: Repository, branch: str, entries: Sequence[Entry]) -> set[str]:
    """Stage those entries whose paths are absent, as one layer: the paths that were there. Exact on every store.

    Nothing is written again but what a race made smaller.
    """
    there: set[str] = set()
    layer: Layer | None = None
    absent: list[Entry] = []

    def of_the_absent(seen: Branch) -> Layer | None:
        nonlocal there, layer, absent
        there = {entry.path for entry in entries if present(lake, repo, seen, entry.path)}
        wanted = [entry for entry in entries if entry.path not in there]
        if wanted and (layer is None or wanted != absent):
            layer, absent = write(lake, repo, f"{branch}/L1", Changes(changes_of(wanted))), wanted
        return layer if wanted else None

    lay_upon(lake, repo, branch, of_the_absent)
    return there


def lay_upon(lake: Lake, repo: Repository, branch: str, decide: Callable[[Branch], Layer | None]) -> bool:
    """Lay what `decide` makes of a record on that very record: whether it made anything.

    The token of the record is clean, so whatever is written in between changes the record, and `decide` is asked again.
    An error that it raises stands if the record still does; nothing, too.
    """
    branches = lake.branches(repo)
    for _ in range(_TRIES_MAX):
        seen = branches.update(branch, lambda record: record.rotated(branches.fresh_token()))
        assert seen is not None
        if seen.dirty:
            continue  # sealed by us, and written to again before we were told
        refusal: EskerError | None = None
        layer: Layer | None = None
        try:
            layer = decide(seen)
        except (CorruptError, PreconditionError) as error:  # layers that fell off may be gone already
            refusal = error
        if layer is None:
            if not branches.get(branch).is_same_moment(seen):
                continue  # what was looked at is past
            if refusal:
                raise refusal
            return False

        def on_top(record: Branch, seen: Branch = seen, layer: Layer = layer) -> Branch | None:
            if not record.is_same_moment(seen):
                return None
            return record.appended([again(lake, repo, branch, record, layer)], branches.fresh_token())

        with since(layer.made_ms):
            installed = branches.update(branch, on_top)
        if installed:
            sensor.of(lake).changed(repo, branch, installed)
            return True
    raise ContentionError(Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} kept changing: try again")


def write(lake: Lake, repo: Repository, where: str, changes: Changes, written: tuple[Table, ...] = ()) -> Layer:
    """A layer of these changes, its tables written for a branch and level: `main/L1`. If there are no rows, of tables
    that are `written` already. Nothing points to it yet."""
    tables = lake.tables(repo)
    deletes = minimal(changes.deletes)
    many = len(deletes) > DELETES_MAX
    with lake.past(repo).writing_behind():  # several tables at once, and their filters meanwhile
        return Layer(
            id=fresh_id(lake),
            tables=tables.write(changes.rows, where) if changes.rows.num_rows else written,
            deletes=() if many else deletes,
            more_deletes=tables.write_prefixes(changes_of(deletes=deletes), where) if many else None,
            made_ms=lake.world.now_ms(),
        )


def again(lake: Lake, repo: Repository, branch: str, record: Branch, layer: Layer) -> Layer:
    """The layer under an id of its own, for one attempt to lay it, if the record has room for one more."""
    size = len(msgspec.msgpack.encode(record))
    if len(record.sealed) >= LAYERS_MAX or size > RECORD_BYTES_MAX:
        raise ForbiddenError(
            Kind.TOO_MANY_LAYERS,
            f"branch {branch!r} of {repo.name!r} has {len(record.sealed)} staged layers, {size} bytes of them in its "
            "record: commit or compact it first",
        )
    return msgspec.structs.replace(layer, id=fresh_id(lake))


def fresh_id(lake: Lake) -> LayerID:
    return LayerID(lake.world.token(_ID_BYTES))


def already_there(repo: Repository, branch: str, path: str) -> PreconditionError:
    return PreconditionError(Kind.OBJECT_EXISTS, f"object {path!r} already exists on {branch!r} of {repo.name!r}")
