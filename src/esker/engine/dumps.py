"""Dumps: all refs of a repository as files in its own place, and a repository made from them again.

    dump     tags and branches first, then commits: so every commit that a ref names is there
    restore  into a repository that was created bare, where the dumped one lay: commits, then tags, what collections
             have let go of, then branches

A dump has no objects, and none of what is staged: trees and objects lie where they are, and the refs that lead to them
are what a lost key-value store takes away. A restore that broke off is simply done again: what is there already is what
the dump says, or it is refused.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from esker.engine import protection, releases, repositories, tasks, tenure
from esker.engine.commit import NO_METADATA
from esker.engine.lake import Lake
from esker.engine.tasks import Task, TaskState
from esker.errors import CorruptError, InvalidError, Kind, NotFoundError
from esker.model import CommitID, Repository
from esker.refs import commits, tags
from esker.refs.names import check_branch, check_tag
from esker.stores.blob import BlobStore
from esker.tree.cutting import Cutting

DUMPS: Final = "_esker/dumps/"
"""Below a repository's namespace. No garbage collection looks there."""

RELEASED: Final = "_esker/gc/released.json"
"""The commits that collections have let go of: told by them, not by dumps, since an older dump needs the newest too."""

_CUTTING: Final = f"{DUMPS}cutting.json"
"""How the dumped repository cut its trees: one that goes on where it ended has to cut alike."""

_DIGEST_CHARS: Final = 64
_HEX: Final = frozenset("0123456789abcdef")
_BATCH: Final = 1000

