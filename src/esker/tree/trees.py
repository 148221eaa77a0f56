"""Reading and writing the files of trees: the one place where trees meet the blob store, the cache and the pool.

    _esker/metaranges/<name>    one row a range
    _esker/ranges/<name>        the entries
    _esker/staging/<name>.sst   staged changes; the name has a branch and a level: `main/L1/<digest>-...`

Files are immutable and named by content and nonce, so the cache never asks whether it is stale. Every file is verified
by the checksum in its name; a damaged copy on the local disk is fetched once more.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Final, TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from esker import activity
from esker.errors import CorruptError, Kind
from esker.format import files
from esker.format.names import digest, digest_of, fresh_name
from esker.model import Digest, Entry, FileName, Table
from esker.stores.blob import BlobStore
from esker.stores.cache import MemoryCache
from esker.streams.arrays import integers, only_chunk, text_buffers
from esker.streams.entries import SCHEMA, entries_in, metadata_in
from esker.tree.cutting import Cutting, row_bytes
from esker.world import REAL, World

_SCAN_AHEAD: Final = 1
"""Reading goes on while a range is used. Each thread that decodes keeps memory of its own, so a scan wakes few."""

_UNDER_WAY_MAX: Final = 128
"""Files on their way to the store behind whoever wrote them. When it is slower than that, writers wait for it."""

A = TypeVar("A")


class RangeInfo(msgspec.Struct, frozen=True):
    """A row of a metarange."""

    id: Digest
    name: FileName
    min: str
    max: str
    count: int
    bytes: int


class Rows:
    """A decoded range: sorted entries, searched without decoding a column."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        paths = only_chunk(table["path"])
        offsets, data = text_buffers(paths)
        self._offsets = offsets.data
        self._data = data
        self._columns = [only_chunk(table[name]) for name in SCHEMA.names if name != "mtime"]
        self._mtimes = integers(only_chunk(table["mtime"])).data

    def __len__(self) -> int:
        return len(self._mtimes)

    @property
    def nbytes(self) -> int:
        return 1 + int(self.table.nbytes)

    def path(self, at: int) -> bytes:
        return bytes(self._data[self._offsets[at] : self._offsets[at + 1]])

    def find(self, path: bytes, low: int = 0) -> int:
        """The first place at or after `low` whose path is not smaller."""
        offsets, data, high = self._offsets, self._data, len(self)
        while low < high:  # `bisect`, without a call for each path that is looked at
            middle = (low + high) // 2
            if bytes(data[offsets[middle] : offsets[middle + 1]]) < path:
                low = middle + 1
            else:
                high = middle
        return low

    def entries(self, places: list[int]) -> list[Entry]:
        """The entries at these places, which ascend."""
        if places and places[-1] - places[0] == len(places) - 1:
            return entries_in(self.table.slice(places[0], len(places)))
        return entries_in(self.table.take(pa.array(places, pa.int64())))

    def entry(self, at: int) -> Entry:
        path, address, size, checksum, content_type, metadata = (column[at].as_py() for column in self._columns)
        return Entry(
            path=path,
            address=address,
            size=size,
            checksum=checksum,
            mtime_ms=self._mtimes[at],
            content_type=content_type,
            metadata=metadata_in(metadata),
        )


class Metarange:
    """A decoded metarange: the ranges of a tree, in order."""

    def __init__(self, name: FileName, table: pa.Table) -> None:
        self.name = name
        self.table = table
        self._infos: dict[int, RangeInfo] = {}

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def nbytes(self) -> int:
        return 1 + 5 * int(self.table.nbytes)  # with the lists below, and the rows that were asked for

    @property
    def id(self) -> Digest:
        return digest_of(self.name)

    @cached_property
    def maxes(self) -> list[str]:
        found: list[str] = self.table["max"].to_pylist()
        return found

    @cached_property
    def mins(self) -> list[str]:
        found: list[str] = self.table["min"].to_pylist()
        return found

    def info(self, at: int) -> RangeInfo:
        found = self._infos.get(at)
        if found is None:
            found = self._infos[at] = RangeInfo(*(column[at].as_py() for column in self.table.columns))
        return found

    @property
    def count(self) -> int:
        """How many entries the tree holds."""
        return int(integers(only_chunk(self.table["count"])).sum()) if len(self) else 0

    def find(self, path: str, low: int = 0) -> int:
        """The range that holds `path` if any does: the first that does not end before it. `len(self)` for none."""
        return bisect_left(self.maxes, path, low)

    def same_range(self, range_id: Digest, last: str) -> FileName | None:
        """The file of the range with this id that ends with `last`, if this tree has it."""
        at = self.find(last)
        if at == len(self) or self.table["id"][at].as_py() != range_id:
            return None
        return FileName(self.table["name"][at].as_py())


