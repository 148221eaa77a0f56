"""The steps of a garbage collection that grow with the number of objects: functions of what they are given, which can
be done anywhere, by many at once.

What leads from one step to the next are *pieces*: files beside the repository's own, in which rows lie by the hash of
their names, bucket after bucket. The next step takes one bucket of all pieces, so its memory depends on the number of
buckets alone. A step that is done twice writes its pieces twice, and whoever asked reads the ones that it was told of.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from esker.engine import dumps
from esker.engine.lake import Lake
from esker.errors import ContentionError, Kind
from esker.model import FileName, Repository
from esker.stores.blob import BlobStore
from esker.streams.arrays import bools, only_chunk
from esker.streams.hashes import hash_paths
from esker.tree.past import StoredPast
from esker.tree.trees import Trees
from esker.world import REAL

METADATA: Final = "_esker/"
NOTES: Final = "_esker/gc/"
DATA: Final = "data/"
COMMITS: Final = "commit "
"""Before the id of a commit's record, in place of a file's name: no file begins so."""

LISTED: Final = pa.schema([("name", pa.string()), ("size", pa.int64()), ("mtime_ms", pa.int64())])
DEAD: Final = pa.schema([("name", pa.string()), ("size", pa.int64()), ("since_ms", pa.int64())])
_LIVE: Final = pa.schema([("hash", pa.uint64())])
_RANGES: Final = pa.schema([("id", pa.string()), ("name", pa.string())])

PIECE_ROWS: Final = 500_000
_LIVE_ROWS: Final = 4_000_000
"""Of eight bytes each."""
_BATCH: Final = 1000
"""What stores delete in one call."""
_LISTED_BATCH: Final = 10_000

_NO_GARBAGE: Final = (NOTES, dumps.DUMPS)

_OURS: Final = rf"(?s)^({METADATA}|{DATA}(jobs/|[0-9a-f]{{2}}/[0-9a-f]{{32}}))"
"""How the names of all files begin that are written here: whatever else lies there was there before, and stays."""

_RECORDS: Final = (f"{METADATA}staging/", COMMITS)
"""What has records of the key-value store to it, which the steps know nothing of."""

_KINDS: Final = rf"(?s)^({DATA}jobs/|{DATA}|{METADATA}[^/]*/|{COMMITS}).*$"
"""What files are counted by."""

Hashes = npt.NDArray[np.uint64]
A = TypeVar("A")
B = TypeVar("B")


class Stores(Protocol):
    """Where a repository's files are: can be sent to whoever does a step."""

    @property
    def url(self) -> str: ...
    def blobs(self) -> BlobStore: ...
    def trees(self) -> Trees: ...
    def store(self, url: str) -> BlobStore: ...
    def open(self, url: str) -> BlobStore: ...
    def locate(self, address: str) -> tuple[BlobStore, str]: ...


@dataclass(frozen=True)
class Here:
    """The stores of an open lake, for this process."""

    lake: Lake
    repo: Repository

    @property
    def url(self) -> str:
        return self.repo.namespace

    def blobs(self) -> BlobStore:
        return self.lake.blobs(self.repo)

    def trees(self) -> Trees:
        past = self.lake.past(self.repo)
        assert isinstance(past, StoredPast), "these steps are about files"
        return past.trees

    def store(self, url: str) -> BlobStore:
        return self.lake.store(url)

    def open(self, url: str) -> BlobStore:
        return self.lake.open_blobs(url)

    def locate(self, address: str) -> tuple[BlobStore, str]:
        return self.lake.locate(self.repo, address)


class Runner(Protocol):
    """Has a step done for each of some things: what came of them, in their order. Calls `beat` now and then, and stops
    if that raises."""

    @property
    def parallel(self) -> int:
        """How many it can do at once, or some more."""

    def __call__(self, step: Callable[[A], B], things: Sequence[A], beat: Callable[[], None]) -> Iterable[B]: ...


class InTurn:
    """One after the other, here."""

    parallel = 1

    def __call__(self, step: Callable[[A], B], things: Sequence[A], beat: Callable[[], None]) -> Iterator[B]:
        for thing in things:
            beat()
            yield step(thing)


class Piece(NamedTuple):
    """A file of rows, bucket after bucket."""

    name: str
    ends: tuple[int, ...]
    """Where in the file each bucket ends."""
    rows: int
    bytes: int
    """Of the objects that the rows are about; of live addresses, how many were read."""


