"""Repository records: by name, in one partition."""

from collections.abc import Iterator
from typing import Final

import msgspec

from esker.errors import ConflictError, Kind
from esker.model import Repository
from esker.refs import stored
from esker.stores.kv import KEY_BYTES_MAX, KVStore, Record, items

_PARTITION: Final = "repositories"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Repository)


def create(kv: KVStore, repository: Repository) -> None:
    """ConflictError if there is one of this name."""
    if not kv.put_if(_PARTITION, repository.name.encode(), _ENCODER.encode(repository), None):
        raise ConflictError(Kind.REPOSITORY_EXISTS, f"repository {repository.name!r} already exists")


def find(kv: KVStore, name: str) -> Repository | None:
    """The repository called `name`, if there is one."""
    key = name.encode(errors="replace")
    found = kv.get(_PARTITION, key) if 0 < len(key) <= KEY_BYTES_MAX else None
    return None if found is None else _decode(name, found)


def every(kv: KVStore, after: str = "") -> Iterator[Repository]:
    """Repositories whose names come after `after`, in order."""
    for key, found in items(kv, _PARTITION, after.encode() + b"\0" if after else b""):
        yield _decode(key.decode(), found)


def delete(kv: KVStore, repository: Repository) -> None:
    """Forget the record, if it is still this repository's."""
    found = kv.get(_PARTITION, repository.name.encode())
    if found and _decode(repository.name, found).uid == repository.uid:
        kv.delete_if(_PARTITION, repository.name.encode(), found.version)


def _decode(name: str, found: Record) -> Repository:
    return stored.decode(_DECODER, f"the record of repository {name!r}", found.value)
