"""Arrow arrays as NumPy sees them, and binary search over sorted text: the loops that must not run row by row."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_WORD = 8
_FEW = 16
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


def text_buffers(array: pa.StringArray) -> tuple[npt.NDArray[np.int32], memoryview]:
    """The offsets (one more than rows) and the bytes that they point into, without copying."""
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(1, dtype=np.int32), memoryview(b"")
    found = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    return found, memoryview(b"" if data is None else data)


def integers(array: pa.Array) -> Ints:
    """A fixed-width 64-bit column (integers, timestamps) as int64, without copying."""
    return np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset : array.offset + len(array)]


def fixed_width(array: pa.StringArray) -> npt.NDArray[np.uint64] | None:
    """Texts that all have one length, in whole words of eight bytes, as rows of words; None for others. Checksums and
    content types mostly are: rows of words are picked and compared many times faster than texts."""
    offsets, data = text_buffers(array)
    if len(array) == 0:
        return None
    width = int(offsets[1] - offsets[0])
    if width % _WORD or (np.diff(offsets) != width).any():
        return None
    if width == 0:
        return np.zeros((len(array), 0), dtype=np.uint64)
    return np.frombuffer(data[offsets[0] : offsets[-1]], dtype=np.uint64).reshape(len(array), width // _WORD)


def bools(array: pa.Array | pa.ChunkedArray) -> Bools:
    found: Bools = array.to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else array.to_numpy()
    return found


def only_chunk(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array: free where it already is one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def lower_bounds(sorted_texts: pa.StringArray, texts: pa.StringArray) -> Ints:
    """For each text, the first place whose text is not smaller: all of them bisected at once, unless they are few."""
    if len(texts) <= _FEW:
        return np.array([lower_bound(sorted_texts, text) for text in texts.to_pylist()], dtype=np.int64)
    low = np.zeros(len(texts), dtype=np.int64)
    high = np.full(len(texts), len(sorted_texts), dtype=np.int64)
    if len(texts) == 0 or len(sorted_texts) == 0:
        return low
    for _ in range(len(sorted_texts).bit_length()):
        middle = (low + high) >> 1
        probes = sorted_texts.take(pa.array(np.minimum(middle, len(sorted_texts) - 1)))
        below = bools(pc.less(probes, texts)) & (low < high)
        low = np.where(below, middle + 1, low)
        high = np.where(below, high, middle)
    return low


def lower_bound(sorted_texts: pa.StringArray, text: str, low: int = 0) -> int:
    """The first place whose text is not smaller."""
    high = len(sorted_texts)
    while low < high:
        middle = (low + high) >> 1
        if sorted_texts[middle].as_py() < text:
            low = middle + 1
        else:
            high = middle
    return low


def after_prefix(prefix: str) -> str | None:
    """The smallest text above all that begin with `prefix`; None if there is none."""
    while prefix:
        following = ord(prefix[-1]) + 1
        if following <= _LAST_CHARACTER:
            return prefix[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)
        prefix = prefix[:-1]
    return None
