"""What the tests of staging share: tables in memory, and layers of dicts."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from esker.model import Entry, Layer, LayerID, Table
from esker.staging.filters import Filters
from esker.staging.stack import Stack
from esker.staging.tables import Tables
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.cache import MemoryCache
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import changes_of
from esker.testing.faults import CountingBlobs
from esker.tree.cutting import Cutting
from esker.tree.past import StoredPast
from esker.tree.trees import Cached, Trees

POOL: Final = ThreadPoolExecutor(4)


class Place(NamedTuple):
    """Tables of one repository, and what lies under them."""

    tables: Tables
    kv: MemoryKV
    blobs: CountingBlobs

    def again(self) -> "Place":
        """As another process has it: nothing is cached."""
        return _place(self.kv, self.blobs)

    def layer(
        self,
        rows: Mapping[str, int | None],
        deletes: tuple[str, ...] = (),
        *,
        rows_a_table: int = 1000,
        many: bool = False,
    ) -> Layer:
        """A layer that puts contents, or deletes where there is None. With `many`, its prefixes are in a table: but not
        the empty one, which covers all others, so that there is one."""
        puts = [entry(path, content) for path, content in rows.items() if content is not None]
        changes = changes_of(puts, [path for path, content in rows.items() if content is None])
        written: list[Table] = []
        for start in range(0, changes.num_rows, rows_a_table):
            written += self.tables.write(changes.slice(start, rows_a_table), "main/L1")
        many = many and bool(deletes) and all(deletes)
        return Layer(
            id=LayerID("l"),
            tables=tuple(written),
            deletes=() if many else deletes,
            more_deletes=self.tables.write_prefixes(changes_of((), deletes), "main/L1") if many else None,
        )

    def stack(self, *layers: Layer) -> Stack:
        return Stack(self.kv, self.tables, layers)


def new_place() -> Place:
    return _place(MemoryKV(), CountingBlobs(MemoryBlobs()))


def _place(kv: MemoryKV, blobs: CountingBlobs) -> Place:
    cache: MemoryCache[str, Cached] = MemoryCache(1 << 20)
    return Place(Tables(StoredPast(Trees(blobs, Cutting(), cache=cache, pool=POOL)), Filters(kv, "uid")), kv, blobs)


def entry(path: str, content: int) -> Entry:
    return Entry(path=path, address=f"data/{content}", size=content, checksum=str(content), mtime_ms=content)
