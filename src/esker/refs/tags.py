"""Tags: names for commits that never move. To point one elsewhere, delete it and create it again."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from esker.errors import ConflictError, InvalidError, Kind, NotFoundError, OutcomeUnknownError, UnavailableError
from esker.model import CommitID, Tag
from esker.refs import stored
from esker.refs.names import check_tag
from esker.stores.kv import KEY_BYTES_MAX, KVStore

PAGE_MAX: Final = 1000

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Tag)


class Page(NamedTuple):
    """`items` in byte order of their names."""

    items: list[tuple[str, Tag]]
    next: str | None
    """What to pass as `after` for the page that follows; None if there is none."""


def create(kv: KVStore, uid: str, name: str, commit: CommitID) -> Tag:
    """A new tag in the repository `uid`; ConflictError if the name is taken. Whether the commit exists is the caller's
    to know."""
    tag = Tag(commit=commit)
    try:
        created = kv.put_if(_partition(uid), check_tag(name).encode(), _ENCODER.encode(tag), None)
    except OutcomeUnknownError:
        # A tag with this commit is what was asked for, whoever made it. Without one, the write may still be on its way.
        found = None
        with suppress(UnavailableError):
            found = find(kv, uid, name)
        if found is None:
            raise
        created = found == tag
    if not created:
        raise ConflictError(Kind.TAG_EXISTS, f"tag '{name}' exists: take another name, or delete it first")
    return tag


def find(kv: KVStore, uid: str, name: str) -> Tag | None:
    """The tag, if there is one."""
    key = _key(name)
    found = kv.get(_partition(uid), key) if 0 < len(key) <= KEY_BYTES_MAX else None
    return None if found is None else _decode(name, found.value)


def get(kv: KVStore, uid: str, name: str) -> Tag:
    """The tag; NotFoundError if there is none."""
    tag = find(kv, uid, name)
    if tag is None:
        raise NotFoundError(Kind.TAG_NOT_FOUND, f"no tag '{name}'")
    return tag


def page(kv: KVStore, uid: str, *, prefix: str = "", after: str = "", amount: int = PAGE_MAX) -> Page:
    """Up to `amount` tags whose names begin with `prefix` and come after `after`."""
    if not 0 < amount <= PAGE_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"a page is 1 to {PAGE_MAX} tags, not {amount}")
    start = max(_key(prefix), _key(after) + b"\0" if after else b"")
    found = kv.scan(_partition(uid), start, amount + 1)
    items = [(item.key.decode(), item.record.value) for item in found if item.key.startswith(_key(prefix))]
    tags = [(name, _decode(name, value)) for name, value in items[:amount]]
    return Page(tags, tags[-1][0] if len(items) > amount else None)


def every(kv: KVStore, uid: str) -> Iterator[tuple[str, Tag]]:
    """All tags, in byte order of their names."""
    after: str | None = ""
    while after is not None:
        found = page(kv, uid, after=after)
        yield from found.items
        after = found.next


def delete(kv: KVStore, uid: str, name: str) -> None:
    """NotFoundError if there is none. The commit stays."""
    get(kv, uid, name)
    kv.delete(_partition(uid), _key(name))


def _decode(name: str, value: bytes) -> Tag:
    return stored.decode(_DECODER, f"tag '{name}'", value)


def _key(name: str) -> bytes:
    """Of anything somebody may ask for: what is no text finds nothing."""
    return name.encode(errors="surrogatepass")


def _partition(uid: str) -> str:
    return f"tags/{uid}"
