"""Repositories: create, look up, delete."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from esker.engine import tenure
from esker.engine.commit import NO_METADATA, record_commit
from esker.engine.lake import Lake
from esker.engine.protection import check_writable
from esker.errors import ConflictError, ContentionError, EskerError, InvalidError, Kind, NotFoundError
from esker.model import Repository, Staging
from esker.refs import repositories, stored
from esker.refs.names import check_branch, check_repository, did_you_mean
from esker.stores.kv import Record
from esker.tree.cutting import Cutting

UID_BYTES: Final = 12

_METADATA: Final = b"metadata"
_TRIES_MAX: Final = 10


class Said(msgspec.Struct, frozen=True):
    """Metadata that was changed since the repository was created."""

    metadata: dict[str, str]
    format_version: int = 1


_DECODER: Final = msgspec.msgpack.Decoder(Said)


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


def metadata(lake: Lake, repo: Repository) -> dict[str, str]:
    """What is said of the repository: when it was created, unless it was changed since."""
    found = lake.kv.get(f"settings/{repo.uid}", _METADATA)
    return repo.metadata if found is None else _decode(repo, found)


def change_metadata(
    lake: Lake, repo: Repository, change: Callable[[dict[str, str]], Mapping[str, str]]
) -> dict[str, str]:
    """Say what `change` makes of what is said. ContentionError if others kept changing it."""
    check_writable(repo)
    for _ in range(_TRIES_MAX):
        found = lake.kv.get(f"settings/{repo.uid}", _METADATA)
        new = dict(change(repo.metadata if found is None else _decode(repo, found)))
        version = found.version if found else None
        if lake.kv.put_if(f"settings/{repo.uid}", _METADATA, msgspec.msgpack.encode(Said(new)), version):
            return new
    raise ContentionError(Kind.CONTENTION, f"the metadata of {repo.name!r} kept changing: try again")


def delete(lake: Lake, name: str) -> None:
    """Forget the repository. Its blobs stay where they are: garbage to one that is created in their place."""
    repo = get(lake, name)
    repositories.delete(lake.kv, repo)
    with suppress(EskerError):  # of a place that is gone, nobody will ask whose it is
        tenure.leave(lake, repo)


def cutting_of(repo: Repository) -> Cutting:
    return Cutting(
        salt=repo.salt, entries_mean=repo.entries_mean, entries_max=repo.entries_max, bytes_max=repo.bytes_max
    )


def _decode(repo: Repository, found: Record) -> dict[str, str]:
    return stored.decode(_DECODER, f"the metadata of {repo.name!r}", found.value).metadata


def _overlap(one: str, other: str) -> bool:
    """Whether one of two places lies in the other."""
    one, other = one.rstrip("/") + "/", other.rstrip("/") + "/"
    return one.startswith(other) or other.startswith(one)