Cached: TypeAlias = Rows | Metarange | pa.Table
"""What the cache holds: ranges by their digest, metaranges and layers by name, since their contents name files."""


@dataclass
class TreeCounts:
    """Files read from and written to the store: what the cache answered does not count."""

    ranges_read: int = 0
    ranges_written: int = 0
    metaranges_read: int = 0
    metaranges_written: int = 0
    layers_read: int = 0
    layers_written: int = 0

    def __add__(self, other: "TreeCounts") -> "TreeCounts":
        return TreeCounts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: "TreeCounts") -> "TreeCounts":
        return TreeCounts(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))


class Trees:
    """The trees of one repository. Safe for threads."""

    def __init__(
        self,
        blobs: BlobStore,
        cutting: Cutting,
        *,
        cache: MemoryCache[str, Cached],
        pool: Executor,
        puts: Executor | None = None,
        world: World = REAL,
        ahead: int = 8,
    ) -> None:
        """`puts` has threads that only wait for the store, so that those of `pool` can go on decoding and encoding."""
        self.cutting = cutting
        self.ahead = ahead
        self._cut_by = msgspec.json.encode(cutting).decode()
        self._blobs = blobs
        self._cache = cache
        self._pool = pool
        self._puts = puts or pool
        self._world = world
        self._counts = TreeCounts()
        self._counting = threading.Lock()
        self._behind: ContextVar[list[Future[None]] | None] = ContextVar("behind", default=None)
        self._under_way: dict[str, Future[None]] = {}

    def counts(self) -> TreeCounts:
        """What was read and written so far."""
        with self._counting:
            return TreeCounts(**vars(self._counts))

    def metarange(self, name: FileName) -> Metarange:
        """The ranges of the tree called `name`. CorruptError if its file is missing or damaged."""

        def load() -> tuple[Metarange, int]:
            table = self._read(files.METARANGE, name)
            self._count(metaranges_read=1)
            meta = Metarange(name, table)
            return meta, meta.nbytes

        found = self._cache.get_or_load(name, load)
        assert isinstance(found, Metarange)
        return found

    def has(self, name: FileName) -> bool:
        """Whether the file of a metarange is still there."""
        try:
            self.metarange(name)
        except CorruptError as error:
            if error.kind is not Kind.MISSING_FILE:
                raise
            return False
        return True

    def rows(self, info: RangeInfo) -> Rows:
        """The entries of a range, through the cache."""

        def load() -> tuple[Rows, int]:
            rows = self._load(info)
            return rows, rows.nbytes

        found = self._cache.get_or_load(info.id, load)
        assert isinstance(found, Rows)
        return found

    def tables(self, infos: Iterable[RangeInfo]) -> Iterator[pa.Table]:
        """The entries of ranges one after another, the next ones already being read. For a pass over a tree of any
        size: uses what is cached, but pushes nothing out of the cache.
        """
        for _, found in self._reading_ahead(((info, [info]) for info in infos), self._load, _SCAN_AHEAD):
            yield found[0].table

    def addresses(self, names: Iterable[FileName]) -> Iterator[pa.StringArray]:
        """The addresses in these range files, file by file, the next ones already being read. Nothing is cached."""
        waiting: deque[Future[pa.StringArray]] = deque()
        for name in names:
            waiting.append(self._pool.submit(self._addresses, name))
            if len(waiting) > self.ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _addresses(self, name: FileName) -> pa.StringArray:
        return only_chunk(self._read(files.RANGE, name, ("address",))["address"])

    def reading_ahead(self, things: Iterable[tuple[A, Sequence[RangeInfo]]]) -> Iterator[tuple[A, list[Rows]]]:
        """Each thing with the entries of its ranges, in order, those of the next ones already being read.

        Only reading is done by the pool: it waits for the store and decodes, both without Python's lock. What is done
        with the rows are many short calls, which several threads would only do more slowly.
        """
        return self._reading_ahead(things, self.rows, self.ahead)

    def _reading_ahead(
        self, things: Iterable[tuple[A, Sequence[RangeInfo]]], read: Callable[[RangeInfo], Rows], ahead: int
    ) -> Iterator[tuple[A, list[Rows]]]:
        waiting: deque[tuple[A, list[Rows | Future[Rows]]]] = deque()

        def first() -> tuple[A, list[Rows]]:
            thing, found = waiting.popleft()
            return thing, [rows if isinstance(rows, Rows) else rows.result() for rows in found]

        try:
            for thing, infos in things:
                waiting.append((thing, [self._cached(info) or self._pool.submit(read, info) for info in infos]))
                if len(waiting) > ahead:
                    yield first()
            while waiting:
                yield first()
        finally:
            for _, found in waiting:
                for rows in found:
                    if isinstance(rows, Future):
                        rows.cancel()

    def _cached(self, info: RangeInfo) -> Rows | None:
        found = self._cache.get(info.id)
        return found if isinstance(found, Rows) else None

    @contextmanager
    def writing_behind(self) -> Iterator[None]:
        """Files of trees and layers written inside are in the store when this is left without an error, and not before;
        they can be read here meanwhile. So the store's waits overlap, with each other and with what is done inside."""
        behind: list[Future[None]] = []
        before = self._behind.set(behind)
        try:
            yield
        finally:
            self._behind.reset(before)
            failed = [error for put in behind if (error := put.exception())]
        if failed:
            raise failed[0]

    def write_range(
        self, pieces: list[pa.Table], known: Callable[[Digest, str], FileName | None], *, remember: bool
    ) -> "Future[RangeInfo]":
        """Store a range in the pool. A file that `known` names for the same content is used again, and not read.

        With `remember` it is cached too: what was changed is mostly looked at, or changed again, before long.
        """
        return self._pool.submit(self._write_range, pieces, known, remember, self._behind.get())

    def write_metarange(self, table: pa.Table, known: Callable[[Digest], FileName | None]) -> FileName:
        """Store a metarange. The digest leaves out where files lie."""
        content = digest("metarange", table.drop_columns(["name"]))
        name = known(content)
        if name is None:
            name = self._write(files.METARANGE, content, table, self._behind.get())
            self._count(metaranges_written=1)
            meta = Metarange(name, table)
            self._cache.get_or_load(name, lambda: (meta, meta.nbytes))  # who writes a tree mostly reads it next
        return name

    def write_layer(self, changes: pa.Table, where: str) -> Table:
        """Store staged changes as a file of their own, for the branch and level of `where`."""
        at = changes.schema.get_field_index("tombstone")
        numbers = changes.set_column(at, "tombstone", changes["tombstone"].cast(pa.int64()))
        content = digest("layer", numbers.combine_chunks())
        data = memoryview(files.encode(files.LAYER, changes, {"esker.id": content}))
        name = FileName(f"{where}/{fresh_name(content, data, self._world)}")
        self._put(_sstable(name), data, self._behind.get())
        self._count(layers_written=1)
        self._cache.get_or_load(name, lambda: (changes, 1 + changes.nbytes))  # a branch is read where it is written
        paths = only_chunk(changes["path"])
        return Table(
            file=name,
            min=paths[0].as_py(),
            max=paths[-1].as_py(),
            count=len(paths),
            tombstones=pc.sum(changes["tombstone"]).as_py(),
            bytes=len(data),
        )

    def read_layers(self, names: Sequence[FileName]) -> list[pa.Table]:
        """The staged changes in these files, through the cache; what is not there is read at once."""
        if len(names) == 1:
            return [self._layer(names[0])]
        return list(self._pool.map(self._layer, names))

    def delete_layer(self, name: FileName) -> None:
        """Take a layer's file away: nothing names it any more."""
        self._cache.drop(name)
        self._blobs.delete([_sstable(name)])

    def delete_tree(self, name: FileName, kept: Sequence[FileName]) -> None:
        """Take a tree's files away, but those that the `kept` trees have. Nothing if one of these is not there."""
        try:
            metas = [self.metarange(tree) for tree in kept]
            gone = self.metarange(name)
        except CorruptError as error:
            if error.kind is Kind.MISSING_FILE:
                return  # what was to be kept of it, nobody knows: the garbage collector will
            raise
        used = {file for meta in metas for file in meta.table["name"].to_pylist()}
        unused = [file for file in gone.table["name"].to_pylist() if file not in used]
        self._blobs.delete([_blob(files.RANGE, FileName(file)) for file in unused])
        if name not in kept:
            self._cache.drop(name)
            self._blobs.delete([_blob(files.METARANGE, name)])

    def _layer(self, name: FileName) -> pa.Table:
        def load() -> tuple[pa.Table, int]:
            table = self._decoded(files.LAYER, name, _sstable(name))
            self._count(layers_read=1)
            return table, 1 + table.nbytes

        return self._cache.get_or_load(name, load)

    def _write_range(
        self,
        pieces: list[pa.Table],
        known: Callable[[Digest, str], FileName | None],
        remember: bool,
        behind: "list[Future[None]] | None",
    ) -> RangeInfo:
        table = pa.concat_tables(pieces).combine_chunks()
        content = digest("range", table)
        first, last = table["path"][0].as_py(), table["path"][-1].as_py()
        name = known(content, last)
        if name is None:
            name = self._write(files.RANGE, content, table, behind)
            self._count(ranges_written=1)
            if remember:
                rows = Rows(table)
                self._cache.get_or_load(content, lambda: (rows, rows.nbytes))
        return RangeInfo(content, name, first, last, table.num_rows, int(row_bytes(table).sum()))

    def _load(self, info: RangeInfo) -> Rows:
        rows = Rows(self._read(files.RANGE, info.name))
        self._count(ranges_read=1)
        return rows

    def _write(
        self, shape: files.Shape, content: Digest, table: pa.Table, behind: "list[Future[None]] | None"
    ) -> FileName:
        data = memoryview(files.encode(shape, table, {"esker.id": content, "esker.cutting": self._cut_by}))
        name = fresh_name(content, data, self._world)
        self._put(_blob(shape, name), data, behind)
        return name

    def _put(self, blob: str, data: memoryview, behind: "list[Future[None]] | None") -> None:
        if behind is None or len(self._under_way) >= _UNDER_WAY_MAX:
            self._blobs.put(blob, data)
        else:
            put = self._under_way[blob] = self._puts.submit(self._blobs.put, blob, data)
            put.add_done_callback(lambda _: self._under_way.pop(blob, None))
            behind.append(put)

    def _read(self, shape: files.Shape, name: FileName, columns: Sequence[str] = ()) -> pa.Table:
        return self._decoded(shape, name, _blob(shape, name), columns)

    def _decoded(self, shape: files.Shape, name: FileName, blob: str, columns: Sequence[str] = ()) -> pa.Table:
        if under_way := self._under_way.get(blob):
            under_way.result()
        data = self._blobs.get(blob)
        if data is None:
            raise CorruptError(Kind.MISSING_FILE, f"{blob} is missing from {self._blobs.url}, though a tree names it")
        try:
            return files.decode(shape, name, data, columns)
        except CorruptError:
            if not self._blobs.drop_cached(blob) or (data := self._blobs.get(blob)) is None:
                raise
        return files.decode(shape, name, data, columns)

    def _count(self, **counted: int) -> None:
        for name, n in counted.items():
            activity.count(name, n)
        with self._counting:
            for name, n in counted.items():
                setattr(self._counts, name, getattr(self._counts, name) + n)


def _sstable(name: FileName) -> str:
    return f"_esker/staging/{name}.sst"


def _blob(shape: files.Shape, name: FileName) -> str:
    return f"_esker/{shape.kind}s/{name}"
