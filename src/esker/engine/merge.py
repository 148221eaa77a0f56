"""Merge, revert and cherry-pick: three-way merges of trees, landed on a branch in one commit; and moving a branch.

    1. look      at the head of the destination, which must be clean                  refs
    2. merge     base, source and destination                                          tree
    3. record    the commit, to which nothing points yet                               refs
    4. move      the branch from the head that was merged onto it, in one swap         refs

If the head has moved in between, or something was staged, it starts again from the new head.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from esker.engine import protection
from esker.engine.commit import NO_METADATA, drop, fold, record_commit
from esker.engine.lake import Lake
from esker.engine.protection import Action
from esker.engine.refs import commit_of
from esker.errors import ConflictError, ContentionError, InvalidError, Kind
from esker.format.names import digest_of
from esker.model import Commit, CommitID, FileName, Repository
from esker.refs import history
from esker.refs.records import Branch
from esker.tree.merge import Strategy

_TRIES_MAX: Final = 30
_NAMED_CONFLICTS: Final = 3


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
) -> CommitID:
    """Bring what `source` has changed since it parted from `branch` into it: the merge commit.

    ConflictError with all paths that both changed differently, unless a strategy decides.
    """
    source_id = commit_of(lake, repo, source)
    commits = lake.commits(repo)

    def make(head: CommitID) -> CommitID:
        base = history.merge_base(commits.get, source_id, head)
        if base is None:
            raise InvalidError(Kind.NO_MERGE_BASE, f"{source!r} and {branch!r} of {repo.name!r} share no history")
        before, theirs, ours = (commits.get(commit).tree for commit in (base, source_id, head))
        tree = _merged(lake, repo, before, theirs, ours, strategy, f"merging {source!r} into {branch!r}")
        if not allow_empty and (base == source_id or (squash and digest_of(tree) == digest_of(commits.get(head).tree))):
            raise InvalidError(Kind.NO_CHANGES, f"nothing to merge: {branch!r} already has all of {source!r}")
        parents = (head,) if squash else (head, source_id)
        text = message or f"Merge {source!r} into {branch!r}"
        return record_commit(
            lake, repo, tree=tree, parents=parents, message=text, committer=committer, metadata=metadata
        )

    return land(lake, repo, branch, make)


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
    undone = lake.commits(repo).get(commit_of(lake, repo, ref))
    before = _parent_tree(lake, repo, ref, undone, parent, missing=ConflictError)

    def make(head: CommitID) -> CommitID:
        dest = lake.commits(repo).get(head).tree
        tree = _merged(lake, repo, undone.tree, before, dest, Strategy.NONE, f"reverting {ref!r} on {branch!r}")
        if digest_of(tree) == digest_of(dest) and not allow_empty:
            raise InvalidError(Kind.NO_CHANGES, f"nothing of {ref!r} is left on {branch!r} to revert")
        text = message or f"Revert {ref}"
        return record_commit(
            lake, repo, tree=tree, parents=(head,), message=text, committer=committer, metadata=metadata
        )

    return land(lake, repo, branch, make)


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
    picked_id = commit_of(lake, repo, ref)
    picked = lake.commits(repo).get(picked_id)
    before = _parent_tree(lake, repo, ref, picked, parent, missing=InvalidError)
    origin = {"cherry-pick-origin": picked_id, "cherry-pick-committer": picked.committer}

    def make(head: CommitID) -> CommitID:
        dest = lake.commits(repo).get(head).tree
        tree = _merged(lake, repo, before, picked.tree, dest, Strategy.NONE, f"picking {ref!r} onto {branch!r}")
        if digest_of(tree) == digest_of(dest):
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

    return land(lake, repo, branch, make)


def move(lake: Lake, repo: Repository, branch: str, ref: str) -> None:
    """Point `branch` at any commit: a hard reset. Refused if anything is staged on it."""
    target = commit_of(lake, repo, ref)
    land(lake, repo, branch, lambda _: target)


def land(lake: Lake, repo: Repository, branch: str, make: Callable[[CommitID], CommitID]) -> CommitID:
    """Move `branch` from its head to what `make` makes of it."""
    protection.check(lake, repo, branch, Action.COMMIT)
    for _ in range(_TRIES_MAX):
        head = _clean_head(lake, repo, branch)
        made = make(head)
        if lake.branches(repo).update(branch, partial(Branch.moved, commit=made, base=head)):
            return made
    raise ContentionError(Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} kept moving: try again")


def _clean_head(lake: Lake, repo: Repository, branch: str) -> CommitID:
    """The commit of a clean branch. Layers that net to nothing are dropped; InvalidError if they change something."""
    branches = lake.branches(repo)
    for _ in range(_TRIES_MAX):
        record = branches.get(branch)
        if record.clean:
            return record.commit
        sealed = branches.update(branch, lambda record: record.rotated(branches.fresh_token()))
        assert sealed is not None
        tree = lake.commits(repo).get(sealed.commit).tree
        if digest_of(fold(lake, repo, tree, sealed.sealed)) != digest_of(tree):
            raise InvalidError(
                Kind.DIRTY_BRANCH, f"branch {branch!r} of {repo.name!r} has uncommitted changes: commit or reset them"
            )
        drop(lake, repo, branch, sealed, sealed.sealed)
    raise ContentionError(Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} kept changing: try again")


def _merged(
    lake: Lake, repo: Repository, base: FileName, source: FileName, dest: FileName, strategy: Strategy, doing: str
) -> FileName:
    merged = lake.past(repo).merge(base, source, dest, strategy)
    if merged.tree is None:
        shown = ", ".join(map(repr, merged.conflicts[:_NAMED_CONFLICTS]))
        more = (
            "" if len(merged.conflicts) <= _NAMED_CONFLICTS else f" and {len(merged.conflicts) - _NAMED_CONFLICTS} more"
        )
        raise ConflictError(
            Kind.MERGE_CONFLICT, f"{doing} in {repo.name!r}: both sides changed {shown}{more}", merged.conflicts
        )
    return merged.tree


def _parent_tree(
    lake: Lake,
    repo: Repository,
    ref: str,
    commit: Commit,
    parent: int,
    *,
    missing: type[ConflictError] | type[InvalidError],
) -> FileName:
    """The tree that the commit is to be compared with: its parent's, and none is the empty tree."""
    n = len(commit.parents)
    if parent == 0 and n > 1:
        raise missing(
            Kind.NEEDS_PARENT, f"{ref!r} is a merge of {n} parents: say which of them to compare it with, from 1"
        )
    if not 0 <= parent <= max(n, 1):
        raise InvalidError(Kind.NEEDS_PARENT, f"{ref!r} has {n} parents, so no parent number {parent}")
    if n == 0:
        return lake.past(repo).empty()
    return lake.commits(repo).get(commit.parents[max(parent, 1) - 1]).tree
