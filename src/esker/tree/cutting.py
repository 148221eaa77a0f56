"""Where ranges end: content-defined cutting, so that equal content gives equal trees.

Whether a range ends after a row is a function of the rows since the last boundary, and of nothing else: the hash of the
row's *path* falls under a threshold, or the range has reached its most rows or most bytes. A hash cut is always a cut
(there is no minimum size), so writers that start at hash cuts, in other processes, cut alike. Bytes are logical, never
encoded. The salt is a repository's own, so that nobody can choose paths which all cut, or never do.
"""

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from esker.streams.arrays import text_buffers
from esker.streams.entries import FIXED_BYTES, TEXTS

_WORD: Final = 8
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_MIX_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT: Final = np.uint64(32)
_MASKS: Final = np.array([(1 << (8 * n)) - 1 for n in range(_WORD + 1)], dtype=np.uint64)
"""How many bytes of the last word belong to the key."""

_BLOCK_ROWS: Final = 4096
"""Rows hashed at a time: their words stay in the processor's cache."""


class Cutting(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters, fixed when a repository is created: trees compare only when they were cut alike."""

    salt: int = 0
    entries_mean: int = 4096
    """About 0.3 MB a file: one request to fetch, a few milliseconds to rewrite."""
    entries_max: int = 8 * 4096
    """Eight times the mean, so that it decides about one range in e^8."""
    bytes_max: int = 16 << 20

    def __post_init__(self) -> None:
        if min(self.entries_mean, self.entries_max, self.bytes_max) < 1 or not 0 <= self.salt < 1 << 64:
            raise ValueError("a cutting needs positive sizes and a salt of 64 bits")

    def is_full(self, count: int, size: int) -> bool:
        """Whether a range of so many rows and bytes ends by its size alone."""
        return count >= self.entries_max or size >= self.bytes_max

    def cuts_after(self, paths: pa.StringArray) -> np.ndarray:
        """For each path, whether its hash alone ends a range there."""
        threshold = np.uint64(min((1 << 64) // self.entries_mean, (1 << 64) - 1))
        return hash_paths(paths, self.salt) < threshold


def hash_paths(paths: pa.StringArray, salt: int) -> np.ndarray:
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


def row_bytes(table: pa.Table) -> np.ndarray:
    """The logical size of each row: the lengths of its texts, and eight bytes for each number."""
    sizes = np.full(table.num_rows, FIXED_BYTES, dtype=np.int64)
    for name in TEXTS:
        sizes += np.diff(text_buffers(table[name].chunk(0))[0])
    return sizes
