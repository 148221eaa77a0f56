"""Staging tokens: single writes as records of the key-value store, one partition a token, one record a path."""

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from esker.errors import CorruptError, Kind
from esker.model import Entry, Token
from esker.stores.kv import SCAN_LIMIT_MAX, Item, KVStore
from esker.streams.entries import CHANGES, NO_CHANGES, metadata_text

TOMBSTONE: Final = b"\xc0"
"""nil in msgpack: the path is deleted."""


class _Staged(msgspec.Struct, array_like=True, gc=False):
    """An entry without its path, which is the key."""

    address: str
    size: int
    checksum: str
    mtime_ms: int
    content_type: str
    metadata: dict[str, str]


_ENCODER: Final = msgspec.msgpack.Encoder(order="sorted")
_DECODER: Final = msgspec.msgpack.Decoder(_Staged)
_ALL: Final = msgspec.msgpack.Decoder(list[_Staged | None])


def partition(token: Token) -> str:
    return f"staging/{token}"


def encode(entry: Entry | None) -> bytes:
    """The record of an entry; of None, a tombstone."""
    if entry is None:
        return TOMBSTONE
    return _ENCODER.encode(
        _Staged(entry.address, entry.size, entry.checksum, entry.mtime_ms, entry.content_type, entry.metadata)
    )


def decode(path: str, value: bytes) -> Entry | None:
    """What a record says of its path: an entry, or None where it is deleted."""
    if value == TOMBSTONE:
        return None
    try:
        staged = _DECODER.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(Kind.DAMAGED_RECORD, f"the staged record of {path!r} cannot be read: {error}") from None
    return Entry(
        path=path,
        address=staged.address,
        size=staged.size,
        checksum=staged.checksum,
        mtime_ms=staged.mtime_ms,
        content_type=staged.content_type,
        metadata=staged.metadata,
    )


def changes(kv: KVStore, token: Token, start: str = "", stop: str | None = None) -> pa.Table:
    """All that the token holds of the paths from `start` on and before `stop`, as sorted `CHANGES`."""
    return pa.concat_tables([NO_CHANGES, *pages(kv, token, start, stop)]).combine_chunks()


def pages(kv: KVStore, token: Token, start: str = "", stop: str | None = None) -> Iterator[pa.Table]:
    """The same, a scan at a time."""
    at, end = start.encode(), None if stop is None else stop.encode()
    while True:
        found = kv.scan(partition(token), at, SCAN_LIMIT_MAX)
        inside = found if end is None else [item for item in found if item.key < end]
        if inside:
            yield _table(inside)
        if len(inside) < SCAN_LIMIT_MAX:
            return
        at = found[-1].key + b"\0"


def _table(found: list[Item]) -> pa.Table:
    joined = b"\xdd" + len(found).to_bytes(4, "big") + b"".join([item.record.value for item in found])
    try:
        rows = _ALL.decode(joined)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptError(Kind.DAMAGED_RECORD, f"staged records cannot be read: {error}") from None
    deleted = np.fromiter((row is None for row in rows), dtype=bool, count=len(rows))
    staged = [row or _NOTHING for row in rows]
    return pa.table(
        [
            pa.array([item.key for item in found], pa.binary()).cast(pa.string()),
            pa.array([row.address for row in staged], pa.string()),
            pa.array([row.size for row in staged], pa.int64()),
            pa.array([row.checksum for row in staged], pa.string()),
            pa.array([row.mtime_ms for row in staged], pa.int64()).cast(CHANGES.field("mtime").type),
            pa.array([row.content_type for row in staged], pa.string()),
            pa.array([metadata_text(row.metadata) for row in staged], pa.string()),
            pa.array(deleted),
        ],
        schema=CHANGES,
    )


_NOTHING: Final = _Staged("", 0, "", 0, "", {})
