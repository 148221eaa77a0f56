"""Imports by Spark: the steps of `esker.engine.imports`, done by executors.

    1. cut      each source, at directories, into parts that are listed apart                       driver
    2. list     the parts, and write ranges as they are listed                                      executors
    3. publish  the pieces in the place of what is below the destinations, in one commit            driver

Inventories, and sources that overlap, are in no order: their rows are kept, and sorted in between, a stretch of paths
at a time. What is done is kept in the repository, below the task's own place: an import that failed or was cancelled
goes on from there. Driver and executors hold a few ranges of each part, however much is imported.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from esker import activity
from esker.engine import elsewhere, imports, inventories, repositories, spans, tasks
from esker.engine.commit import NO_METADATA
from esker.engine.imports import Details, Source
from esker.engine.lake import Lake
from esker.engine.tasks import Task, Work
from esker.errors import ConflictError, CorruptError, Kind
from esker.model import FileName, Repository
from esker.spark.lakes import Opened, opened
from esker.spark.steps import Counter, OnSpark
from esker.spark.stores import Place
from esker.stores.blob import BlobStore
from esker.streams.arrays import only_chunk
from esker.streams.entries import NO_ENTRIES, SCHEMA
from esker.streams.rows import within
from esker.tree import pieces
from esker.tree.pieces import Piece
from esker.tree.trees import RangeInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTS_A_TASK: Final = 4
"""Parts differ in size, and nobody knows how."""
_PARTS_MAX: Final = 1000

RESUME_S_MAX: Final = activity.OPERATION_MS_MAX / 1000
"""What an import wrote is not collected sooner than twice as long after it."""

_GROUP_ROWS: Final = 10_000
_SAMPLE: Final = 256
"""Paths of a part that tell how it is spread."""

_BUCKET_ROWS: Final = 500_000
"""Sorted at a time: some 150 MB."""

_OUTSIDE: Final = -1
"""In place of a region's number: objects that are below no prefix."""


Built: TypeAlias = tuple[Sequence[tuple[str, Iterable[Piece]]], pa.Table]
"""Pieces by the prefixes below which they are, and what is below none."""


class Part(msgspec.Struct, frozen=True):
    """Some of what a source holds: names after one, up to another; or a file of its inventory."""

    source: int
    after: str = ""
    until: str | None = None
    file: str = ""
    columns: tuple[str, ...] | None = None


class Plan(msgspec.Struct, frozen=True):
    """What is to be done, for whoever goes on with it."""

    head: FileName
    """The tree that the import began on: what did not change since is not stored again."""
    parts: tuple[Part, ...]
    made_ms: int


class _Kept(msgspec.Struct, frozen=True):
    """A piece, as it is kept until it is published."""

    head: bytes
    ranges: tuple[RangeInfo, ...]
    tail: bytes


class _Sample(msgspec.Struct, frozen=True):
    """How the rows of a part are spread."""

    source: int
    count: int
    paths: tuple[str, ...]


@dataclass(frozen=True)
class _Job:
    """What executors need to know."""

    place: Place
    stage: str
    sources: tuple[Source, ...]
    head: FileName


def import_objects(
    spark: "SparkSession",
    repository: str,
    branch: str,
    sources: Source | Sequence[Source] = (),
    *,
    message: str = "",
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
    resume: str = "",
    progress: Callable[[int], None] | None = None,
    lake: Opened | str | None = None,
) -> Task:
    """Take in objects that lie elsewhere, without their bytes, in one commit: its task, with `commit` in its summary.
    What was below the destination of a prefix goes. Whoever cancels the task stops it.

    `resume` goes on with an import of this id that did not end well within the last day, as that was told.
    """
    with opened(spark, lake) as engine:
        repo = repositories.get(engine, repository)
        place = Place.of(repo)
        given, stage = (sources,) if isinstance(sources, Source) else tuple(sources), ""
        if resume:
            told = _resumable(engine, repo, resume)
            given, stage = told.sources, told.stage
            branch, message, committer, metadata = told.branch, told.message, told.committer, told.metadata
        name = imports.start(
            engine, repo, branch, given, message=message, committer=committer, metadata=metadata, stage=stage
        )
        task = tasks.get(engine, repo, name)
        run = OnSpark(spark, f"esker import to {repository}/{branch}")
        with tasks.working(engine, repo, task) as work:
            work.check()
            doing = _Run(spark, engine, repo, place, stage or task.data, work, run, progress)
            plan = doing.plan(given)
            with activity.since(plan.made_ms):
                built, rest = doing.build(plan, given)
                commit = imports.publish(engine, repo, work, built, rest)
            work.summary = imports.summary_of(engine, repo, commit)
        blobs = engine.blobs(repo)
        blobs.delete([info.name for info in blobs.list(stage or task.data)])
        return work.task


