"""Imports: entries for objects that lie elsewhere in the store, and stay there, in one commit.

    1. list     each source: a prefix with all below it, or one object
    2. sort     what was found, by the paths that it gets; a later source wins
    3. commit   it on the branch, in the place of all that was below the destination of a prefix

`start` writes down what is to be done, `run` does it, and `status` tells how far it is, to every process. Nothing is
seen of an import before its commit lands, so one that was cancelled, or whose process died, has changed nothing.
Importing again replaces what was imported before: objects that are gone from the source go.

Nobody reads the bytes, so an entry's checksum is that of where they lie, their size and their time. As long as these
are the same, importing again changes nothing.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import protection, tasks
from esker.engine.commit import NO_METADATA, record_commit
from esker.engine.entries import check_path, check_prefix
from esker.engine.lake import Lake
from esker.engine.landing import clean_head, land
from esker.engine.protection import Action
from esker.engine.tasks import Task, Work
from esker.errors import ConflictError, EskerError, InvalidError, Kind, NotFoundError
from esker.format.names import digest_of
from esker.model import CommitID, Entry, Repository
from esker.stores.blob import BlobInfo
from esker.streams.entries import CHANGES, NO_CHANGES, changes_of
from esker.streams.rows import Changes

SOURCES_MAX: Final = 1000

_BATCH: Final = 10_000
"""Objects that become rows at a time."""

_KIND: Final = "import"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where objects lie, by the address that an entry has, and where they go."""

    kind: Literal["common_prefix", "object"]
    address: str
    destination: str


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What an import was told, in its task."""

    branch: str
    sources: tuple[Source, ...]
    message: str
    committer: str
    metadata: dict[str, str]


def start(
    lake: Lake,
    repo: Repository,
    branch: str,
    sources: Sequence[Source],
    *,
    message: str = "",
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
) -> str:
    """Write down an import onto a clean branch: its id, for `run`. Where sources may lie is for the caller to check."""
    protection.check(lake, repo, branch, Action.COMMIT)
    if not 0 < len(sources) <= SOURCES_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"an import has 1 to {SOURCES_MAX} sources, not {len(sources)}")
    for source in sources:
        if source.kind == "object":
            check_path(source.destination)
        else:
            check_prefix(source.destination)
    clean_head(lake, repo, branch)
    details = Details(
        branch=branch,
        sources=tuple(sources),
        message=message or "Import objects",
        committer=committer,
        metadata=dict(metadata),
    )
    return tasks.start(lake, repo, _KIND, about=f"to {branch}", details=details).id


def status(lake: Lake, repo: Repository, branch: str, name: str) -> Task:
    """How far an import is: `objects` in its progress; of one that is done, `commit` and `tree` in its summary.
    NotFoundError if there is none of this id on the branch."""
    try:
        task = tasks.get(lake, repo, name)
    except NotFoundError:
        task = None
    if task is None or task.kind != _KIND or task.details_as(Details).branch != branch:
        raise NotFoundError(Kind.IMPORT_NOT_FOUND, f"no import {name!r} on {branch!r} of {repo.name!r}")
    return task


def cancel(lake: Lake, repo: Repository, branch: str, name: str) -> None:
    """Have an import stop. ConflictError if it is over."""
    if status(lake, repo, branch, name).over:
        raise ConflictError(Kind.IMPORT_OVER, f"import {name} on {branch!r} of {repo.name!r} is over already")
    tasks.cancel(lake, repo, name)


def run(lake: Lake, repo: Repository, name: str) -> None:
    """Do what `start` wrote down. What becomes of it, errors of ours included, is in its status."""
    task = tasks.get(lake, repo, name)
    with suppress(EskerError), tasks.working(lake, repo, task) as work:
        work.check()
        commit = _import(lake, repo, work)
        work.summary = {"commit": commit, "tree": digest_of(lake.commits(repo).get(commit).tree)}


def _import(lake: Lake, repo: Repository, work: Work) -> CommitID:
    told = work.task.details_as(Details)
    tables = [NO_CHANGES]
    for source in told.sources:
        entries = iter(_entries(lake, repo, source))
        while batch := list(islice(entries, _BATCH)):
            tables.append(changes_of(batch))
            work.add(objects=len(batch))
    rows = _sorted(tables)
    deletes = tuple(source.destination for source in told.sources if source.kind == "common_prefix")

    def make(head: CommitID) -> CommitID:
        work.check()
        before = lake.commits(repo).get(head).tree
        tree = lake.past(repo).apply(before, Changes(rows, deletes))
        if digest_of(tree) == digest_of(before):
            return head  # all of it is there already
        return record_commit(
            lake,
            repo,
            tree=tree,
            parents=(head,),
            message=told.message,
            committer=told.committer,
            metadata=told.metadata,
        )

    return land(lake, repo, told.branch, make, wanted=work.check)


def _entries(lake: Lake, repo: Repository, source: Source) -> Iterator[Entry]:
    """What a source holds, in order of name."""
    blobs, name = lake.locate(repo, source.address)
    root = source.address.removesuffix(name)
    if source.kind == "object":
        found = blobs.head(name)
        if found is None:
            raise InvalidError(Kind.INVALID_ADDRESS, f"there is nothing at {source.address}")
        yield _entry(source.destination, root, found)
        return
    some = False
    for found in blobs.list(name):
        some = True
        path = source.destination + found.name.removeprefix(name)
        check_path(path)
        yield _entry(path, root, found)
    if not some:
        raise InvalidError(Kind.INVALID_ADDRESS, f"there is nothing below {source.address}")


def _entry(path: str, root: str, found: BlobInfo) -> Entry:
    address = root + found.name
    about = f"{address}\n{found.size}\n{found.mtime_ms}"
    return Entry(
        path=path,
        address=address,
        size=found.size,
        checksum=hashlib.md5(about.encode(), usedforsecurity=False).hexdigest(),
        mtime_ms=found.mtime_ms,
    )


def _sorted(tables: Iterable[pa.Table]) -> pa.Table:
    """All rows in order of path; of several with one path, the last."""
    table = pa.concat_tables(tables).combine_chunks()
    at = pa.array(range(table.num_rows))
    order = table.select(["path"]).append_column("at", at).sort_by([("path", "ascending"), ("at", "ascending")])
    last = pa.array([True]) if table.num_rows else pa.array([], pa.bool_())
    if table.num_rows > 1:
        paths = order["path"].combine_chunks()
        last = pa.concat_arrays([pc.not_equal(paths[:-1], paths[1:]), last])
    kept = order["at"].combine_chunks().filter(last)
    return table.take(kept).select(CHANGES.names).combine_chunks()
