"""Where ranges end: content-defined cutting, so that equal content gives equal trees.

Whether a range ends after a row is a function of the rows since the last boundary, and of nothing else: the hash of the
row's *path* falls under a threshold, or the range has reached its most rows or most bytes. A hash cut is always a cut
(there is no minimum size), so writers that start at hash cuts, in other processes, cut alike. Bytes are logical, never
encoded. The salt is a repository's own, so that nobody can choose paths which all cut, or never do.
"""

import msgspec
import numpy as np
import pyarrow as pa

from esker.streams.arrays import text_buffers
from esker.streams.entries import FIXED_BYTES, TEXTS
from esker.streams.hashes import hash_paths


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


def row_bytes(table: pa.Table) -> np.ndarray:
    """The logical size of each row: the lengths of its texts, and eight bytes for each number."""
    sizes = np.full(table.num_rows, FIXED_BYTES, dtype=np.int64)
    for name in TEXTS:
        sizes += np.diff(text_buffers(table[name].chunk(0))[0])
    return sizes
