"""What a ref expression stands for in a repository."""

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import chain, islice
from typing import Final, NamedTuple

from esker.engine import protection, releases
from esker.engine.lake import Lake
from esker.model import CommitID, Repository
from esker.refs import expressions, tags
from esker.refs.expressions import Lookup, View
from esker.refs.names import is_commit_id
from esker.refs.records import Branch

_SUGGESTED_FROM_MAX: Final = 1000
"""Names looked through to suggest one."""


class Ref(NamedTuple):
    """A ref, resolved: a commit, and the branch's record where what is staged counts too."""

    commit: CommitID
    branch: str | None = None
    record: Branch | None = None


def resolve(lake: Lake, repo: Repository, ref: str) -> Ref:
    """What `ref` stands for now. NotFoundError if nothing does."""
    branches = lake.branches(repo)
    plain = _is_plain(ref)
    record = branches.find(ref) if plain else None  # most reads name a branch, and nothing but
    if record is not None:
        return Ref(record.commit, ref, record)
    records: dict[str, Branch] = {}

    def find_branch(name: str) -> CommitID | None:
        record = None if plain else branches.find(name)
        if record is None:
            return None
        records[name] = record
        return record.commit

    def find_tag(name: str) -> CommitID | None:
        tag = tags.find(lake.kv, repo.uid, name)
        return tag.commit if tag else None

    def names() -> Iterator[str]:
        found = chain(
            (name for name, _ in branches.page("", 100)), (name for name, _ in tags.page(lake.kv, repo.uid).items)
        )
        return islice(found, _SUGGESTED_FROM_MAX)

    commits = lake.commits(repo)
    lookup = Lookup(repo.name, find_branch, find_tag, commits.get, commits.find_prefix, names)
    found = expressions.resolve(expressions.parse(ref), lookup)
    if found.branch is None or found.view is View.COMMITTED:
        return Ref(found.commit)
    return Ref(found.commit, found.branch, records[found.branch])


@lru_cache(maxsize=1024)
def _is_plain(ref: str) -> bool:
    """Whether it can be a branch's name: neither a commit's whole id nor an expression."""
    return ref.isascii() and ref.replace("-", "_").replace("/", "_").isidentifier() and not is_commit_id(ref)


def commit_of(lake: Lake, repo: Repository, ref: str) -> CommitID:
    """The commit that `ref` stands for, without what is staged. InvalidError if it asks for that."""
    found = resolve(lake, repo, ref)
    if ref.endswith(View.STAGED):
        expressions.Resolved(ref, found.commit, found.branch, View.STAGED).as_commit()
    return found.commit


def tag(lake: Lake, repo: Repository, name: str, ref: str) -> CommitID:
    """Name the commit that `ref` stands for, for good."""
    protection.check_writable(repo)
    commit = commit_of(lake, repo, ref)
    make = partial(tags.create, lake.kv, repo.uid, name, commit)
    return releases.build_on(lake, repo, [commit], make, lambda _: tags.delete(lake.kv, repo.uid, name)).commit