class Span(NamedTuple):
    """Names that begin with `prefix`, come after `after` and not after `upto`; "" is no bound."""

    prefix: str
    after: str
    upto: str


@dataclass(frozen=True)
class Plan:
    """What a comparison goes by."""

    where: str
    now_ms: int
    old_ms: int
    """What was written, or found dead, after this, is too young."""
    prefixes: tuple[str, ...]
    """Below which everything is reached."""
    dry_run: bool


class Compared(NamedTuple):
    """What came of comparing one bucket: three files, where there was something for them, and what they add up to."""

    listed: int
    dead: int
    dead_bytes: int
    by_prefix: dict[str, tuple[int, int]]
    """Of what is due."""
    next_ms: int | None
    """Since when the oldest is dead that is not due."""
    due: str
    """What is to be deleted."""
    records: str
    """What is to be deleted with its records."""
    left: str
    """What is dead and stays for now."""


class Sorter:
    """Takes rows and writes them by bucket: into several pieces, so that it never holds more than one."""

    def __init__(self, blobs: BlobStore, where: str, buckets: int) -> None:
        self._blobs = blobs
        self._where = where
        self._buckets = np.uint64(buckets)
        self._tables: list[pa.Table] = []
        self._hashes: list[Hashes] = []
        self._held = 0
        self._read = 0
        self._pieces: list[Piece] = []

    def add(self, rows: pa.Table, by: str = "name") -> None:
        """These, by the hash of a column."""
        if rows.num_rows == 0:
            return
        self._tables.append(rows)
        self._hashes.append(hash_paths(only_chunk(rows[by]), 0))
        self._held += rows.num_rows
        if self._held >= PIECE_ROWS:
            self._write_rows()

    def add_live(self, names: pa.StringArray) -> None:
        """Names of files that something reached has."""
        if len(names) == 0:
            return
        self._hashes.append(hash_paths(names, 0))
        self._held += len(names)
        self._read += len(names)
        if self._held >= _LIVE_ROWS:
            self._write_live()

    def close(self) -> list[Piece]:
        """What was written."""
        if self._tables:
            self._write_rows()
        elif self._hashes:
            self._write_live()
        return self._pieces

    def _write_rows(self) -> None:
        rows = pa.concat_tables(self._tables).combine_chunks()
        buckets = np.concatenate(self._hashes) % self._buckets
        size = pc.sum(rows["size"]).as_py() if "size" in rows.schema.names else 0
        if self._buckets > 1:
            rows = rows.take(pa.array(np.argsort(buckets, kind="stable")))
        self._write(rows, buckets, size)

    def _write_live(self) -> None:
        hashes = _distinct(np.concatenate(self._hashes))
        buckets = hashes % self._buckets
        if self._buckets > 1:
            hashes = hashes[np.argsort(buckets, kind="stable")]
        self._write(pa.table([pa.array(hashes)], schema=_LIVE), buckets, self._read)

    def _write(self, rows: pa.Table, buckets: Hashes, size: int) -> None:
        counts = np.bincount(buckets.astype(np.int64), minlength=int(self._buckets))
        sink = io.BytesIO()
        ends, at = [], 0
        options = pa.ipc.IpcWriteOptions(compression=None if rows.schema.equals(_LIVE) else "lz4")
        for count in counts.tolist():
            if count:
                with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
                    writer.write_table(rows.slice(at, count))
            at += count
            ends.append(sink.tell())
        name = f"{self._where}-{REAL.token(8)}"  # nothing is ever known by it: the simulator's dice are not needed
        self._blobs.put(name, sink.getbuffer())
        self._pieces.append(Piece(name, tuple(ends), rows.num_rows, size))
        self._tables, self._hashes, self._held, self._read = [], [], 0, 0


def _distinct(hashes: Hashes) -> Hashes:
    """As `np.unique`, whose hashing takes several times as long."""
    hashes.sort()
    first: Hashes = hashes[np.append(True, hashes[1:] != hashes[:-1])]
    return first


def spans(parallel: int) -> list[Span]:
    """All names that a repository's files may have, in about so many parts several times over."""
    count = min(128, 4 * parallel)
    cuts = [f"{256 * at // count:02x}" for at in range(1, count)]
    data = [f"{DATA}{below}{cut}" for below in ("", "jobs/") for cut in cuts]
    metadata = [f"{METADATA}{below}{cut}" for below in ("metaranges/", "ranges/") for cut in cuts]
    found = []
    for prefix, marks in ((DATA, data), (METADATA, metadata)):
        found += [Span(prefix, after, upto) for after, upto in zip(["", *marks], [*marks, ""], strict=True)]
    return found


