"""What the tests of the tree share: entries that are likely to collide, trees in memory, and trees as dicts."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from hypothesis import strategies as st

from esker.model import Entry, FileName
from esker.stores.blob import BlobStore
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.cache import MemoryCache
from esker.streams.entries import entries_in, table_of
from esker.tree import reading
from esker.tree.build import build
from esker.tree.cutting import Cutting
from esker.tree.trees import Trees

POOL = ThreadPoolExecutor(4)

Lake = dict[str, Entry]
"""A tree, as the model has it."""

_ALPHABET = st.sampled_from(["a", "b", "/", "//", "é", "\0", "\U0010ffff", "\ud7ff", "\ue000", "~"])

paths = st.one_of(
    st.lists(_ALPHABET, min_size=1, max_size=5).map("".join),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=20),
    st.integers(1000, 1024).map(lambda n: "long/" + "x" * (n - 5)),
)

entries = st.builds(
    lambda path, content, place: Entry(
        path=path,
        address=f"data/{place}",
        size=content,
        checksum=f"{content:032x}",
        mtime_ms=place,
        content_type="text/plain" if content % 2 else "",
        metadata={"k": "vé", "a": str(content)} if content == 3 else {},
    ),
    paths,
    st.integers(0, 3),
    st.integers(0, 1),
)

lakes = st.lists(entries, max_size=40).map(lambda found: {entry.path: entry for entry in found})

cuttings = st.builds(
    Cutting,
    salt=st.integers(0, (1 << 64) - 1),
    entries_mean=st.sampled_from([1, 2, 5, 1000]),
    entries_max=st.sampled_from([1, 3, 7, 1000]),
    bytes_max=st.sampled_from([1, 300, 1 << 20]),
)


def open_trees(cutting: Cutting, blobs: BlobStore | None = None, cache_bytes: int = 1 << 20) -> Trees:
    return Trees(blobs or MemoryBlobs(), cutting, cache=MemoryCache(cache_bytes), pool=POOL)


def build_lake(trees: Trees, lake: Lake) -> FileName:
    return build(trees, [table_of(lake.values())])


def read_lake(trees: Trees, tree: FileName) -> Lake:
    found = [entry for table in reading.scan(trees, tree) for entry in entries_in(table)]
    assert [entry.path for entry in found] == sorted({entry.path for entry in found}), "a scan is in order"
    return {entry.path: entry for entry in found}


def cut_up(draw: Callable[[st.SearchStrategy[int]], int], table: pa.Table) -> Iterable[pa.Table]:
    """The table in two batches."""
    at = draw(st.integers(0, table.num_rows))
    return [table.slice(0, at), table.slice(at)]


def identity(lake: Lake, path: str) -> object:
    return lake[path].identity() if path in lake else None


def numbered(n: int, version: int = 0) -> Lake:
    """Entries in ten directories, in order of their numbers; another version has other content."""
    found = [
        Entry(path=f"dir{10 * i // n}/{i:06d}", address=f"data/{i}", size=i, checksum=f"{version}-{i}", mtime_ms=i)
        for i in range(n)
    ]
    return {entry.path: entry for entry in found}
