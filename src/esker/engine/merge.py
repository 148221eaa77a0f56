"""Merge, revert and cherry-pick: three-way merges of trees, each landed on a branch in one commit; and moving a branch.

When the destination moves during a merge, it is merged again into the new head, from the true base of source and head:
the result is always that of a merge from scratch. What has been worked out is not worked out again, though: a `Memo`
remembers what the source changed, and what became of each range of the destination under that.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from esker.activity import check_age, step
from esker.engine import hints, metrics, protection, releases
from esker.engine.commit import NO_METADATA, record_commit
from esker.engine.lake import Lake
from esker.engine.landing import clean_head, land
from esker.engine.protection import Action
from esker.engine.refs import commit_of
from esker.errors import ConflictError, ContentionError, EskerError, InvalidError, Kind
from esker.format.names import digest_of
from esker.model import Commit, CommitID, Digest, FileName, Repository
from esker.refs import history
from esker.tree.merge import Memo, Strategy

_NAMED_CONFLICTS: Final = 3


@metrics.measured("merge")
def merge(
    lake: Lake,
    repo: Repository,
    source: str,
    branch: str,
    *,
    strategy: Strategy = Strategy.NONE,
    message: str = "",
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
    squash: bool = False,
    allow_empty: bool = False,
    expected_head: CommitID | None = None,
    hint: str | None = None,
    check: Callable[[CommitID], object] | None = None,
) -> CommitID:
    """Bring what `source` has changed since it parted from `branch` into it: the merge commit.

    A protected branch can be merged into: that is how it changes. ConflictError with all paths that both changed
    differently, unless a strategy decides. With `expected_head`,
    PreconditionError unless the branch is there. A ContentionError has a hint: pass it to the next try.

    `check` is called once, in the caller's thread and before anything lands, with a commit of what the merge comes to;
    what it raises refuses the merge. If others land before it does, what lands has their changes, too, and is not
    checked again: with `expected_head` it is the very tree that was checked.
    """
    protection.check_writable(repo)
    source_id = commit_of(lake, repo, source)
    commits = lake.commits(repo)
    terms = (lake, repo, source_id, branch, strategy, squash)
    memo = Memo([hints.take(*terms, hint)] if hint else [])
    built_on = partial(releases.check, lake, repo, source_id)

    def sides(head: CommitID) -> tuple[CommitID, _Sides]:
        base = history.merge_base(commits.get, source_id, head)
        if base is None:
            raise InvalidError(Kind.NO_MERGE_BASE, f"{source!r} and {branch!r} of {repo.name!r} share no history")
        return base, _Sides(*(commits.get(commit).tree for commit in (base, source_id, head)))

    def ahead(head: CommitID, is_mine: Callable[[Digest], bool]) -> None:
        lake.past(repo).merge_ahead(*sides(head)[1], strategy, memo, is_mine)

    def make(head: CommitID) -> CommitID:
        base, trees = sides(head)
        releases.check(lake, repo, source_id, base)  # the base is read, not built on: of use here, and no longer
        tree = _merged(lake, repo, trees, strategy, memo, f"merging {source!r} into {branch!r}")
        if not allow_empty and (base == source_id or (squash and digest_of(tree) == digest_of(commits.get(head).tree))):
            raise InvalidError(Kind.NO_CHANGES, f"nothing to merge: {branch!r} already has all of {source!r}")
        parents = (head,) if squash else (head, source_id)
        text = message or f"Merge {source!r} into {branch!r}"
        return record_commit(
            lake, repo, tree=tree, parents=parents, message=text, committer=committer, metadata=metadata
        )

    if check:
        check(make(expected_head or clean_head(lake, repo, branch)))
    try:
        return land(lake, repo, branch, make, ahead=ahead, expected=expected_head, wanted=built_on)
    except ContentionError as error:
        with suppress(EskerError):  # without a hint, the next try works it out again
            check_age(lake.world.now_ms())
            error.hint = hints.give(*terms, memo.known[-1]) if memo.known else ""
        raise


@metrics.measured("revert")
def revert(
    lake: Lake,
    repo: Repository,
    branch: str,
    ref: str,
    *,
    parent: int = 0,
    message: str = "",
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
    allow_empty: bool = False,
) -> CommitID:
    """Undo on `branch` what `ref` changed against its parent (of a merge: the `parent`-th, from 1): the new commit."""
    protection.check(lake, repo, branch, Action.COMMIT)
    undone_id = commit_of(lake, repo, ref)
    undone = lake.commits(repo).get(undone_id)
    against = _parent(ref, undone, parent, missing=ConflictError)
    before = _tree(lake, repo, against)
    built_on = partial(releases.check, lake, repo, undone_id, *against)
    memo = Memo()

    def sides(head: CommitID) -> _Sides:
        return _Sides(undone.tree, before, lake.commits(repo).get(head).tree)

    def ahead(head: CommitID, is_mine: Callable[[Digest], bool]) -> None:
        lake.past(repo).merge_ahead(*sides(head), Strategy.NONE, memo, is_mine)

    def make(head: CommitID) -> CommitID:
        built_on()
        trees = sides(head)
        tree = _merged(lake, repo, trees, Strategy.NONE, memo, f"reverting {ref!r} on {branch!r}")
        if digest_of(tree) == digest_of(trees.dest) and not allow_empty:
            raise InvalidError(Kind.NO_CHANGES, f"nothing of {ref!r} is left on {branch!r} to revert")
        text = message or f"Revert {ref}"
        return record_commit(
            lake, repo, tree=tree, parents=(head,), message=text, committer=committer, metadata=metadata
        )

    return land(lake, repo, branch, make, ahead=ahead, wanted=built_on)


@metrics.measured("cherry-pick")
def cherry_pick(
    lake: Lake,
    repo: Repository,
    branch: str,
    ref: str,
    *,
    parent: int = 0,
    message: str = "",
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
) -> CommitID:
    """Make on `branch` the change that `ref` made against its parent (of a merge: the `parent`-th): the new commit.

    Message and metadata are the picked commit's, unless given; metadata tells where it came from.
    """
    protection.check(lake, repo, branch, Action.COMMIT)
    picked_id = commit_of(lake, repo, ref)
    picked = lake.commits(repo).get(picked_id)
    against = _parent(ref, picked, parent, missing=InvalidError)
    before = _tree(lake, repo, against)
    built_on = partial(releases.check, lake, repo, picked_id, *against)
    memo = Memo()
    origin = {"cherry-pick-origin": picked_id, "cherry-pick-committer": picked.committer}

    def sides(head: CommitID) -> _Sides:
        return _Sides(before, picked.tree, lake.commits(repo).get(head).tree)

    def ahead(head: CommitID, is_mine: Callable[[Digest], bool]) -> None:
        lake.past(repo).merge_ahead(*sides(head), Strategy.NONE, memo, is_mine)

    def make(head: CommitID) -> CommitID:
        built_on()
        trees = sides(head)
        tree = _merged(lake, repo, trees, Strategy.NONE, memo, f"picking {ref!r} onto {branch!r}")
        if digest_of(tree) == digest_of(trees.dest):
            raise InvalidError(Kind.NO_CHANGES, f"{branch!r} already has the change of {ref!r}")
        return record_commit(
            lake,
            repo,
            tree=tree,
            parents=(head,),
            message=message or picked.message,
            committer=committer,
            metadata={**picked.metadata, **metadata, **origin},
        )

    return land(lake, repo, branch, make, ahead=ahead, wanted=built_on)


@metrics.measured("move")
def move(lake: Lake, repo: Repository, branch: str, ref: str) -> None:
    """Point `branch` at any commit: a hard reset. Refused if anything is staged on it."""
    protection.check(lake, repo, branch, Action.COMMIT)
    target = commit_of(lake, repo, ref)
    built_on = partial(releases.check, lake, repo, target)

    def make(_: CommitID) -> CommitID:
        built_on()
        return target

    land(lake, repo, branch, make, wanted=built_on)


class _Sides(NamedTuple):
    base: FileName
    source: FileName
    dest: FileName


@step("merge trees")
def _merged(lake: Lake, repo: Repository, trees: _Sides, strategy: Strategy, memo: Memo, doing: str) -> FileName:
    merged = lake.past(repo).merge(*trees, strategy, memo)
    if merged.tree is None:
        shown = ", ".join(map(repr, merged.conflicts[:_NAMED_CONFLICTS]))
        more = (
            "" if len(merged.conflicts) <= _NAMED_CONFLICTS else f" and {len(merged.conflicts) - _NAMED_CONFLICTS} more"
        )
        raise ConflictError(
            Kind.MERGE_CONFLICT, f"{doing} in {repo.name!r}: both sides changed {shown}{more}", merged.conflicts
        )
    return merged.tree


def _parent(
    ref: str, commit: Commit, parent: int, *, missing: type[ConflictError] | type[InvalidError]
) -> tuple[CommitID, ...]:
    """What the commit is to be compared with: one of its parents; none, if it has none."""
    n = len(commit.parents)
    if parent == 0 and n > 1:
        raise missing(
            Kind.NEEDS_PARENT, f"{ref!r} is a merge of {n} parents: say which of them to compare it with, from 1"
        )
    if not 0 <= parent <= max(n, 1):
        raise InvalidError(Kind.NEEDS_PARENT, f"{ref!r} has {n} parents, so no parent number {parent}")
    at = max(parent, 1) - 1
    return commit.parents[at : at + 1]


def _tree(lake: Lake, repo: Repository, parent: tuple[CommitID, ...]) -> FileName:
    """The parent's tree; without one, the empty tree."""
    return lake.commits(repo).get(parent[0]).tree if parent else lake.past(repo).empty()