_COMMITS: Final = pa.schema([("id", pa.string()), ("record", pa.binary())])
_TAGS: Final = pa.schema([("name", pa.string()), ("commit", pa.string())])
_BRANCHES: Final = pa.schema([("name", pa.string()), ("commit", pa.string()), ("hidden", pa.bool_())])


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one, by the digest of their bytes."""

    commits: str
    tags: str
    branches: str


def create_bare(
    lake: Lake,
    name: str,
    namespace: str,
    *,
    default_branch: str = "main",
    metadata: Mapping[str, str] = NO_METADATA,
    read_only: bool = False,
) -> Repository:
    """A repository without any ref, to restore a dump into: cut as the one was that lay there, if it was dumped."""
    data = lake.open_blobs(namespace).get(_CUTTING)
    try:
        cutting = None if data is None else msgspec.json.decode(data, type=Cutting)
    except msgspec.MsgspecError as error:
        raise CorruptError(Kind.DAMAGED_FILE, f"{namespace}/{_CUTTING} cannot be read: {error}") from None
    return repositories.create(
        lake,
        name,
        namespace,
        default_branch=default_branch,
        metadata=metadata,
        read_only=read_only,
        cutting=cutting,
        bare=True,
    )


def dump(lake: Lake, repo: Repository) -> Task:
    """Write down all refs, hidden branches too, and all commits: a task that is done, which names the files."""
    with tasks.running(lake, repo, "dump") as work:
        blobs, kv = lake.blobs(repo), lake.kv
        named = [*tags.every(kv, repo.uid)]
        heads = [*lake.branches(repo).page("", _BATCH)]
        records = [*commits.every(kv, repo.uid)]
        work.add(commits=len(records), tags=len(named), branches=len(heads))
        blobs.put(_CUTTING, msgspec.json.encode(repositories.cutting_of(repo)))
        work.summary = {
            "commits": _write(blobs, "commits", _COMMITS, records),
            "tags": _write(blobs, "tags", _TAGS, [(name, tag.commit) for name, tag in named]),
            "branches": _write(
                blobs, "branches", _BRANCHES, [(name, head.commit, head.hidden) for name, head in heads]
            ),
        }
    return work.task


def restore(lake: Lake, repo: Repository, asked: Dump) -> Task:
    """Make the refs of a dump in a repository that has no others: a task that is done. InvalidError if it has, or if
    these are files of different dumps; NotFoundError if one is missing."""
    protection.check_writable(repo)
    with tasks.running(lake, repo, "restore") as work:
        _restore(lake, repo, asked)
        work.summary = msgspec.structs.asdict(asked)
    return work.task


def _restore(lake: Lake, repo: Repository, asked: Dump) -> None:
    blobs, branches = lake.blobs(repo), lake.branches(repo)
    records = {CommitID(name): record for name, record in _read(blobs, "commits", _COMMITS, asked.commits)}
    named = {check_tag(name): CommitID(commit) for name, commit in _read(blobs, "tags", _TAGS, asked.tags)}
    found = _read(blobs, "branches", _BRANCHES, asked.branches)
    heads = {check_branch(name): (CommitID(commit), bool(hidden)) for name, commit, hidden in found}
    gone = _released(blobs)
    for commit in {*named.values(), *(commit for commit, _ in heads.values())}:
        if commit not in records:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"these are files of different dumps: one lacks commit {commit}")
    there = {name: head.commit for name, head in branches.page("", _BATCH)}
    tagged = {name: tag.commit for name, tag in tags.every(lake.kv, repo.uid)}
    if any(heads.get(name, ("",))[0] != commit for name, commit in there.items()) or any(
        named.get(name) != commit for name, commit in tagged.items()
    ):
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"{repo.name!r} has refs of its own: restore into a repository that was created bare"
        )
    tenure.take(lake, repo)
    commits.put_records(lake.kv, repo.uid, records)
    for name, commit in named.items():
        if name not in tagged:
            tags.create(lake.kv, repo.uid, name, commit)
    releases.note(lake, repo, gone)
    for name, (commit, hidden) in heads.items():
        if name not in there:
            branches.create(name, commit, hidden=hidden)


def status(lake: Lake, repo: Repository, kind: Literal["dump", "restore"], name: str) -> tuple[Task, Dump | None]:
    """A dump or a restore, and the files that it wrote or read. NotFoundError if there was none of this id."""
    task = tasks.get(lake, repo, name)
    if task.kind != kind:
        raise NotFoundError(Kind.TASK_NOT_FOUND, f"task {name!r} of {repo.name!r} is no {kind}")
    return task, dump_of(task) if task.state is TaskState.DONE else None


def dump_of(task: Task) -> Dump:
    """The files that a task which is done wrote, or read."""
    return msgspec.convert(task.summary, Dump)


def _write(blobs: BlobStore, kind: str, schema: pa.Schema, rows: list[Any]) -> str:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
    table = pa.table([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data = sink.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    blobs.put(_name(kind, digest), memoryview(data))
    return digest


def _read(blobs: BlobStore, kind: str, schema: pa.Schema, digest: str) -> list[tuple[Any, ...]]:
    if len(digest) != _DIGEST_CHARS or not _HEX.issuperset(digest):
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"{digest[:80]!r} names no file of a dump: it has 64 hexadecimal digits"
        )
    name = _name(kind, digest)
    data = blobs.get(name)
    if data is None:
        raise NotFoundError(Kind.MISSING_FILE, f"no dump of {kind} {digest} in {blobs.url}")
    if hashlib.sha256(data).hexdigest() != digest:
        raise CorruptError(Kind.DAMAGED_FILE, f"{blobs.url}/{name} is damaged: its bytes have another digest")
    try:
        table = pq.read_table(pa.BufferReader(data), schema=schema)
    except pa.ArrowException as error:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"{blobs.url}/{name} is no dump of {kind}: {error}") from None
    return [*zip(*(column.to_pylist() for column in table.columns), strict=True)]


def _released(blobs: BlobStore) -> list[CommitID]:
    blobs.drop_cached(RELEASED)
    try:
        return msgspec.json.decode(blobs.get(RELEASED) or b"[]", type=list[CommitID])
    except msgspec.MsgspecError as error:
        raise CorruptError(Kind.DAMAGED_FILE, f"{blobs.url}/{RELEASED} cannot be read: {error}") from None


def _name(kind: str, digest: str) -> str:
    return f"{DUMPS}{kind}-{digest}.parquet"
