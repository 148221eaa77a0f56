"""Layers of a branch: what is staged on it, compaction, stashes."""

from typing import Final, Literal

from esker.auth import Need
from esker.engine import branches, compaction, prepared, stashes
from esker.engine.policy import Compaction
from esker.errors import InvalidError, Kind
from esker.model import CommitID
from esker.server import uploads, wire
from esker.server.call import Call, NoQuery, Operation
from esker.tree.merge import Strategy

LAYER_BYTES_MAX: Final = 256 << 20
"""Of a Parquet file that is sent: it is held in memory. Some ten million entries."""


class PopQuery(NoQuery, frozen=True, kw_only=True):
    """What decides where both sides changed something."""

    strategy: Literal["", "source-wins", "dest-wins"] = ""


class CompactQuery(NoQuery, frozen=True, kw_only=True):
    """How far."""

    kind: Literal["minor", "major"] = "major"


class LayerQuery(NoQuery, frozen=True, kw_only=True):
    """What the layer replaces, and what must hold when it is laid."""

    deletes: tuple[str, ...] = ()
    expect_absent: tuple[str, ...] = ()
    expect_head: str | None = None


def append_layer(call: Call[LayerQuery, None]) -> wire.Appended:
    """Stage any number of entries at once, all or nothing: the body is a Parquet file of them, sorted by path."""
    repo, query = call.writable_repo(), call.query
    received = bytearray()
    for chunk in uploads.chunks(call.request, call.lake.world):
        received += chunk
        if len(received) > LAYER_BYTES_MAX:
            raise InvalidError(
                Kind.INVALID_ARGUMENT, f"a layer is sent in at most {LAYER_BYTES_MAX} bytes: send it in several"
            )
    rows = prepared.append(
        call.lake,
        repo,
        call.path["branch"],
        bytes(received) if received else [],
        deletes=query.deletes,
        expect_absent=query.expect_absent,
        expect_head=CommitID(query.expect_head) if query.expect_head else None,
    )
    return wire.Appended(rows=rows)


def list_layers(call: Call[NoQuery, None]) -> wire.LayerList:
    """What a reader of a branch goes through, top first: nothing, of one on which nothing is staged."""
    found = branches.staged(call.lake, call.repo, call.path["branch"])
    since_ms = found.compacting_since_ms
    return wire.LayerList(
        compacting_since=None if since_ms is None else since_ms // 1000,
        results=[
            wire.Layer(
                level=layer.level,
                id=layer.id,
                rows=layer.rows,
                more=layer.more,
                tombstones=layer.tombstones,
                size_bytes=layer.bytes,
                files=layer.files,
                prefix_deletes=layer.deletes,
                creation_date=layer.made_ms // 1000,
            )
            for layer in found.layers
        ],
    )


def compact_branch(call: Call[CompactQuery, None]) -> wire.Compacted:
    """Fold what is staged, so that reads cost what reads of a clean branch do. It also happens by itself."""
    repo, branch = call.writable_repo(), call.path["branch"]
    call.lake.branches(repo).get(branch)
    folded = compaction.compact(call.lake, repo, branch, Compaction(call.query.kind), force=True)
    return wire.Compacted(compacted=folded)


def list_stashes(call: Call[NoQuery, None]) -> wire.StashList:
    """What was set aside, in order of names."""
    found = stashes.every(call.lake, call.repo, call.path["branch"])
    return wire.StashList(
        results=[
            wire.Stash(id=name, commit_id=stash.commit, layers=len(stash.layers), creation_date=stash.made_ms // 1000)
            for name, stash in found.items()
        ]
    )


def stash_branch(call: Call[NoQuery, None]) -> None:
    """Set aside all that is staged, under a name."""
    stashes.stash(call.lake, call.writable_repo(), call.path["branch"], call.path["stash"])


def pop_stash(call: Call[PopQuery, None]) -> None:
    """Lay a stash on top of what is there, and forget it. After commits since, it is merged."""
    stashes.pop(
        call.lake,
        call.writable_repo(),
        call.path["branch"],
        call.path["stash"],
        strategy=Strategy(call.query.strategy),
    )


def drop_stash(call: Call[NoQuery, None]) -> None:
    """Forget a stash, and what is in it."""
    stashes.drop(call.lake, call.writable_repo(), call.path["branch"], call.path["stash"])


_BRANCH = "/repositories/{repository}/branches/{branch}"
_STASH = f"{_BRANCH}/stashes/{{stash}}"

OPERATIONS = [
    Operation(
        id="appendLayer",
        method="POST",
        path=f"{_BRANCH}/layers",
        need=Need.WRITE,
        handler=append_layer,
        status=201,
        statuses=(412,),
        ours=True,
        upload=True,
    ),
    Operation(id="listLayers", method="GET", path=f"{_BRANCH}/layers", need=Need.READ, handler=list_layers, ours=True),
    Operation(
        id="compactBranch",
        method="POST",
        path=f"{_BRANCH}/compact",
        need=Need.WRITE,
        handler=compact_branch,
        ours=True,
    ),
    Operation(
        id="listStashes", method="GET", path=f"{_BRANCH}/stashes", need=Need.READ, handler=list_stashes, ours=True
    ),
    Operation(
        id="stashBranch",
        method="POST",
        path=_STASH,
        need=Need.WRITE,
        handler=stash_branch,
        status=204,
        statuses=(409,),
        ours=True,
    ),
    Operation(
        id="popStash",
        method="POST",
        path=f"{_STASH}/pop",
        need=Need.WRITE,
        handler=pop_stash,
        status=204,
        statuses=(409,),
        ours=True,
    ),
    Operation(id="dropStash", method="DELETE", path=_STASH, need=Need.WRITE, handler=drop_stash, status=204, ours=True),
]