def list_span(stores: Stores, where: str, buckets: int, span: Span) -> list[Piece]:
    """The files whose names lie in a span."""
    sorter = Sorter(stores.blobs(), f"{where}listed", buckets)
    names: list[str] = []
    sizes: list[int] = []
    mtimes: list[int] = []
    for info in stores.blobs().list(span.prefix, span.after):
        if span.upto and info.name > span.upto:
            break
        if info.name.startswith(_NO_GARBAGE):
            continue
        names.append(info.name)
        sizes.append(info.size)
        mtimes.append(info.mtime_ms)
        if len(names) == _LISTED_BATCH:
            sorter.add(_ours(names, sizes, mtimes))
            names, sizes, mtimes = [], [], []
    sorter.add(_ours(names, sizes, mtimes))
    return sorter.close()


def _ours(names: list[str], sizes: list[int], mtimes: list[int]) -> pa.Table:
    rows = pa.table([names, sizes, mtimes], schema=LISTED)
    return rows.filter(pc.match_substring_regex(rows["name"], _OURS))


def sort_ranges(stores: Stores, where: str, buckets: int, trees: Sequence[FileName]) -> list[Piece]:
    """The ranges of these trees, each once."""
    sorter = Sorter(stores.blobs(), f"{where}ranges", buckets)
    seen: set[str] = set()
    for tree in trees:
        files = stores.trees().metarange(tree).table.select(["id", "name"])
        fresh = [name not in seen for name in files["name"].to_pylist()]
        files = files.filter(pa.array(fresh, pa.bool_())).cast(_RANGES)
        seen.update(files["name"].to_pylist())
        sorter.add(files, by="id")
    return sorter.close()


def mark_ranges(stores: Stores, where: str, buckets: int, ranges: Sequence[Piece], bucket: int) -> list[Piece]:
    """What the ranges of a bucket name, and they themselves."""
    sorter = Sorter(stores.blobs(), f"{where}live", buckets)
    files: dict[str, FileName] = {}
    for rows in _bucket(stores, ranges, bucket):
        sorter.add_live(_with_prefix(f"{METADATA}ranges/", only_chunk(rows["name"])))
        files.update(zip(rows["id"].to_pylist(), map(FileName, rows["name"].to_pylist()), strict=True))
    for addresses in stores.trees().addresses(files.values()):  # of equal content, one is read
        sorter.add_live(own(addresses, stores.url))
    return sorter.close()


def mark_tables(stores: Stores, where: str, buckets: int, tables: Sequence[FileName]) -> list[Piece]:
    """What these tables of layers name."""
    sorter = Sorter(stores.blobs(), f"{where}live", buckets)
    for table in tables:
        (rows,) = stores.trees().read_layers([table])
        sorter.add_live(own(only_chunk(rows["address"]), stores.url))
    return sorter.close()


def own(addresses: pa.StringArray, url: str) -> pa.StringArray:
    """Addresses as files are listed: one that is a URL of the repository's own place names what lies there."""
    for root in {url.rstrip("/") + "/", unquote(url).rstrip("/") + "/"}:
        if pc.any(pc.starts_with(addresses, root)).as_py():
            whole = pc.starts_with(addresses, root)
            addresses = pc.if_else(whole, pc.utf8_slice_codeunits(addresses, len(root)), addresses)
    return addresses


def sort_note(stores: Stores, where: str, buckets: int, file: str) -> list[Piece]:
    """What a file says was dead at the last mark. Nothing, if another collection has replaced it."""
    sorter = Sorter(stores.blobs(), f"{where}noted", buckets)
    data = stores.blobs().get(file)
    if data is not None:
        for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(PIECE_ROWS):
            sorter.add(pa.Table.from_batches([batch]).select(DEAD.names))
    return sorter.close()


