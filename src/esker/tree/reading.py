"""Reading a tree: one entry, a scan from a path on, a page of a listing."""

from collections.abc import Iterator

import pyarrow as pa

from esker.model import Entry, FileName
from esker.streams.arrays import after_prefix, lower_bound, only_chunk
from esker.streams.listing import PAGE_MAX, Page, page
from esker.tree.trees import Rows, Trees


def get(trees: Trees, tree: FileName, path: str) -> Entry | None:
    """The entry at `path`."""
    meta = trees.metarange(tree)
    at = meta.find(path)
    if at == len(meta):
        return None
    rows = trees.rows(meta.info(at))
    key = path.encode()
    row = rows.find(key)
    return rows.entry(row) if rows.path(row) == key else None


def scan(
    trees: Trees, tree: FileName, start: str = "", prefix: str = "", *, stop: str | None = None
) -> Iterator[pa.Table]:
    """Entries at or after `start` and before `stop` that begin with `prefix`, in order, range by range: constant memory
    at any size."""
    meta = trees.metarange(tree)
    start = max(start, prefix)
    end = min((end for end in (after_prefix(prefix), stop) if end is not None), default=None)
    first = meta.find(start)
    last = len(meta) if end is None else meta.find(end) + 1
    for table in trees.tables(map(meta.info, range(first, min(last, len(meta))))):
        paths = only_chunk(table["path"])
        low = lower_bound(paths, start) if paths[0].as_py() < start else 0
        high = len(paths) if end is None or paths[-1].as_py() < end else lower_bound(paths, end)
        if low < high:
            yield table.slice(low, high - low)


def listing(
    trees: Trees, tree: FileName, *, prefix: str = "", after: str = "", delimiter: str = "", amount: int = PAGE_MAX
) -> Page:
    """A page of the tree: see `streams.listing.page`."""
    return page(lambda path: seek(trees, tree, path), prefix=prefix, after=after, delimiter=delimiter, amount=amount)


def seek(trees: Trees, tree: FileName, path: str) -> tuple[Rows, int] | None:
    """The rows at hand from the first entry at or after `path` on; None at the end of the tree."""
    meta = trees.metarange(tree)
    at = meta.find(path)
    if at == len(meta):
        return None
    rows = trees.rows(meta.info(at))
    return rows, rows.find(path.encode())
