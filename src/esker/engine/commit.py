"""Commit: turn the staged changes of a branch into a new immutable tree.

    1. seal     the open token takes no more writes: what comes later belongs to the next commit     refs
    2. fold     the layers into one, newest wins, and apply it to the compacted or the parent's tree staging, tree
    3. record   the commit, to which nothing points yet                                              refs
    4. advance  swap the branch onto it, and the folded layers off it                                refs

A crash after any step leaves garbage, never damage. If another commit is first, it may have taken some of our layers:
we go on from what is there. Layers that were sealed meanwhile stay. The first step takes the claim that a compaction
needs to finish, so that none makes us fold again.
"""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from esker.activity import step
from esker.engine import cleaning, metrics, protection, sensor
from esker.engine.lake import Lake
from esker.engine.protection import Action
from esker.engine.snapshots import folding
from esker.errors import ContentionError, ForbiddenError, InvalidError, Kind
from esker.format.names import digest_of
from esker.model import Claim, Commit, CommitID, FileName, LayerID, Repository
from esker.refs.records import Basis, Branch

NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})

_TRIES_MAX: Final = 30
_NONCE_BYTES: Final = 8


@metrics.measured("commit")
def commit(
    lake: Lake,
    repo: Repository,
    branch: str,
    message: str,
    *,
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
    date_ms: int | None = None,
    allow_empty: bool = False,
) -> CommitID:
    """Commit all that was staged on `branch` before this call: the new commit. InvalidError if that changes nothing."""
    protection.check(lake, repo, branch, Action.COMMIT)
    branches = lake.branches(repo)
    claim = Claim(id=lake.world.token(_NONCE_BYTES), started_ms=lake.world.now_ms())
    with step("seal"):
        started = branches.update(branch, lambda record: record.claimed(claim, branches.fresh_token()))
    assert started is not None
    if started.layers_only:
        raise ForbiddenError(
            Kind.LAYERS_ONLY, f"branch {branch!r} of {repo.name!r} is that of a transaction: publish or abort it"
        )
    ours = {layer.id for layer in started.sealed}
    record = started
    for _ in range(_TRIES_MAX):
        basis = basis_to_fold(record, ours)
        if basis is None and not allow_empty:
            raise _nothing(repo, branch, started, record)
        basis = basis or record.basis(())
        parent = lake.commits(repo).get(record.commit)
        with folding(lake, repo, branch, basis):
            tree = fold(lake, repo, parent.tree, basis)
        if digest_of(tree) == digest_of(parent.tree) and not allow_empty:
            if drop(lake, repo, branch, basis):
                raise _nothing(repo, branch, started, record)
        else:
            made = record_commit(
                lake,
                repo,
                tree=tree,
                parents=(record.commit,),
                message=message,
                committer=committer,
                metadata=metadata,
                date_ms=date_ms,
            )
            with step("advance"):
                landed = branches.update(branch, partial(Branch.advanced, commit=made, basis=basis))
            if landed:
                sensor.of(lake).changed(repo, branch, landed)
                cleaning.relieve(lake, repo, branch, landed)
                return made
        record = branches.get(branch)
    raise ContentionError(Kind.CONTENTION, f"other commits to {branch!r} of {repo.name!r} kept winning: try again")


def basis_to_fold(record: Branch, ours: set[LayerID]) -> Basis | None:
    """The oldest layers, up to the newest of `ours` that is still there: a fold takes all that lies below. If none is,
    a compaction may have it: what was compacted, then. None if there is nothing."""
    for at, layer in enumerate(record.sealed):
        if layer.id in ours:
            return record.basis(record.sealed[at:])
    return None if record.l2 is None and record.compacted is None else record.basis(())


@step("fold")
def fold(lake: Lake, repo: Repository, tree: FileName, basis: Basis) -> FileName:
    """The tree of the commit, or what compaction made of it, with the layers over it."""
    below = basis.compacted or tree
    return lake.past(repo).apply(below, lake.stack_of(repo, basis.layers).fold()) if basis.layers else below


def drop(lake: Lake, repo: Repository, branch: str, basis: Basis) -> bool:
    """Take layers that change nothing off the branch, so that it is clean again. Whether they still were its oldest."""
    return lake.branches(repo).update(branch, partial(Branch.advanced, commit=basis.commit, basis=basis)) is not None


@step("record")
def record_commit(
    lake: Lake,
    repo: Repository,
    *,
    tree: FileName,
    parents: tuple[CommitID, ...],
    message: str,
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
    date_ms: int | None = None,
) -> CommitID:
    """Store a commit, to which nothing points yet."""
    history = lake.commits(repo)
    return history.put(
        Commit(
            tree=tree,
            parents=parents,
            committer=committer,
            message=message,
            date_ms=lake.world.now_ms() if date_ms is None else date_ms,
            metadata=dict(metadata),
            generation=1 + max((history.get(parent).generation for parent in parents), default=0),
            nonce=lake.world.token(_NONCE_BYTES),
        ),
    )


def _nothing(repo: Repository, branch: str, started: Branch, now: Branch) -> InvalidError:
    taken = "" if now.commit == started.commit else f": commit {now.commit[:12]} took what was staged, or a reset did"
    return InvalidError(Kind.NO_CHANGES, f"nothing to commit on {branch!r} of {repo.name!r}{taken}")
