"""Stashes: what is staged on a branch, set aside under a name, and laid on top again.

They are part of the branch's record, so that setting aside is one swap: no crash can show the layers twice, or never.
On the commit that it was made at, a stash is laid on top as it is. On another it is merged, three ways: blindly, its
prefix deletes would hide what was committed since.
"""

from typing import Final

import pyarrow as pa

from esker.engine import layers, metrics, protection
from esker.engine.commit import fold
from esker.engine.lake import Lake
from esker.engine.protection import Action
from esker.engine.snapshots import folding, of_record, staged
from esker.errors import ConflictError, ContentionError, InvalidError, Kind, NotFoundError
from esker.model import FileName, Layer, Repository, Stash
from esker.refs.names import check_tag, did_you_mean
from esker.refs.records import Basis, Branch
from esker.streams.entries import CHANGES, NO_CHANGES
from esker.streams.rows import WHOLE_ROW, Changes
from esker.tree.merge import Strategy

_TRIES_MAX: Final = 100

STASHES_MAX: Final = 100
"""On one branch: they are part of its record."""

LAYERS_MAX: Final = 16
"""Of a stash, as it is. More are folded."""


@metrics.measured("stash")
def stash(lake: Lake, repo: Repository, branch: str, name: str) -> Stash:
    """Set aside all that is staged. InvalidError if nothing is, ConflictError if the name is taken."""
    check_tag(name, "stash")
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    branches = lake.branches(repo)
    for _ in range(_TRIES_MAX):
        seen = branches.update(branch, lambda record: record.rotated(branches.fresh_token()))
        assert seen is not None
        basis = seen.basis()
        if seen.clean:
            raise InvalidError(
                Kind.NO_CHANGES, f"nothing is staged on {branch!r} of {repo.name!r}, so nothing to stash"
            )
        _check_room(seen, branch, name)  # before anything is written
        with folding(lake, repo, branch, basis):
            set_aside = _layers(lake, repo, branch, seen)
        made = Stash(commit=seen.commit, layers=set_aside, made_ms=lake.world.now_ms())

        def aside(record: Branch, made: Stash = made, basis: Basis = basis) -> Branch | None:
            _check_room(record, branch, name)
            return record.stashed(name, made, basis)

        if branches.update(branch, aside):
            return made
    raise _overtaken(repo, branch)


@metrics.measured("pop")
def pop(lake: Lake, repo: Repository, branch: str, name: str, *, strategy: Strategy = Strategy.NONE) -> None:
    """Lay a stash on top of what is there, and forget it. On another commit than its own, ConflictError with the paths
    that changed on both sides, unless a strategy decides; the stash stays, then."""
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    branches = lake.branches(repo)
    for _ in range(_TRIES_MAX):
        record = branches.get(branch)
        found = _find(record, repo, branch, name)
        if record.commit == found.commit:

            def on_top(now: Branch, found: Stash = found) -> Branch | None:
                fresh = [layers.again(lake, repo, branch, now, layer) for layer in found.layers]
                return now.popped(name, found, fresh, branches.fresh_token())

            if branches.update(branch, on_top):
                return
        elif _pop_merged(lake, repo, branch, name, found, strategy):
            return
    raise _overtaken(repo, branch)


def drop(lake: Lake, repo: Repository, branch: str, name: str) -> None:
    """Forget a stash, and what is in it."""
    protection.check(lake, repo, branch, Action.STAGING_WRITE)
    branches = lake.branches(repo)

    def without(record: Branch) -> Branch | None:
        _find(record, repo, branch, name)
        return record.stash_dropped(name)

    branches.update(branch, without)


def every(lake: Lake, repo: Repository, branch: str) -> dict[str, Stash]:
    """The stashes of a branch, by name."""
    return dict(sorted(lake.branches(repo).get(branch).stashes.items()))


def _layers(lake: Lake, repo: Repository, branch: str, seen: Branch) -> tuple[Layer, ...]:
    """All that is staged as layers: a compacted tree laid over another commit would revert it. Many as one, since they
    stay in the record. Without guards, as one that nobody can write to: a write that is held up may still land in a
    token, and would come back with the stash."""
    basis = seen.basis()
    writable = not lake.kv.guards and any(layer.token for layer in basis.layers)
    if writable or len(basis.layers) > LAYERS_MAX:
        whole = staged(lake, repo, of_record(lake, repo, seen, basis.layers))
        return (layers.write(lake, repo, f"{branch}/L2", whole),)
    if seen.compacted is None:
        return basis.layers
    compacted = staged(lake, repo, of_record(lake, repo, seen, ()))
    return (*basis.layers, layers.write(lake, repo, f"{branch}/L2", compacted))


def _check_room(record: Branch, branch: str, name: str) -> None:
    if name in record.stashes:
        raise ConflictError(Kind.STASH_EXISTS, f"branch {branch!r} has a stash {name!r} already: pop or drop it")
    if len(record.stashes) >= STASHES_MAX:
        raise InvalidError(Kind.TOO_MANY_LAYERS, f"branch {branch!r} has {STASHES_MAX} stashes: pop or drop some")


def _pop_merged(lake: Lake, repo: Repository, branch: str, name: str, found: Stash, strategy: Strategy) -> bool:
    branches, past, commits = lake.branches(repo), lake.past(repo), lake.commits(repo)
    seen = branches.update(branch, lambda record: record.rotated(branches.fresh_token()))
    assert seen is not None
    basis = seen.basis()
    base = commits.get(found.commit).tree
    with folding(lake, repo, branch, basis):
        source = past.apply(base, lake.stack_of(repo, found.layers).fold())
        dest = fold(lake, repo, commits.get(seen.commit).tree, basis)
        merged = past.merge(base, source, dest, strategy)
    if merged.tree is None:
        shown = ", ".join(map(repr, merged.conflicts[:3])) + ("..." if len(merged.conflicts) > 3 else "")
        raise ConflictError(
            Kind.MERGE_CONFLICT,
            f"stash {name!r} and branch {branch!r} of {repo.name!r} both changed {shown}: choose a strategy",
            merged.conflicts,
        )
    rows = _leading(lake, repo, dest, merged.tree)
    brought = [layers.write(lake, repo, f"{branch}/L1", Changes(rows))] if rows.num_rows else []

    def on_top(now: Branch) -> Branch | None:
        fresh = [layers.again(lake, repo, branch, now, layer) for layer in brought]
        return now.pop_merged(name, found, fresh, basis, branches.fresh_token())

    return branches.update(branch, on_top) is not None


def _leading(lake: Lake, repo: Repository, left: FileName, right: FileName) -> pa.Table:
    """The changes that lead from one tree to another."""
    deltas = lake.past(repo).diff(left, right, WHOLE_ROW)
    return pa.concat_tables([NO_CHANGES, *(some.select(CHANGES.names) for some in deltas)]).combine_chunks()


def _find(record: Branch, repo: Repository, branch: str, name: str) -> Stash:
    found = record.stashes.get(name)
    if found is None:
        close = did_you_mean(name, record.stashes)
        raise NotFoundError(Kind.STASH_NOT_FOUND, f"no stash {name!r} on {branch!r} of {repo.name!r}{close}")
    return found


def _overtaken(repo: Repository, branch: str) -> ContentionError:
    return ContentionError(Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} kept changing: try again")