def compare(
    stores: Stores, plan: Plan, listed: Sequence[Piece], live: Sequence[Piece], noted: Sequence[Piece], bucket: int
) -> Compared:
    """What in a bucket was listed, is old, and is reached by nothing; since when; and whether that is long enough."""
    tables, count = [], 0
    for rows in _bucket(stores, listed, bucket):
        count += rows.num_rows
        rows = rows.filter(pc.less(rows["mtime_ms"], plan.old_ms))
        for prefix in plan.prefixes:
            rows = rows.filter(pc.invert(pc.starts_with(rows["name"], prefix)))
        tables.append(rows)
    old = pa.concat_tables([LISTED.empty_table(), *tables]).combine_chunks()
    if old.num_rows == 0:
        return Compared(count, 0, 0, {}, None, "", "", "")
    hashes, at = np.unique(hash_paths(only_chunk(old["name"]), 0), return_inverse=True)
    alive = np.zeros(len(hashes), dtype=np.bool_)
    for rows in _bucket(stores, live, bucket):
        # Equal hashes of unequal names keep something that is dead: one in billions, and harmless.
        found = rows["hash"].to_numpy()
        place = np.minimum(np.searchsorted(hashes, found), len(hashes) - 1)
        alive[place[hashes[place] == found]] = True
    dead = old.filter(pa.array(~alive[at])).combine_chunks()
    since = np.full(dead.num_rows, plan.now_ms, dtype=np.int64)
    for rows in _bucket(stores, noted, bucket):
        place = pc.index_in(only_chunk(dead["name"]), value_set=only_chunk(rows["name"]))
        known = bools(pc.is_valid(place))
        since[known] = only_chunk(rows["since_ms"]).take(place.drop_null()).to_numpy()
    dead = pa.table([dead["name"], dead["size"], pa.array(since)], schema=DEAD)
    due = dead.filter(pa.array(since <= plan.old_ms))
    young = since[since > plan.old_ms]
    left = dead if plan.dry_run else dead.filter(pa.array(since > plan.old_ms))
    files = ["", ""]
    if not plan.dry_run:
        with_records = np.zeros(due.num_rows, dtype=np.bool_)
        for prefix in _RECORDS:
            with_records |= bools(pc.starts_with(due["name"], prefix))
        files = [
            _write_dead(stores, f"{plan.where}{what}", due.filter(pa.array(chosen)))
            for what, chosen in (("due", ~with_records), ("records", with_records))
        ]
    return Compared(
        listed=count,
        dead=dead.num_rows,
        dead_bytes=pc.sum(dead["size"]).as_py() or 0,
        by_prefix=_by_prefix(due),
        next_ms=int(young.min()) if len(young) else None,
        due=files[0],
        records=files[1],
        left=_write_dead(stores, plan.where.removesuffix("/"), left),
    )


def sweep(stores: Stores, file: str) -> int:
    """Delete what a file names; it may have been deleted before. How many."""
    count = 0
    for names in names_in(stores.blobs(), file):
        stores.blobs().delete(names)
        count += len(names)
    return count


def names_in(blobs: BlobStore, file: str) -> Iterator[list[str]]:
    """The names in a file of what is due, some at a time."""
    data = blobs.get(file)
    if data is None:
        raise _gone(file)
    for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(_BATCH, columns=["name"]):
        yield batch["name"].to_pylist()


def _bucket(stores: Stores, pieces: Sequence[Piece], bucket: int) -> Iterator[pa.Table]:
    """The rows of one bucket, piece by piece."""
    blobs = stores.blobs()
    for piece in pieces:
        start, end = piece.ends[bucket - 1] if bucket else 0, piece.ends[bucket]
        if start == end:
            continue
        data = blobs.get_range(piece.name, start, end - start)
        if data is None or len(data) != end - start:
            raise _gone(piece.name)
        yield pa.ipc.open_stream(data).read_all().combine_chunks()


def _gone(file: str) -> ContentionError:
    return ContentionError(Kind.CONTENTION, f"{file} is gone, as others do away with old ones: collect again")


def _write_dead(stores: Stores, where: str, rows: pa.Table) -> str:
    if rows.num_rows == 0:
        return ""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    name = f"{where}-{REAL.token(8)}.parquet"
    stores.blobs().put(name, memoryview(sink.getvalue()))
    return name


def _by_prefix(rows: pa.Table) -> dict[str, tuple[int, int]]:
    kinds = pc.replace_substring_regex(rows["name"], pattern=_KINDS, replacement=r"\1")
    sums = (
        pa.table([kinds, rows["size"]], names=["kind", "size"])
        .group_by("kind")
        .aggregate([("size", "count"), ("size", "sum")])
    )
    found = zip(*(sums[name].to_pylist() for name in ("kind", "size_count", "size_sum")), strict=True)
    return {"commits" if kind == COMMITS else kind: (files, size) for kind, files, size in found}


def _with_prefix(prefix: str, names: pa.StringArray) -> pa.StringArray:
    return pc.binary_join_element_wise(prefix, names, "")
