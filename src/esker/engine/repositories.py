"""Repositories: create, look up, delete."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from esker.engine.commit import NO_METADATA, record_commit
from esker.engine.lake import Lake
from esker.errors import ConflictError, InvalidError, Kind, NotFoundError
from esker.model import Repository, Staging
from esker.refs import repositories
from esker.refs.names import check_branch, check_repository, did_you_mean
from esker.tree.cutting import Cutting

UID_BYTES: Final = 12


def create(
    lake: Lake,
    name: str,
    namespace: str,
    *,
    default_branch: str = "main",
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
    read_only: bool = False,
    staging: Staging = Staging.KV,
    cutting: Cutting | None = None,
    bare: bool = False,
) -> Repository:
    """A new repository with one branch, which has one empty commit; a bare one has neither.

    The record comes last: until then nobody sees any of it.
    """
    check_repository(name)
    check_branch(default_branch)
    if find(lake, name):
        raise ConflictError(Kind.REPOSITORY_EXISTS, f"repository {name!r} already exists")
    taken = next((repo for repo in repositories.every(lake.kv) if _overlap(repo.namespace, namespace)), None)
    if taken:
        raise InvalidError(
            Kind.INVALID_ARGUMENT,
            f"{namespace} overlaps {taken.namespace}, where repository {taken.name!r} keeps its data",
        )
    cutting = cutting or Cutting(salt=int(lake.world.token(8), 16))
    repo = Repository(
        name=name,
        uid=lake.world.token(UID_BYTES),
        namespace=namespace,
        default_branch=default_branch,
        created_ms=lake.world.now_ms(),
        staging=staging,
        read_only=read_only,
        metadata=dict(metadata),
        **msgspec.structs.asdict(cutting),
    )
    if not bare:
        tree = lake.past(repo).empty()
        first = record_commit(lake, repo, tree=tree, parents=(), message="Repository created", committer=committer)
        lake.branches(repo).create(default_branch, first)
    repositories.create(lake.kv, repo)
    return repo


def get(lake: Lake, name: str) -> Repository:
    """The repository called `name`. NotFoundError if there is none."""
    repo = find(lake, name)
    if repo is None:
        close = did_you_mean(name, (other.name for other in repositories.every(lake.kv)))
        raise NotFoundError(Kind.REPOSITORY_NOT_FOUND, f"no repository {name!r}{close}")
    return repo


def find(lake: Lake, name: str) -> Repository | None:
    """The repository called `name`, if there is one."""
    return repositories.find(lake.kv, name)


def every(lake: Lake, *, after: str = "") -> Iterator[Repository]:
    """Repositories whose names come after `after`, in order."""
    return repositories.every(lake.kv, after)


def delete(lake: Lake, name: str) -> None:
    """Forget the repository. Its blobs stay where they are."""
    repositories.delete(lake.kv, get(lake, name))


def cutting_of(repo: Repository) -> Cutting:
    return Cutting(
        salt=repo.salt, entries_mean=repo.entries_mean, entries_max=repo.entries_max, bytes_max=repo.bytes_max
    )


def _overlap(one: str, other: str) -> bool:
    """Whether one of two places lies in the other."""
    one, other = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return one.startswith(other) or other.startswith(one)
