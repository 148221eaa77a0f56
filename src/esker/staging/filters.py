"""Bloom filters: whether a table may hold a path, told without opening it.

A filter is a record of the key-value store, written before its table is named by anything and deleted with it. Without
one (it was not worth it, or is gone) a table may hold anything between its first and last path.

    one byte        the format: 1
    the rest        bits; a path with hash h sets bits (low + i * high) mod n, for i of 0..6, where low and high are the
                    halves of h, high made odd
"""

from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from esker.errors import OutcomeUnknownError
from esker.model import FileName, Table
from esker.stores.cache import MemoryCache
from esker.stores.kv import VALUE_BYTES_MAX, KVStore
from esker.streams.hashes import hash_path, hash_paths

_FORMAT: Final = b"\x01"
_BITS_A_PATH: Final = 10
"""With seven probes: one false answer in a hundred."""
_PROBES: Final = 7
_ROWS_MIN: Final = 2
"""The one path of a table is both its first and its last."""
_ROWS_MAX: Final = (VALUE_BYTES_MAX - 1) * 8 // _BITS_A_PATH
_CACHE_BYTES: Final = 32 << 20


class Filters:
    """The filters of one repository's tables."""

    def __init__(self, kv: KVStore, uid: str) -> None:
        self._kv = kv
        self._partition = f"filters/{uid}"
        self._cache: MemoryCache[str, bytes] = MemoryCache(_CACHE_BYTES, name="filters")

    def write(self, file: FileName, paths: pa.StringArray) -> None:
        """Store the filter of a table, if it is worth one."""
        if _ROWS_MIN <= len(paths) <= _ROWS_MAX:
            made = build(paths)
            with suppress(OutcomeUnknownError):  # a table may do without
                self._kv.put(self._partition, file.encode(), made)
            self._cache.get_or_load(file, lambda: (made, len(made)))

    def may_hold(self, table: Table, path: bytes) -> bool:
        """False if the table surely does not hold the path, which lies between its first and last."""
        return may_hold(self.fetch(table), path)

    def fetch(self, table: Table) -> bytes:
        """The filter of a table; empty if it has none."""
        if not _ROWS_MIN <= table.count <= _ROWS_MAX:
            return b""
        return self._cache.get_or_load(table.file, lambda: self._load(table.file))

    def delete(self, file: FileName) -> None:
        self._cache.drop(file)
        self._kv.delete(self._partition, file.encode())

    def _load(self, file: FileName) -> tuple[bytes, int]:
        found = self._kv.get(self._partition, file.encode())
        value = b"" if found is None or found.value[:1] != _FORMAT else found.value
        return value, 1 + len(value)


def build(paths: pa.StringArray) -> bytes:
    """The filter of these paths."""
    size = -(-len(paths) * _BITS_A_PATH // 8)
    hashes = hash_paths(paths, 0)
    low, high = hashes & np.uint64(0xFFFFFFFF), (hashes >> np.uint64(32)) | np.uint64(1)
    bits = np.zeros(size * 8, dtype=bool)
    for probe in range(_PROBES):
        bits[(low + np.uint64(probe) * high) % np.uint64(size * 8)] = True
    return _FORMAT + np.packbits(bits, bitorder="little").tobytes()


def may_hold(made: bytes, path: bytes) -> bool:
    """Whether a filter lets a path through; an empty one lets all."""
    bits = 8 * (len(made) - 1)
    if bits <= 0:
        return True
    hashed = hash_path(path, 0)
    low, high = hashed & 0xFFFFFFFF, hashed >> 32 | 1
    for probe in range(_PROBES):
        at = (low + probe * high) % bits
        if not made[1 + (at >> 3)] >> (at & 7) & 1:
            return False
    return True
