"""The log of a ref: its commits, newest first, all or those that touched some path."""

from collections.abc import Sequence

from esker.engine.lake import Lake
from esker.engine.refs import commit_of
from esker.format.names import digest_of
from esker.model import Commit, CommitID, Entry, Repository
from esker.refs import history
from esker.refs.history import PAGE_MAX, Page


def log(
    lake: Lake,
    repo: Repository,
    ref: str,
    *,
    first_parent: bool = False,
    after: CommitID | None = None,
    amount: int = PAGE_MAX,
    since_ms: int | None = None,
    until_ms: int | None = None,
    paths: Sequence[str] = (),
    prefixes: Sequence[str] = (),
) -> Page:
    """A page of the commits that `ref` descends from. With `paths` or `prefixes`, those that changed one of them."""
    past, commits = lake.past(repo), lake.commits(repo)

    def touches(commit: Commit, parent: Commit | None) -> bool:
        before = parent.tree if parent else past.empty()
        if digest_of(before) == digest_of(commit.tree):
            return False
        return any(
            _identity(past.get(before, path)) != _identity(past.get(commit.tree, path)) for path in paths
        ) or any(past.differs(before, commit.tree, prefix) for prefix in prefixes)

    return history.log(
        commits.get,
        commit_of(lake, repo, ref),
        first_parent=first_parent,
        after=after,
        amount=amount,
        since_ms=since_ms,
        until_ms=until_ms,
        touches=touches if paths or prefixes else None,
    )


def _identity(entry: Entry | None) -> object:
    return entry and entry.identity()
