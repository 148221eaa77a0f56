"""Branches: create, list, delete."""

from collections.abc import Iterator

from esker.engine.lake import Lake
from esker.engine.protection import check_writable
from esker.engine.refs import commit_of
from esker.errors import ForbiddenError, Kind
from esker.model import CommitID, Repository
from esker.refs.names import check_branch
from esker.refs.records import Branch


def create(lake: Lake, repo: Repository, name: str, source: str, *, hidden: bool = False) -> CommitID:
    """A branch at what `source` names, without what is staged there. One record, however large the repository."""
    check_branch(name)
    check_writable(repo)
    commit = commit_of(lake, repo, source)
    lake.branches(repo).create(name, commit, hidden=hidden)
    return commit


def every(lake: Lake, repo: Repository, *, after: str = "", hidden: bool = False) -> Iterator[tuple[str, Branch]]:
    """Branches whose names come after `after`, in order; hidden ones only if asked for."""
    for name, record in lake.branches(repo).page(after, 1000):
        if hidden or not record.hidden:
            yield name, record


def delete(lake: Lake, repo: Repository, name: str) -> None:
    """Delete a branch and what is staged on it. The default branch cannot be."""
    check_writable(repo)
    if name == repo.default_branch:
        raise ForbiddenError(Kind.DEFAULT_BRANCH, f"{name!r} is the default branch of {repo.name!r}, and stays")
    branches = lake.branches(repo)
    branches.update(name, lambda record: record.removed(branches.fresh_token()))
