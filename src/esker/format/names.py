"""Digests of logical content, and the names under which its encodings are stored.

A digest does not depend on how content was encoded: another writer, another Parquet library or another compression
gives the same one. A *name* adds a nonce and a checksum of one encoding's bytes. The nonce makes every upload a new
file, so that collecting a dead file can never take away one that was just written again; the checksum lets any damage
be seen before a byte is parsed.
"""

import hashlib
from typing import Final

import numpy as np
import pyarrow as pa

from esker.errors import CorruptError, Kind
from esker.model import Digest, FileName
from esker.streams.arrays import integers, text_buffers
from esker.world import World

DIGEST_CHARS: Final = 64
_NONCE_BYTES: Final = 8
_CHECKSUM_CHARS: Final = 16


def digest(kind: str, table: pa.Table) -> Digest:
    """SHA-256 over `kind`, the number of rows, and each column in order: for text the lengths, then the bytes; else the
    values as 64-bit little-endian integers. `table` has one chunk a column and no nulls.
    """
    h = hashlib.sha256(f"esker {kind}\n{table.num_rows}\n".encode())
    for column in table.columns:
        if table.num_rows == 0:
            break
        array = column.chunk(0)
        if pa.types.is_string(array.type):
            offsets, data = text_buffers(array)
            h.update(np.diff(offsets).astype("<u4", copy=False).data)
            h.update(data[offsets[0] : offsets[-1]])
        else:
            h.update(integers(array).astype("<i8", copy=False).data)
    return Digest(h.hexdigest())


def fresh_name(content: Digest, data: bytes | memoryview, world: World) -> FileName:
    """A name that was never used, for this encoding of `content`."""
    return FileName(f"{content}-{world.token(_NONCE_BYTES)}{_checksum(data)}")


def digest_of(name: FileName) -> Digest:
    return Digest(name[:DIGEST_CHARS])


def check_bytes(name: FileName, data: bytes | memoryview) -> None:
    """CorruptError unless these are the bytes that were stored under `name`, all of them."""
    if name[-_CHECKSUM_CHARS:] != _checksum(data):
        raise CorruptError(
            Kind.DAMAGED_FILE, f"{name} is damaged: its {len(data)} bytes do not match the checksum in its name"
        )


def _checksum(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:_CHECKSUM_CHARS]
