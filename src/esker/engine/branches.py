"""Branches: create, list, look into, delete."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from esker.engine import releases
from esker.engine.lake import Lake
from esker.engine.protection import check_writable
from esker.engine.refs import commit_of
from esker.errors import ForbiddenError, Kind
from esker.format.names import digest_of
from esker.model import CommitID, Layer, Repository
from esker.refs.names import check_branch
from esker.refs.records import Branch
from esker.staging import tokens
from esker.stores.kv import SCAN_LIMIT_MAX


def create(lake: Lake, repo: Repository, name: str, source: str, *, hidden: bool = False) -> CommitID:
    """A branch at what `source` names, without what is staged there. One record, however large the repository."""
    check_branch(name)
    check_writable(repo)
    commit = commit_of(lake, repo, source)
    make = partial(lake.branches(repo).create, name, commit, hidden=hidden)
    releases.build_on(lake, repo, [commit], make, lambda _: delete(lake, repo, name))
    return commit


def every(lake: Lake, repo: Repository, *, after: str = "", hidden: bool = False) -> Iterator[tuple[str, Branch]]:
    """Branches whose names come after `after`, in order; hidden ones only if asked for."""
    for name, record in lake.branches(repo).page(after, 1000):
        if hidden or not record.hidden:
            yield name, record


class LayerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A layer of a branch, for people to look at."""

    level: str
    """`open`, `sealed`, `L1`, `L2` or `compacted`."""
    id: str
    rows: int
    more: bool = False
    """Whether there are more rows than were counted."""
    tombstones: int = 0
    bytes: int = 0
    files: int = 0
    deletes: int = 0
    """Of prefixes."""
    made_ms: int = 0
    """0: not known."""


class Staged(NamedTuple):
    """What lies over the commit of a branch."""

    layers: list[LayerInfo]
    """As a reader goes through them, top first: none, of a clean branch."""
    compacting_since_ms: int | None
    """When somebody began to fold them, who is at it still, or was stopped."""


def staged(lake: Lake, repo: Repository, name: str) -> Staged:
    """What is staged on a branch, for people to look at."""
    record = lake.branches(repo).get(name)
    found = []
    for layer in record.layers:
        if layer.token:
            level = "open" if layer.token == record.token else "sealed"
            items = lake.kv.scan(tokens.partition(layer.token), limit=SCAN_LIMIT_MAX)
            gone = sum(item.record.value == tokens.TOMBSTONE for item in items)
            size = sum(len(item.record.value) for item in items)
            more = len(items) == SCAN_LIMIT_MAX
            found.append(LayerInfo(level=level, id=layer.id, rows=len(items), more=more, tombstones=gone, bytes=size))
        else:
            found.append(_of_tables("L2" if layer is record.l2 else "L1", layer))
    if record.compacted:
        rows = lake.past(repo).size(record.compacted)
        found.append(LayerInfo(level="compacted", id=digest_of(record.compacted), rows=rows))
    return Staged(found, record.claim.started_ms if record.claim else None)


def _of_tables(level: str, layer: Layer) -> LayerInfo:
    prefixes = layer.more_deletes.count if layer.more_deletes else len(layer.deletes)
    return LayerInfo(
        level=level,
        id=layer.id,
        rows=layer.count,
        tombstones=layer.tombstones,
        bytes=sum(table.bytes for table in layer.tables),
        files=len(layer.files),
        deletes=prefixes,
        made_ms=layer.made_ms,
    )


def delete(lake: Lake, repo: Repository, name: str) -> None:
    """Delete a branch and what is staged on it. The default branch cannot be."""
    check_writable(repo)
    if name == repo.default_branch:
        raise ForbiddenError(Kind.DEFAULT_BRANCH, f"{name!r} is the default branch of {repo.name!r}, and stays")
    branches = lake.branches(repo)
    branches.update(name, lambda record: record.removed(branches.fresh_token()))
