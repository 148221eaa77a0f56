"""What is stored of users and their access keys, and where: `docs/spec/identity.md` is the law.

A user has a `uid` beside the name, and a key names both: whoever is made again under an old name has none of the keys
that were left over.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeVar

import msgspec

from esker.auth.identity import Grant
from esker.refs import stored
from esker.stores.kv import KEY_BYTES_MAX, KVStore, items

USERS: Final = "auth/users"
KEYS: Final = "auth/keys"
SETUP: Final = "auth/setup"

R = TypeVar("R")
ENCODER: Final = msgspec.msgpack.Encoder()


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody, and what they were granted."""

    name: str
    uid: str
    created_ms: int
    grants: tuple[Grant, ...] = ()
    format_version: int = 1


class AccessKey(msgspec.Struct, frozen=True, kw_only=True):
    """An id and a secret by which a user is known. The secret is sealed under the id."""

    id: str
    user: str
    user_uid: str
    sealed: bytes
    created_ms: int
    format_version: int = 1


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """That the first user was made, and under which secret key. Until both records are written, it holds them: whoever
    finds it so writes them, so that a crash in between locks nobody out."""

    fingerprint: str
    pending: tuple[User, AccessKey] | None = None
    format_version: int = 1


_USER: Final = msgspec.msgpack.Decoder(User)
_KEY: Final = msgspec.msgpack.Decoder(AccessKey)
_SETUP: Final = msgspec.msgpack.Decoder(Setup)


class Page(NamedTuple):
    """`items` in byte order of their names."""

    items: list[User]
    next: str | None
    """What to pass as `after` for the page that follows; None if there is none."""


def find_user(kv: KVStore, name: str) -> User | None:
    found = kv.get(USERS, key) if _fits(key := _key(name)) else None
    return None if found is None else decode_user(name, found.value)


def find_key(kv: KVStore, key_id: str) -> AccessKey | None:
    found = kv.get(KEYS, key) if _fits(key := _key(key_id)) else None
    return None if found is None else stored.decode(_KEY, f"access key {key_id!r}", found.value)


def find_setup(kv: KVStore) -> Setup | None:
    found = kv.get(SETUP, b"setup")
    return None if found is None else stored.decode(_SETUP, "the record of the set-up", found.value)


def decode_user(name: str, value: bytes) -> User:
    return stored.decode(_USER, f"user {name!r}", value)


def users_page(kv: KVStore, *, prefix: str, after: str, amount: int) -> Page:
    """Up to `amount` users whose names begin with `prefix` and come after `after`."""
    start = max(_key(prefix), _key(after) + b"\0" if after else b"")
    if start and not _fits(start):
        return Page([], None)
    found = [item for item in kv.scan(USERS, start, amount + 1) if item.key.startswith(_key(prefix))]
    users = [decode_user(item.key.decode(), item.record.value) for item in found[:amount]]
    return Page(users, users[-1].name if len(found) > amount else None)


def every_user(kv: KVStore) -> Iterator[User]:
    for key, found in items(kv, USERS):
        yield decode_user(key.decode(), found.value)


def every_key(kv: KVStore) -> Iterator[AccessKey]:
    """Of all users: a lake has few enough keys that those of one are picked out of them."""
    for key, found in items(kv, KEYS):
        yield stored.decode(_KEY, f"access key {key.decode()!r}", found.value)


def _key(name: str) -> bytes:
    """Of anything somebody may ask for: what is no text finds nothing."""
    return name.encode(errors="surrogatepass")


def _fits(key: bytes) -> bool:
    return 0 < len(key) <= KEY_BYTES_MAX
