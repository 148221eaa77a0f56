"""A 64-bit hash of paths: many at once, or one."""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esker.streams.arrays import text_buffers

_WORD: Final = 8
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT: Final = np.uint64(32)
_MASKS: Final = np.array([(1 << (8 * n)) - 1 for n in range(_WORD + 1)], dtype=np.uint64)
"""How many bytes of the last word belong to the key."""

_BLOCK_ROWS: Final = 4096
"""Rows hashed at a time: their words stay in the processor's cache."""


def hash_paths(paths: pa.StringArray, salt: int) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each path, over its bytes in little-endian words of eight (the last filled up with zeros):

    `h = salt ^ length * M`; for each word `h = (h ^ word) * M; h ^= h >> 32`; then MurmurHash3's 64-bit finaliser.
    """
    offsets, data = text_buffers(paths)
    hashes = np.empty(len(paths), dtype=np.uint64)
    for start in range(0, len(paths), _BLOCK_ROWS):
        stop = min(start + _BLOCK_ROWS, len(paths))
        block = offsets[start : stop + 1].astype(np.int64)
        hashes[start:stop] = _hash_block(data[block[0] : block[-1]], block - block[0], np.uint64(salt))
    return hashes


def _hash_block(data: memoryview, offsets: np.ndarray, salt: np.uint64) -> np.ndarray:
    padded = bytes(data) + bytes(_WORD)
    words = np.ndarray(len(data) + 1, dtype="<u8", buffer=padded, strides=(1,))  # the word at every byte offset
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")  # longest first, so the rows that have a next word are always a head
    starts, lengths = offsets[:-1][order], lengths[order]
    hashes = salt ^ (lengths.astype(np.uint64) * _MULTIPLIER)
    for at in range(0, int(lengths[0]), _WORD):
        n = int(np.searchsorted(-lengths, -at))  # rows longer than `at`
        word = words[starts[:n] + at] & _MASKS[np.minimum(lengths[:n] - at, _WORD)]
        head = (hashes[:n] ^ word) * _MULTIPLIER
        hashes[:n] = head ^ (head >> _SHIFT)
    hashes ^= hashes >> np.uint64(33)
    hashes *= _MIX_1
    hashes ^= hashes >> np.uint64(33)
    hashes *= _MIX_2
    hashes ^= hashes >> np.uint64(33)
    in_order = np.empty_like(hashes)
    in_order[order] = hashes
    return in_order


def hash_path(path: bytes, salt: int) -> int:
    """The hash of one path, as `hash_paths` has it."""
    size = len(path)
    h = salt ^ (size * _M & _ALL)
    for at in range(0, size, _WORD):
        h = (h ^ int.from_bytes(path[at : at + _WORD], "little")) * _M & _ALL
        h ^= h >> 32
    h ^= h >> 33
    h = h * int(_MIX_1) & _ALL
    h ^= h >> 33
    h = h * int(_MIX_2) & _ALL
    return h ^ h >> 33


_M: Final = int(_MULTIPLIER)
_ALL: Final = (1 << 64) - 1
