"""Imports: entries for objects that lie elsewhere in the store, and stay there, in one commit.

    1. list     each source: a prefix with all below it, by its store or by an inventory; or one object
    2. sort     what was found, by the paths that it gets; a later source wins
    3. write    ranges of it: as it is listed, where that is in order
    4. commit   it on the branch, in the place of all that was below the destination of a prefix

`start` writes down what is to be done, `run` does it, and `status` tells how far it is, to every process. Nothing is
seen of an import before its commit lands, so one that was cancelled, or whose process died, has changed nothing.
Importing again replaces what was imported before: objects that are gone from the source go.

Nobody reads the bytes: `engine.elsewhere` says what an entry is made of. As long as that is the same, importing again
changes nothing. `esker.spark.import_objects` does the same with many processes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import elsewhere, inventories, metrics, protection, tasks
from esker.engine.commit import NO_METADATA, record_commit
from esker.engine.entries import check_path, check_prefix
from esker.engine.lake import Lake
from esker.engine.landing import clean_head, land
from esker.engine.protection import Action
from esker.engine.spans import trees_of
from esker.engine.tasks import Task, Work
from esker.errors import ConflictError, EskerError, InvalidError, Kind, NotFoundError
from esker.format.names import digest_of
from esker.model import CommitID, Repository
from esker.stores.blob import BlobStore
from esker.streams.arrays import Bools, bools, only_chunk
from esker.streams.entries import NO_ENTRIES, as_changes
from esker.streams.prefixes import minimal
from esker.streams.rows import Changes, within
from esker.tree import pieces
from esker.tree.pieces import Piece

SOURCES_MAX: Final = 1000

KIND: Final = "import"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where objects lie, by the address that an entry has, and where they go."""

    kind: Literal["common_prefix", "object"]
    address: str
    destination: str
    inventory: str = ""
    """The address of a list of what lies below, to go by instead of the store's."""

    @classmethod
    def below(cls, url: str, destination: str, inventory: str = "") -> "Source":
        """All that lies in the directory at a URL, by its store or by the inventory at another, to below another."""
        ends = destination if not destination or destination.endswith("/") else f"{destination}/"
        address = elsewhere.address_of(f"{url.rstrip('/')}/")
        listed = elsewhere.address_of(inventory) if inventory else ""
        return cls(kind="common_prefix", address=address, destination=ends, inventory=listed)

    @classmethod
    def at(cls, url: str, destination: str) -> "Source":
        """The object at a URL, to a path."""
        return cls(kind="object", address=elsewhere.address_of(url), destination=destination)


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What an import was told, in its task."""

    branch: str
    sources: tuple[Source, ...]
    message: str
    committer: str
    metadata: dict[str, str]
    stage: str = ""
    """Where an import that this one goes on with kept what it had done."""


def start(
    lake: Lake,
    repo: Repository,
    branch: str,
    sources: Sequence[Source],
    *,
    message: str = "",
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
    stage: str = "",
) -> str:
    """Write down an import onto a clean branch: its id, for `run`. InvalidError if a source has to do with the data of
    a repository; where else sources may lie is for the caller to check."""
    protection.check(lake, repo, branch, Action.COMMIT)
    if not 0 < len(sources) <= SOURCES_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"an import has 1 to {SOURCES_MAX} sources, not {len(sources)}")
    for source in sources:
        if source.kind == "object":
            check_path(source.destination)
        else:
            check_prefix(source.destination)
    for source in sources:
        elsewhere.check_elsewhere(lake, source.address)
    clean_head(lake, repo, branch)
    details = Details(
        branch=branch,
        sources=tuple(sources),
        message=message or "Import objects",
        committer=committer,
        metadata=dict(metadata),
        stage=stage,
    )
    return tasks.start(lake, repo, KIND, about=f"to {branch}", details=details).id


def status(lake: Lake, repo: Repository, branch: str, name: str) -> Task:
    """How far an import is: `objects` in its progress; of one that is done, `commit` and `tree` in its summary.
    NotFoundError if there is none of this id on the branch."""
    try:
        task = tasks.get(lake, repo, name)
    except NotFoundError:
        task = None
    if task is None or task.kind != KIND or task.details_as(Details).branch != branch:
        raise NotFoundError(Kind.IMPORT_NOT_FOUND, f"no import {name!r} on {branch!r} of {repo.name!r}")
    return task


def cancel(lake: Lake, repo: Repository, branch: str, name: str) -> None:
    """Have an import stop. ConflictError if it is over."""
    if status(lake, repo, branch, name).over:
        raise ConflictError(Kind.IMPORT_OVER, f"import {name} on {branch!r} of {repo.name!r} is over already")
    tasks.cancel(lake, repo, name)


def run(lake: Lake, repo: Repository, name: str) -> None:
    """Do what `start` wrote down. What becomes of it, errors of ours included, is in its status."""
    with suppress(EskerError):
        finish(lake, repo, name)


def finish(lake: Lake, repo: Repository, name: str) -> CommitID:
    """The same: the commit, or the error."""
    with tasks.working(lake, repo, tasks.get(lake, repo, name)) as work:
        work.check()
        commit = _import(lake, repo, work)
        work.summary = summary_of(lake, repo, commit)
    return commit


def summary_of(lake: Lake, repo: Repository, commit: CommitID) -> dict[str, int | str]:
    return {"commit": commit, "tree": digest_of(lake.commits(repo).get(commit).tree)}


@metrics.measured("import")
def _import(lake: Lake, repo: Repository, work: Work) -> CommitID:
    told = work.task.details_as(Details)
    trees = trees_of(lake, repo)
    regions = regions_of(told.sources)
    built: list[tuple[str, list[Piece]]] = []
    if are_apart(told.sources):
        head = lake.commits(repo).get(lake.branches(repo).get(told.branch).commit).tree
        built += [
            (source.destination, [pieces.write(trees, _found(lake, repo, source, work), [head])])
            for source in sorted(_prefixes(told.sources), key=lambda source: source.destination)
        ]
        rest = in_order(rows for source in _objects(told.sources) for rows in _found(lake, repo, source, work))
    else:
        rows = in_order(rows for source in told.sources for rows in _found(lake, repo, source, work))
        for prefix in regions:
            below = rows.slice(*_slice(only_chunk(rows["path"]), prefix))
            built.append((prefix, [pieces.write(trees, [below])]))
        rest = rows.filter(pa.array(~elsewhere.within(rows, regions)))
    return publish(lake, repo, work, built, rest)


def publish(
    lake: Lake, repo: Repository, work: Work, built: Sequence[tuple[str, Iterable[Piece]]], rest: pa.Table
) -> CommitID:
    """Commit what was found: pieces in the place of what is below each prefix, and the rest on top."""
    told, trees = work.task.details_as(Details), trees_of(lake, repo)

    def make(head: CommitID) -> CommitID:
        work.check()
        before = lake.commits(repo).get(head).tree
        tree = pieces.replace(trees, before, built)
        if rest.num_rows:
            tree = lake.past(repo).apply(tree, Changes(as_changes(rest)))
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

    commit = land(lake, repo, told.branch, make, wanted=work.check)
    metrics.imported(work.counts["objects"])
    return commit


def regions_of(sources: Iterable[Source]) -> tuple[str, ...]:
    """The prefixes below which all is replaced, in order, without those within others."""
    return minimal(source.destination for source in _prefixes(sources))


def are_apart(sources: Sequence[Source]) -> bool:
    """Whether each prefix can be taken in by itself, in the order in which its store lists it, and objects on top."""
    regions = regions_of(sources)
    if len(regions) < len(_prefixes(sources)) or any(source.inventory for source in sources):
        return False
    later: tuple[str, ...] = ()
    for source in reversed(sources):
        if source.kind == "common_prefix":
            later = (*later, source.destination)
        elif source.destination.startswith(later):
            return False
    return True


def _prefixes(sources: Iterable[Source]) -> list[Source]:
    return [source for source in sources if source.kind == "common_prefix"]


def _objects(sources: Iterable[Source]) -> list[Source]:
    return [source for source in sources if source.kind == "object"]


def _found(lake: Lake, repo: Repository, source: Source, work: Work) -> Iterator[pa.Table]:
    """What a source holds, as entries. InvalidError if that is nothing."""
    count = 0
    for rows in listing(lake, repo, source):
        count += rows.num_rows
        work.add(objects=rows.num_rows)
        yield rows
    if not count:
        raise nothing_below(source)


def nothing_below(source: Source) -> InvalidError:
    listed = (
        f" in the inventory {source.inventory}" if source.inventory else ": one object is imported as such (--object)"
    )
    return InvalidError(Kind.INVALID_ADDRESS, f"there is nothing below {source.address}{listed}")


def listing(lake: Lake, repo: Repository, source: Source) -> Iterator[pa.Table]:
    def locate(address: str) -> tuple[BlobStore, str]:
        return lake.locate(repo, address)

    if source.inventory:
        for file in inventories.files(locate, source.inventory):
            yield from inventories.listing(locate, file, source.address, source.destination)
        return
    blobs, name = locate(source.address)
    root = source.address.removesuffix(name)
    if source.kind == "object":
        yield elsewhere.one(blobs, root, name, source.destination)
    else:
        yield from elsewhere.listing(blobs, root, name, source.destination)


def in_order(tables: Iterable[pa.Table]) -> pa.Table:
    """All rows in order of path; of several with one path, the last."""
    table = pa.concat_tables([NO_ENTRIES, *tables]).combine_chunks()
    at = pa.array(range(table.num_rows), pa.int64())
    order = table.select(["path"]).append_column("at", at).sort_by([("path", "ascending"), ("at", "ascending")])
    last = last_of_each(only_chunk(order["path"]))
    return table.take(only_chunk(order["at"]).filter(pa.array(last))).combine_chunks()


def last_of_each(paths: pa.StringArray) -> Bools:
    """Of sorted paths, which is the last of its equals."""
    last = np.ones(len(paths), dtype=bool)
    if len(paths) > 1:
        last[:-1] = bools(pc.not_equal(paths[:-1], paths[1:]))
    return last


def _slice(paths: pa.StringArray, prefix: str) -> tuple[int, int]:
    found = within(paths, prefix)
    return found.start, found.stop - found.start