def _resumable(lake: Lake, repo: Repository, name: str) -> Details:
    """What an import was told, and where it kept what it did."""
    found = tasks.get(lake, repo, name)
    if found.kind != imports.KIND or not found.over or found.state is tasks.TaskState.DONE:
        raise ConflictError(Kind.TASK_OVER, f"task {name} of {repo.name!r} is {found.state}: nothing is to be resumed")
    told = found.details_as(Details)
    told = msgspec.structs.replace(told, stage=told.stage or found.data)
    plan = _plan(Place.of(repo), told.stage)
    if plan and lake.world.now_ms() - plan.made_ms > RESUME_S_MAX * 1000:
        raise ConflictError(Kind.TASK_OVER, f"what task {name} of {repo.name!r} left is too old: import again")
    return told


class _Run:
    def __init__(
        self,
        spark: "SparkSession",
        lake: Lake,
        repo: Repository,
        place: Place,
        stage: str,
        work: Work,
        run: OnSpark,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._lake = lake
        self._repo = repo
        self._place = place
        self._stage = stage
        self._work = work
        self._run = run
        self._progress = progress
        self._blobs = lake.blobs(repo)
        self._counter: Counter = spark.sparkContext.accumulator(0)

    def build(self, plan: Plan, sources: tuple[Source, ...]) -> Built:
        """Pieces by the prefixes below which they are, and what is below none."""
        job = _Job(self._place, self._stage, sources, plan.head)
        done = {info.name.removeprefix(self._stage) for info in self._blobs.list(self._stage)}
        numbered = [one for one in enumerate(plan.parts) if f"{one[0]:06}" not in done]
        if imports.are_apart(sources):
            list(self._run(partial(list_into_ranges, job, self._counter), numbered, self._beat))
            self._beat()
            names: dict[int, list[str]] = {}
            for number, part in enumerate(plan.parts):
                names.setdefault(part.source, []).append(f"{self._stage}{number:06}")
            regions = sorted((source.destination, at) for at, source in enumerate(sources) if at in names)
            objects = [imports.listing(self._lake, self._repo, one) for one in sources if one.kind == "object"]
            rest = imports.in_order(rows for found in objects for rows in found)
            self._counter.add(rest.num_rows)
            return [(prefix, Pieces(self._place, names[at])) for prefix, at in regions], rest
        list(self._run(partial(list_into_rows, job, self._counter), numbered, self._beat))
        self._beat()
        return self._sorted(job, len(plan.parts))

    def plan(self, sources: tuple[Source, ...]) -> Plan:
        """What is to be done; or was, if this goes on."""
        known = _plan(self._place, self._stage)
        if known:
            return known
        head = self._lake.branches(self._repo).get(self._work.task.details_as(Details).branch).commit
        apart = imports.are_apart(sources)
        parts = [part for at, source in enumerate(sources) for part in self._parts(at, source, apart)]
        plan = Plan(self._lake.commits(self._repo).get(head).tree, tuple(parts), self._lake.world.now_ms())
        self._blobs.put(f"{self._stage}plan", msgspec.msgpack.encode(plan))
        return plan

    def _parts(self, at: int, source: Source, apart: bool) -> Iterator[Part]:
        def locate(address: str) -> Any:
            return self._lake.locate(self._repo, address)

        if source.inventory:
            for file in inventories.files(locate, source.inventory):
                yield Part(at, file=file.address, columns=file.columns)
        elif source.kind == "object":
            if not apart:
                yield Part(at)
        else:
            blobs, name = locate(source.address)
            if elsewhere.is_empty(blobs, name):
                raise imports.nothing_below(source)
            wanted = min(_PARTS_A_TASK * self._run.parallel, _PARTS_MAX)
            for after, until in pairwise(["", *elsewhere.cuts(blobs, name, wanted), None]):
                assert after is not None
                yield Part(at, after, until)

    def _sorted(self, job: _Job, parts: int) -> Built:
        regions = imports.regions_of(job.sources)
        samples = [_sample(job, number) for number in range(parts)]
        for at, source in enumerate(job.sources):
            if not any(sample.count for sample in samples if sample.source == at):
                raise imports.nothing_below(source)
        buckets = [*enumerate(_buckets(samples))]
        found = self._run(partial(sort_into_ranges, job, tuple(samples), regions), buckets, self._beat)
        names: dict[int, list[str]] = {}
        for region, file in (one for bucket in found for one in bucket):
            names.setdefault(region, []).append(file)
        outside = [piece.head for piece in Pieces(self._place, names.get(_OUTSIDE, []))]
        by_prefix = [(prefix, Pieces(self._place, names.get(at, []))) for at, prefix in enumerate(regions)]
        return by_prefix, pa.concat_tables([NO_ENTRIES, *outside]).combine_chunks()

    def _beat(self) -> None:
        self._work.reached(objects=self._counter.value)
        if self._progress:
            self._progress(self._counter.value)


@dataclass(frozen=True)
class Pieces:
    """Pieces that were kept, read as they are needed, and as often."""

    place: Place
    files: Sequence[str]

    def __iter__(self) -> Iterator[Piece]:
        for file in self.files:
            data = self.place.blobs().get(file)
            if data is None:
                raise _gone(self.place, file)
            kept = msgspec.msgpack.decode(data, type=_Kept)
            yield Piece(_decoded(kept.head), kept.ranges, _decoded(kept.tail))


def list_into_ranges(job: _Job, counter: Counter, numbered: tuple[int, Part]) -> None:
    """List a part of a source, and keep it as a piece."""
    number, part = numbered
    _keep(job, f"{number:06}", pieces.write(job.place.trees(), _listed(job, part, counter), [job.head]))


def list_into_rows(job: _Job, counter: Counter, numbered: tuple[int, Part]) -> None:
    """List a part of a source, and keep its rows, sorted, with what tells how they are spread."""
    number, part = numbered
    rows = imports.in_order(_listed(job, part, counter))
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", row_group_size=_GROUP_ROWS)
    blobs = job.place.blobs()
    blobs.put(f"{job.stage}rows-{number:06}", memoryview(sink.getvalue()))
    some = rows["path"].take(pa.array(range(0, rows.num_rows, -(-rows.num_rows // _SAMPLE) or 1), pa.int64()))
    sample = _Sample(part.source, rows.num_rows, tuple(some.to_pylist()))
    blobs.put(f"{job.stage}{number:06}", msgspec.msgpack.encode(sample))


def sort_into_ranges(
    job: _Job, samples: tuple[_Sample, ...], regions: Sequence[str], bucket: tuple[int, tuple[str, str | None]]
) -> list[tuple[int, str]]:
    """Keep the rows between two paths as pieces, of several with one path the last, and those of each region apart: the
    pieces' regions and files."""
    number, (start, stop) = bucket
    order = sorted(range(len(samples)), key=lambda part: samples[part].source)  # a later source wins
    rows = imports.in_order(table for part in order for table in _between(job, part, start, stop))
    found = []
    for at, (region, table) in enumerate(_by_region(rows, regions)):
        if region == _OUTSIDE:
            piece = Piece(table, (), NO_ENTRIES)
        else:
            piece = pieces.write(job.place.trees(), [table], [job.head])
        found.append((region, _keep(job, f"sorted-{number:06}-{at:06}", piece)))
    return found


def _between(job: _Job, part: int, start: str, stop: str | None) -> Iterator[pa.Table]:
    """The rows of a part between two paths. Only what may hold some is read."""
    blobs, name = job.place.blobs(), f"{job.stage}rows-{part:06}"
    info = blobs.head(name)
    if info is None:
        raise _gone(job.place, name)
    with pq.ParquetFile(pa.PythonFile(_Blob(blobs, name, info.size), mode="r")) as file:
        for group in range(file.num_row_groups):
            known = file.metadata.row_group(group).column(0).statistics
            if known is None or (known.max >= start and (stop is None or known.min < stop)):
                yield spans.clipped(file.read_row_group(group).cast(SCHEMA).combine_chunks(), start, stop)


class _Blob(io.RawIOBase):
    """A blob as a file to read in places."""

    def __init__(self, blobs: BlobStore, name: str, size: int) -> None:
        self._blobs = blobs
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        found = self._blobs.get_range(self._name, self._at, self._size - self._at if size < 0 else size) or b""
        self._at += len(found)
        return found


def _sample(job: _Job, number: int) -> _Sample:
    data = job.place.blobs().get(f"{job.stage}{number:06}")
    if data is None:
        raise _gone(job.place, f"{job.stage}{number:06}")
    return msgspec.msgpack.decode(data, type=_Sample)


def _buckets(samples: Sequence[_Sample]) -> list[tuple[str, str | None]]:
    """From one path to the next, so many rows between them that they can be sorted in memory."""
    wanted = max(1, -(-sum(sample.count for sample in samples) // _BUCKET_ROWS))
    spread = sorted((path, sample.count / len(sample.paths)) for sample in samples for path in sample.paths)
    cuts: list[str] = []
    rows = 0.0
    for path, weight in spread:
        rows += weight
        if rows > _BUCKET_ROWS and len(cuts) < 2 * wanted and (not cuts or path > cuts[-1]):
            cuts.append(path)
            rows = 0.0
    return list(pairwise(["", *cuts, None]))  # type: ignore[list-item] # only the last may be None


def _gone(place: Place, file: str) -> CorruptError:
    return CorruptError(Kind.MISSING_FILE, f"{file} is gone from {place.url}: import again")


def _listed(job: _Job, part: Part, counter: Counter) -> Iterator[pa.Table]:
    source = job.sources[part.source]
    if part.file:
        file = inventories.File(part.file, part.columns)
        tables = inventories.listing(job.place.locate, file, source.address, source.destination)
    else:
        blobs, name = job.place.locate(source.address)
        root = source.address.removesuffix(name)
        if source.kind == "object":
            tables = iter([elsewhere.one(blobs, root, name, source.destination)])
        else:
            tables = elsewhere.listing(blobs, root, name, source.destination, part.after, part.until)
    for rows in tables:
        counter.add(rows.num_rows)
        yield rows


def _by_region(rows: pa.Table, regions: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
    """Sorted rows in runs, each with the number of the prefix that it is below."""
    paths = only_chunk(rows["path"])
    start = 0
    for region, prefix in enumerate(regions):
        found = within(paths, prefix)
        if start < found.start:
            yield _OUTSIDE, rows.slice(start, found.start - start)
        if found.start < found.stop:
            yield region, rows.slice(found.start, found.stop - found.start)
        start = max(start, found.stop)
    if start < len(paths):
        yield _OUTSIDE, rows.slice(start)


def _keep(job: _Job, name: str, piece: Piece) -> str:
    kept = _Kept(_encoded(piece.head), tuple(piece.ranges), _encoded(piece.tail))
    job.place.blobs().put(job.stage + name, msgspec.msgpack.encode(kept))
    return job.stage + name


def _plan(place: Place, stage: str) -> Plan | None:
    known = place.blobs().get(f"{stage}plan")
    return None if known is None else msgspec.msgpack.decode(known, type=Plan)


def _encoded(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _decoded(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all().combine_chunks()
