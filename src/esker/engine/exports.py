"""Exports: the objects of a commit, or those that changed since another, copied under their paths to a plain place.

    1. plan    the commit's paths, or what leads to it from the other, in parts
    2. unmark  the place, and claim it: from here on it is neither what it was nor what it will be
    3. delete  what was removed, in all parts: a directory may be in the way of a file, or a file of a directory
    4. copy    each part: objects, several at a time; then note that the part is done
    5. mark    the place, with a manifest that names the notes of all parts

Whoever reads the place waits for the mark. An export that failed, was cancelled or killed is asked for again: of parts
that are done, only what is not there with its size is copied once more. So is one that was done. The bytes go as they
are, with no more than their paths: a plain place has no types, metadata or history. Of two exports to one place,
the one that began later goes on; the other finds the claim to be another's about a second later, and marks nothing.

The steps are functions of what they are given, as those of `engine.garbage`: done here, or by Spark's executors.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from esker.engine import elsewhere, metrics, releases, spans, tasks
from esker.engine.entries import check_prefix
from esker.engine.lake import Lake
from esker.engine.refs import commit_of
from esker.engine.steps import Here, InTurn, Runner, Stores
from esker.engine.tasks import BEAT_S, Task, Work
from esker.errors import ContentionError, CorruptError, InvalidError, Kind, NotFoundError
from esker.model import CommitID, FileName, Repository
from esker.stores.blob import BlobInfo, BlobStore, check_name
from esker.stores.open_blobs import split_url
from esker.streams.arrays import bools
from esker.tree import reading
from esker.tree.diff import diff

KIND: Final = "export"

OWN: Final = "_esker_export/"
"""Below the place, for the mark and the notes. Readers of tables pass over names that begin so."""

SUCCESS: Final = f"{OWN}_SUCCESS"
"""The manifest, in JSON."""

_CLAIM: Final = f"{OWN}_TASK"
"""The id of the task that was the last to begin here."""

_RANGES: Final = 1
"""Of a part: some thousand objects, after which it need not be done again."""

_WAITING: Final = 4
"""Copies at hand for each thread."""

_ROWS: Final = pa.schema([("path", pa.string()), ("address", pa.string()), ("size", pa.int64()), ("gone", pa.bool_())])
_NOTE: Final = pa.schema([("path", pa.string()), ("size", pa.int64()), ("checksum", pa.string()), ("gone", pa.bool_())])

Tell = Callable[[int, int], None]
"""Told how many objects and bytes are in their place since it was last told. May raise, to have the work stop."""


class Totals(Protocol):
    """Is told elsewhere, by many, and knows what it adds up to."""

    def __call__(self, objects: int, size: int) -> None: ...
    def sums(self) -> tuple[int, int]: ...


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an export put in its place."""

    repository: str
    ref: str
    commit: CommitID
    since: CommitID | None = None
    """Only what changed after this commit, and what was removed since is gone from the place."""
    prefix: str = ""
    objects: int = 0
    bytes: int = 0
    copied: int = 0
    """Of the objects: the others were there."""
    deleted: int = 0
    parts: tuple[str, ...] = ()
    """Notes, in Parquet: `path`, `size`, `checksum`, and whether it is `gone`; in order of path."""
    finished_ms: int = 0
    format_version: int = 1


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What an export was told, in its task."""

    ref: str
    commit: CommitID
    since: CommitID | None
    prefix: str
    target: str


@dataclass(frozen=True)
class Job:
    """What a step needs to know."""

    tree: FileName
    since: FileName | None
    prefix: str
    target: str
    """The URL of the place, without a slash at its end."""
    notes: str
    """Where parts are noted, below the place."""
    task: str
    threads: int


class Part(NamedTuple):
    """Paths from `start` on and before `stop`."""

    number: int
    start: str
    stop: str | None


class Copied(NamedTuple):
    """What came of a part."""

    note: str
    """Empty, if there was nothing in it."""
    objects: int = 0
    bytes: int = 0
    copied: int = 0


def start(lake: Lake, repo: Repository, ref: str, target: str, *, since: str = "", prefix: str = "") -> Task:
    """Write down an export of what is committed on `ref` to the directory at a URL, for `export`. InvalidError if that
    has to do with the data of a repository; where else it may lie is for the caller to check. NotFoundError if the
    rules have let go of what it would read."""
    if prefix:
        check_prefix(prefix)
    if target.startswith("memory:"):
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{target} is in the memory of one process: nobody could read it")
    place = elsewhere.address_of(target.rstrip("/") + "/")
    elsewhere.check_elsewhere(lake, place)
    commit = commit_of(lake, repo, ref)
    before = commit_of(lake, repo, since) if since else None
    details = Details(ref=ref, commit=commit, since=before, prefix=prefix, target=target.rstrip("/"))
    read = (commit,) if before is None else (commit, before)
    make = partial(tasks.start, lake, repo, KIND, about=f"{ref} to {target}", commits=read, details=details)
    let_go = NotFoundError(Kind.RELEASED, "let go of")
    return releases.build_on(lake, repo, read, make, lambda task: tasks.fail(lake, repo, task.id, let_go))


@metrics.measured("export")
def export(
    lake: Lake,
    repo: Repository,
    task: Task,
    *,
    progress: Callable[[int, int], None] | None = None,
    stores: Stores | None = None,
    run: Runner | None = None,
    totals: Totals | None = None,
) -> Manifest:
    """Do what `start` wrote down: what the place then holds. Whoever cancels the task stops it.

    `run` has the steps done elsewhere, by whoever can open `stores`, who tell `totals`; by default they are done here.
    """
    told = task.details_as(Details)
    stores = stores or Here(lake, repo)
    with tasks.working(lake, repo, task) as work, closing(stores.open(told.target)) as place:
        work.check()
        trees = [None if name is None else lake.commits(repo).get(name).tree for name in (told.commit, told.since)]
        assert trees[0] is not None
        notes = f"{OWN}{_key(repo, told)}/"
        job = Job(trees[0], trees[1], told.prefix, told.target, notes, task.id, lake.settings.threads)
        place.put(_CLAIM, task.id.encode())
        place.delete([SUCCESS])
        place.delete([info.name for info in place.list(OWN) if not info.name.startswith((notes, _CLAIM))])
        step = partial(copy_part, stores, job, totals or _Teller(work, progress))
        beat = partial(_beat, work, progress, totals) if totals else work.beat
        run = run or InTurn()
        parts = _parts(lake, repo, job)
        deleted = sum(run(partial(delete_part, stores, job), parts, beat)) if job.since else 0
        done = [*run(step, parts, beat)]
        beat()
        manifest = Manifest(
            repository=repo.name,
            ref=told.ref,
            commit=told.commit,
            since=told.since,
            prefix=told.prefix,
            objects=sum(one.objects for one in done),
            bytes=sum(one.bytes for one in done),
            copied=sum(one.copied for one in done),
            deleted=deleted,
            parts=tuple(one.note for one in done if one.note),
            finished_ms=lake.world.now_ms(),
        )
        work.check()
        _check_claim(place, job)
        place.put(SUCCESS, msgspec.json.format(msgspec.json.encode(manifest)))
        work.summary = {
            name: getattr(manifest, name) for name in ("commit", "objects", "bytes", "copied", "deleted")
        } | {"manifest": f"{job.target}/{SUCCESS}"}
    metrics.exported(manifest.copied)
    return manifest


class _Teller:
    """Tells the task, in this process."""

    def __init__(self, work: Work, progress: Callable[[int, int], None] | None) -> None:
        self._work = work
        self._progress = progress

    def __call__(self, objects: int, size: int) -> None:
        self._work.add(objects=objects, bytes=size)
        if self._progress:
            self._progress(self._work.counts["objects"], self._work.counts["bytes"])


def _beat(work: Work, progress: Callable[[int, int], None] | None, totals: Totals) -> None:
    objects, size = totals.sums()
    work.reached(objects=objects, bytes=size)
    if progress:
        progress(objects, size)


def _key(repo: Repository, told: Details) -> str:
    """By which another export of the very same finds what was done."""
    same = "\n".join((repo.uid, told.commit, told.since or "", told.prefix))
    return hashlib.sha256(same.encode()).hexdigest()[:16]


def _parts(lake: Lake, repo: Repository, job: Job) -> list[Part]:
    trees = spans.trees_of(lake, repo)
    start, stop = spans.bounds(job.prefix)
    if job.since is None:
        found = spans.stretches(trees.metarange(job.tree).maxes, start, stop, _RANGES)
    else:
        found = spans.differing(trees, job.since, job.tree, start, stop, _RANGES)
    return [Part(number, *ends) for number, ends in enumerate(found)]


def _check_claim(place: BlobStore, job: Job) -> None:
    """ContentionError if another export has begun in the place since."""
    claim = place.get(_CLAIM)
    if claim != job.task.encode():
        other = f"task {claim.decode(errors='replace')[:60]}" if claim else "another"
        raise ContentionError(Kind.CONTENTION, f"{other} exports to {job.target} too, and began later: it goes on")


def delete_part(stores: Stores, job: Job, part: Part) -> int:
    """Delete what a part says was removed: how many."""
    rows, _ = _rows(stores, job, part)
    gone = rows.filter(rows["gone"])["path"].to_pylist()
    with closing(stores.open(job.target)) as place:
        _check_claim(place, job)
        place.delete(gone)
    return len(gone)


def copy_part(stores: Stores, job: Job, tell: Tell, part: Part) -> Copied:
    """Put the objects of a part in their place, and note that. InvalidError names a path that no file can have."""
    rows, note = _rows(stores, job, part)
    if note.num_rows == 0:
        return Copied("")
    kept = rows.filter(pc.invert(rows["gone"]))
    size = pc.sum(kept["size"]).as_py() or 0
    name = f"{job.notes}{part.number:06}.parquet"
    with closing(stores.open(job.target)) as place:
        there: dict[str, int] = {}
        if place.head(name):  # it was done before
            there = {info.name: info.size for info in _listed(place, part)}
        wanted = kept.filter(pa.array([there.get(path) != size for path, size in _pairs(kept)], pa.bool_()))
        each = zip(*wanted.drop(["gone"]).columns, strict=True)
        copies = [partial(_copy, stores, place, job.target, *row) for row in each]
        told = partial(_told, tell, place, job)
        told(kept.num_rows - len(copies), size - (pc.sum(wanted["size"]).as_py() or 0))
        _all(copies, job.threads, told)
        sink = pa.BufferOutputStream()
        pq.write_table(note, sink, compression="zstd")
        place.put(name, memoryview(sink.getvalue()))
    return Copied(name, kept.num_rows, size, len(copies))


def _told(tell: Tell, place: BlobStore, job: Job, objects: int, size: int) -> None:
    """Tell, and look whether the place is ours still."""
    tell(objects, size)
    _check_claim(place, job)


def _rows(stores: Stores, job: Job, part: Part) -> tuple[pa.Table, pa.Table]:
    """What a part is about, and what is noted of it."""
    trees = stores.trees()
    if job.since is None:
        tables: Iterator[pa.Table] = reading.scan(trees, job.tree, part.start, stop=part.stop)
        found = [table.append_column("gone", pa.array([False] * table.num_rows)) for table in tables]
    else:
        tables = diff(trees, job.since, job.tree, start=part.start, stop=part.stop)
        found = [table.append_column("gone", pa.array(bools(table["tombstone"]))) for table in tables]
    # What some tools put where they think of a directory is none in a place that has real ones.
    found = [
        table.filter(pc.invert(pc.and_(pc.ends_with(table["path"], "/"), pc.equal(table["size"], 0))))
        for table in found
    ]
    for path in (path for table in found for path in table["path"].to_pylist()):
        check_name(path)
        if path.startswith(OWN):
            raise InvalidError(Kind.INVALID_PATH, f"{path!r} cannot be exported: the manifest lies below {OWN}")
    rows, note = (
        pa.concat_tables([schema.empty_table(), *(table.select(schema.names).cast(schema) for table in found)])
        for schema in (_ROWS, _NOTE)
    )
    return rows.combine_chunks(), note.combine_chunks()


def _pairs(rows: pa.Table) -> Iterator[tuple[str, int]]:
    return zip(rows["path"].to_pylist(), rows["size"].to_pylist(), strict=True)


def _listed(place: BlobStore, part: Part) -> Iterator[BlobInfo]:
    for info in place.list("", part.start):
        if part.stop is not None and info.name >= part.stop:
            return
        yield info


def _copy(stores: Stores, place: BlobStore, target: str, path: pa.Scalar, address: pa.Scalar, size: pa.Scalar) -> int:
    """One object: its size."""
    name, where, expected = path.as_py(), address.as_py(), size.as_py()
    source, own = stores.locate(where)
    if not _copied_within(stores, source, own, target, name):
        stream = source.stream(own)
        if stream is None:
            raise NotFoundError(Kind.BLOB_NOT_FOUND, f"the bytes of {name!r} are gone from {where}: nothing to export")
        written = place.put_stream(name, stream)
        if written != expected:
            raise CorruptError(Kind.DAMAGED_FILE, f"{name!r} is {written} bytes at {where}, and should be {expected}")
    return int(expected)


def _copied_within(stores: Stores, source: BlobStore, own: str, target: str, name: str) -> bool:
    """Whether the store could copy it by itself: within one bucket."""
    bucket, key = split_url(f"{source.url}/{own}")
    into, other = split_url(f"{target}/{name}")
    if bucket != into or target.startswith("file:"):
        return False
    return stores.store(bucket).copy(key, other)


def _all(copies: Sequence[Callable[[], int]], threads: int, tell: Tell) -> None:
    """Do these, several at a time, and tell about once a second. The first error ends it."""
    left = iter(copies)
    waiting: set[Future[int]] = set()
    with ThreadPoolExecutor(threads, thread_name_prefix="esker-export") as pool:
        try:
            while True:
                while len(waiting) < _WAITING * threads and (copy := next(left, None)) is not None:
                    waiting.add(pool.submit(copy))
                if not waiting:
                    return
                done, waiting = wait(waiting, BEAT_S, FIRST_COMPLETED)
                tell(len(done), sum(one.result() for one in done))
        finally:
            for one in waiting:
                one.cancel()
