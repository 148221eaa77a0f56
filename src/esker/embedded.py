"""A lake in this process: `esker.open_lake(url)`.

    lake = esker.open_lake("file:///data/lake")
    repo = lake.create_repository("sales")
    main = repo.branch("main")
    main.put("orders/2024.csv", b"id,total")
    main.commit("first orders")
    repo.ref("main~1").list()

Handles are cheap, hold nothing open, and may be shared by threads; only the lake is to be closed. Several processes may
open one lake. What a method raises, and when, is told by the verb behind it in `esker.engine`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from esker.engine import (
    branches,
    changes,
    commit,
    compaction,
    entries,
    exports,
    garbage,
    imports,
    log,
    merge,
    objects,
    prepared,
    protection,
    refs,
    repositories,
    stashes,
)
from esker.engine import reset as resets
from esker.engine.background import Background
from esker.engine.branches import LayerInfo
from esker.engine.changes import Change, ChangePage
from esker.engine.commit import NO_METADATA
from esker.engine.imports import Source
from esker.engine.lake import Lake as Engine
from esker.engine.opening import open_stores
from esker.engine.policy import Compaction
from esker.engine.protection import Rule
from esker.errors import InvalidError, Kind, NotFoundError
from esker.model import Commit, CommitID, Entry, Repository, Staging, Stash
from esker.refs import tags
from esker.settings import DEFAULTS, Settings
from esker.stores.blob import CHUNK_BYTES
from esker.streams.listing import PAGE_MAX, Page
from esker.tree.merge import Strategy
from esker.world import REAL, World


def open_lake(url: str, *, kv: str | None = None, settings: Settings = DEFAULTS, world: World = REAL) -> "Lake":
    """Open the lake whose repositories lie below `url`: `file:///data/lake`, `s3://bucket/prefix`, ..., `memory://`.

    `kv` is the URL of the key-value store for refs and staged changes: `sqlite:///path.db`, `postgresql://...`,
    `dynamodb://table?region=...`. A lake in a local directory keeps its own there; in memory, too. All who open a lake
    must name the same.
    """
    return Lake(url, kv, settings, world)


class Lake:
    """Repositories in one place. A context manager: closing gives back connections and threads."""

    def __init__(self, url: str, kv: str | None, settings: Settings, world: World) -> None:
        self.url = url
        self.kv = kv
        self.engine, self._close = open_stores(url, kv=kv, settings=settings, world=world)
        self._background = Background(self.engine)
        self._background.start()

    def create_repository(
        self,
        name: str,
        *,
        namespace: str | None = None,
        default_branch: str = "main",
        metadata: Mapping[str, str] = NO_METADATA,
        read_only: bool = False,
        staging: Staging | str = Staging.KV,
    ) -> "Repo":
        """A new repository, its data at `namespace` (a URL; by default below the lake's own).

        With `staging="lsm"`, single writes that come together are staged together, as tables in the object store; for
        many writers at once.
        """
        where = namespace or f"{self.url.removesuffix('/')}/{name}"
        made = repositories.create(
            self.engine,
            name,
            where,
            default_branch=default_branch,
            metadata=metadata,
            read_only=read_only,
            staging=_staging(staging),
        )
        return Repo(self.engine, made)

    def repository(self, name: str) -> "Repo":
        """The repository called `name`. NotFoundError if there is none."""
        return Repo(self.engine, repositories.get(self.engine, name))

    def repositories(self) -> list[str]:
        """Their names, in order."""
        return [repo.name for repo in repositories.every(self.engine)]

    def delete_repository(self, name: str) -> None:
        """Forget a repository. Its blobs stay where they are."""
        repositories.delete(self.engine, name)

    def close(self) -> None:
        self._background.stop()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Repo:
    """A repository."""

    def __init__(self, engine: Engine, repo: Repository) -> None:
        self.engine = engine
        self.record = repo

    @property
    def name(self) -> str:
        return self.record.name

    def ref(self, expression: str) -> "Ref":
        """What a branch, tag, commit or expression (`main~2`, `main@`) shows, to read."""
        return Ref(self.engine, self.record, expression)

    def branch(self, name: str) -> "Branch":
        """A branch, to read and write. Whether there is one shows when it is used."""
        return Branch(self.engine, self.record, name)

    def create_branch(self, name: str, source: str, *, hidden: bool = False) -> "Branch":
        """A branch at the commit that `source` names. Costs the same at any size of the repository."""
        branches.create(self.engine, self.record, name, source, hidden=hidden)
        return self.branch(name)

    def branches(self, *, hidden: bool = False) -> list[str]:
        """Their names, in order; hidden ones only if asked for."""
        return [name for name, _ in branches.every(self.engine, self.record, hidden=hidden)]

    def delete_branch(self, name: str) -> None:
        branches.delete(self.engine, self.record, name)

    def tag(self, name: str, ref: str) -> CommitID:
        """Name the commit that `ref` stands for, for good."""
        return refs.tag(self.engine, self.record, name, ref)

    def tags(self) -> dict[str, CommitID]:
        """All of them, in order of their names."""
        return {name: tag.commit for name, tag in tags.every(self.engine.kv, self.record.uid)}

    def delete_tag(self, name: str) -> None:
        protection.check_writable(self.record)
        tags.delete(self.engine.kv, self.record.uid, name)

    def diff(self, left: str, right: str, *, three_dot: bool = False, prefix: str = "") -> Iterator[Change]:
        """What leads from `left` to `right`; with `three_dot`, what merging `right` into `left` would bring."""

        def page(after: str) -> ChangePage:
            return changes.between(
                self.engine, self.record, left, right, three_dot=three_dot, prefix=prefix, after=after
            )

        return _all(page)

    def export(self, ref: str, url: str, *, since: str = "", prefix: str = "") -> exports.Manifest:
        """Copy what is committed on `ref` to the directory at a URL, under its paths; with `since`, only what changed
        after that, and delete there what was removed. Done again, it copies only what is missing."""
        task = exports.start(self.engine, self.record, ref, url, since=since, prefix=prefix)
        return exports.export(self.engine, self.record, task)

    def collect_garbage(self, *, dry_run: bool = False, grace_s: float = garbage.GRACE_S) -> garbage.Report:
        """Delete what no ref reaches any more, and has not for `grace_s`: files that a former collection, so long ago,
        found unreachable too. A dry run deletes nothing, but is such a former collection."""
        return garbage.collect(self.engine, self.record, dry_run=dry_run, grace_s=grace_s)

    def protect(self, *rules: Rule) -> None:
        """Replace the branch protection rules."""
        protection.set_rules(self.engine, self.record, rules)


class Ref:
    """What an expression shows."""

    def __init__(self, engine: Engine, repo: Repository, name: str) -> None:
        self.engine = engine
        self.name = name
        self._repo = repo

    def commit_id(self) -> CommitID:
        """The commit it stands for now."""
        return refs.commit_of(self.engine, self._repo, self.name)

    def stat(self, path: str) -> Entry:
        """The entry at `path`. NotFoundError if there is none."""
        return entries.get(self.engine, self._repo, self.name, path)

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except NotFoundError as error:
            if error.kind is not Kind.OBJECT_NOT_FOUND:
                raise
            return False
        return True

    def get(self, path: str) -> bytes:
        """The bytes at `path`."""
        return b"".join(self.stream(path))

    def stream(self, path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The bytes at `path` in chunks, or a part of them."""
        return objects.read(self.engine, self._repo, self.stat(path), start, length)

    def list(self, prefix: str = "", *, delimiter: str = "") -> Iterator[Entry | str]:
        """Entries in order of path; with a delimiter, also common prefixes, as text."""
        after: str | None = ""
        while after is not None:
            found = self.page(prefix, after=after, delimiter=delimiter)
            yield from found.items
            after = found.next

    def page(self, prefix: str = "", *, after: str = "", delimiter: str = "", amount: int = PAGE_MAX) -> Page:
        """A page of the listing: of one moment, unless 10,000 or more staged changes lie within it."""
        return entries.listing(
            self.engine, self._repo, self.name, prefix=prefix, after=after, delimiter=delimiter, amount=amount
        )

    def log(
        self, *, first_parent: bool = False, paths: Sequence[str] = (), prefixes: Sequence[str] = ()
    ) -> Iterator[tuple[CommitID, Commit]]:
        """Its commits, newest first; with paths or prefixes, those that changed one of them."""
        after: CommitID | None = None
        while True:
            found = log.log(
                self.engine,
                self._repo,
                self.name,
                first_parent=first_parent,
                after=after,
                paths=paths,
                prefixes=prefixes,
            )
            yield from found.items
            if found.next is None:
                return
            after = found.next


class Branch(Ref):
    """A branch, to read and to write."""

    def put(
        self,
        path: str,
        data: bytes | BinaryIO | Path,
        *,
        content_type: str = "",
        metadata: Mapping[str, str] = NO_METADATA,
        if_absent: bool = False,
    ) -> Entry:
        """Store bytes, an open file or the file at a path, and stage them at `path`.

        With `if_absent`, PreconditionError if there is something: of several who try, exactly one succeeds.
        """
        return objects.put(
            self.engine,
            self._repo,
            self.name,
            path,
            _chunks(data),
            content_type=content_type,
            metadata=metadata,
            if_absent=if_absent,
        )

    def link(self, entry: Entry, *, if_absent: bool = False) -> None:
        """Stage an entry whose bytes are in the store already, at its address."""
        entries.put(self.engine, self._repo, self.name, entry, if_absent=if_absent)

    def put_many(self, new: Mapping[str, bytes | BinaryIO | Path]) -> list[Entry]:
        """Store and stage bytes, open files or files at many paths: faster than one by one. Not all or nothing: to be
        sure of that, write to a branch of its own and merge it."""
        return objects.put_many(self.engine, self._repo, self.name, {path: _chunks(data) for path, data in new.items()})

    def link_many(self, new: Iterable[Entry] = (), *, delete: Iterable[str] = ()) -> None:
        """Stage entries whose bytes are in the store already, and that paths are deleted: faster than one by one. Not
        all or nothing: `append` is."""
        entries.write_many(self.engine, self._repo, self.name, new, delete)

    def append(
        self,
        sources: prepared.Source | Sequence[prepared.Source],
        *,
        deletes: Iterable[str] = (),
        expect_absent: Sequence[str] = (),
        expect_head: CommitID | None = None,
    ) -> int:
        """Stage any number of sorted entries at once, all or nothing: Arrow tables, or Parquet files as bytes, paths or
        addresses. With `deletes`, in the place of all that is under these prefixes. How many entries.

        PreconditionError unless what is at, or under, the paths of `expect_absent` is nothing (`t/`: everything under
        it), and the branch points at `expect_head`.
        """
        return prepared.append(
            self.engine,
            self._repo,
            self.name,
            sources,
            deletes=deletes,
            expect_absent=expect_absent,
            expect_head=expect_head,
        )

    def import_objects(
        self,
        sources: Source | Sequence[Source],
        *,
        message: str = "",
        committer: str = "",
        metadata: Mapping[str, str] = NO_METADATA,
    ) -> CommitID:
        """Take in objects that lie elsewhere, without their bytes, in a commit of its own: that. What was below the
        destination of a prefix goes. Refused if anything is staged."""
        given = (sources,) if isinstance(sources, Source) else tuple(sources)
        name = imports.start(
            self.engine, self._repo, self.name, given, message=message, committer=committer, metadata=metadata
        )
        return imports.finish(self.engine, self._repo, name)

    def copy(self, path: str, target: str, *, ref: str | None = None) -> Entry:
        """Stage a copy of `path`, of this branch or another ref."""
        return objects.copy(self.engine, self._repo, ref or self.name, path, self.name, target)

    def delete(self, path: str) -> None:
        """Stage that `path` is deleted. Deleting what is not there is no error."""
        entries.delete(self.engine, self._repo, self.name, path)

    def delete_prefix(self, prefix: str) -> None:
        """Stage that everything under `prefix` is deleted: one record, however much there is."""
        entries.delete_prefix(self.engine, self._repo, self.name, prefix)

    def uncommitted(self, prefix: str = "") -> Iterator[Change]:
        """What is staged, against the last commit."""
        return _all(lambda after: changes.uncommitted(self.engine, self._repo, self.name, prefix=prefix, after=after))

    def commit(
        self,
        message: str,
        *,
        committer: str = "",
        metadata: Mapping[str, str] = NO_METADATA,
        allow_empty: bool = False,
    ) -> CommitID:
        """Commit all that was staged before this call."""
        return commit.commit(
            self.engine,
            self._repo,
            self.name,
            message,
            committer=committer,
            metadata=metadata,
            allow_empty=allow_empty,
        )

    def reset(self, *, path: str | None = None, prefix: str = "") -> None:
        """Drop what is staged: of one path, or of all that begins with `prefix`."""
        if path is None:
            resets.reset_prefix(self.engine, self._repo, self.name, prefix)
        else:
            resets.reset_path(self.engine, self._repo, self.name, path)

    def layers(self) -> list[LayerInfo]:
        """What is staged, as a reader goes through it, top first: nothing, of a clean branch."""
        return branches.staged(self.engine, self._repo, self.name).layers

    def compact(self, *, major: bool = True) -> bool:
        """Fold what is staged, so that reading costs what reading a clean branch does: whether there was anything to
        fold. It also happens by itself. With `major=False`, small tables become few, and the tree is not rewritten."""
        how = Compaction.MAJOR if major else Compaction.MINOR
        return compaction.compact(self.engine, self._repo, self.name, how, force=True)

    def stash(self, name: str) -> None:
        """Set aside all that is staged, under a name."""
        stashes.stash(self.engine, self._repo, self.name, name)

    def pop(self, name: str, *, strategy: Strategy | str = Strategy.NONE) -> None:
        """Lay a stash on top of what is there. After commits since, it is merged: ConflictError names the paths that
        both changed."""
        stashes.pop(self.engine, self._repo, self.name, name, strategy=_strategy(strategy))

    def stashes(self) -> dict[str, Stash]:
        """What was set aside, by name."""
        return stashes.every(self.engine, self._repo, self.name)

    def drop_stash(self, name: str) -> None:
        """Forget a stash, and what is in it."""
        stashes.drop(self.engine, self._repo, self.name, name)

    def move(self, ref: str) -> None:
        """Point the branch at any commit. Refused if anything is staged."""
        merge.move(self.engine, self._repo, self.name, ref)

    def merge(
        self,
        source: str,
        *,
        strategy: Strategy | str = Strategy.NONE,
        message: str = "",
        committer: str = "",
        metadata: Mapping[str, str] = NO_METADATA,
        squash: bool = False,
        allow_empty: bool = False,
        expected_head: CommitID | None = None,
        hint: str | None = None,
        check: Callable[[Ref], object] | None = None,
    ) -> CommitID:
        """Bring what `source` changed since it parted from here. ConflictError names all paths that both changed.

        With `expected_head`, PreconditionError unless the branch is there. What it would do, conflicts included, tells
        `Repo.diff(branch, source, three_dot=True)`.

        `check` is called once, before anything lands, with what the merge comes to; what it raises refuses the merge.
        What others land meanwhile is not checked again, unless `expected_head` refuses it.
        """
        return merge.merge(
            self.engine,
            self._repo,
            source,
            self.name,
            strategy=_strategy(strategy),
            message=message,
            committer=committer,
            metadata=metadata,
            squash=squash,
            allow_empty=allow_empty,
            expected_head=expected_head,
            hint=hint,
            check=check and (lambda result: check(Ref(self.engine, self._repo, result))),
        )

    def revert(self, ref: str, *, parent: int = 0, message: str = "", committer: str = "") -> CommitID:
        """Undo what `ref` changed against its parent (of a merge: the `parent`-th, from 1)."""
        return merge.revert(
            self.engine, self._repo, self.name, ref, parent=parent, message=message, committer=committer
        )

    def cherry_pick(self, ref: str, *, parent: int = 0, message: str = "", committer: str = "") -> CommitID:
        """Make the change that `ref` made against its parent (of a merge: the `parent`-th, from 1)."""
        return merge.cherry_pick(
            self.engine, self._repo, self.name, ref, parent=parent, message=message, committer=committer
        )


def _staging(name: str) -> Staging:
    try:
        return Staging(name)
    except ValueError:
        known = " or ".join(repr(str(staging)) for staging in Staging)
        raise InvalidError(Kind.INVALID_ARGUMENT, f"no staging {name!r}: write {known}") from None


def _strategy(name: str) -> Strategy:
    try:
        return Strategy(name)
    except ValueError:
        known = " or ".join(repr(str(strategy)) for strategy in Strategy if strategy)
        message = f"no merge strategy {name!r}: write {known}, or leave it out"
        raise InvalidError(Kind.INVALID_ARGUMENT, message) from None


def _chunks(data: bytes | BinaryIO | Path) -> Iterator[bytes]:
    if isinstance(data, Path):
        with data.open("rb") as file:
            yield from _chunks(file)
    elif isinstance(data, bytes | bytearray | memoryview):
        yield bytes(data)
    elif isinstance(data, str):
        raise InvalidError(Kind.INVALID_ARGUMENT, "text is no bytes: encode it, or pass a Path to name a file")
    else:
        while chunk := data.read(CHUNK_BYTES):
            yield chunk


def _all(page: Callable[[str], ChangePage]) -> Iterator[Change]:
    after: str | None = ""
    while after is not None:
        found = page(after)
        yield from found.items
        after = found.next
