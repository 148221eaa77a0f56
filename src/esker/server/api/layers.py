"""Layers of a branch: what is staged on it, compaction, stashes."""

from typing import Literal

from esker.auth import Need
from esker.engine import branches, compaction, stashes
from esker.engine.policy import Compaction
from esker.server import wire
from esker.server.call import Call, NoQuery, Operation
from esker.tree.merge import Strategy


class PopQuery(NoQuery, frozen=True, kw_only=True):
    """What decides where both sides changed something."""

    strategy: Literal["", "source-wins", "dest-wins"] = ""


class CompactQuery(NoQuery, frozen=True, kw_only=True):
    """How far."""

    kind: Literal["minor", "major"] = "major"


def list_layers(call: Call[NoQuery, None]) -> wire.LayerList:
    """What a reader of a branch goes through, top first: nothing, of one on which nothing is staged."""
    found = branches.layers(call.lake, call.repo, call.path["branch"])
    return wire.LayerList(
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
            for layer in found
        ]
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
