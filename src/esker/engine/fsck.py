"""Fsck: the invariants of a repository, checked on what is stored.

    1. refs      every branch and tag can be read, and names a commit; there is the default branch
    2. commits   all that they descend from are there, under the digest of their bytes, a generation above their parents
    3. trees     the file of each, and each range that no parent's tree has: there, undamaged, of the digest, bounds,
                 counts and order that is said of it; with `deep`, cut where it should be. Not of commits that retention
                 rules have let go of: theirs may be gone, and tell nothing of others
    4. staging   of each branch and stash: tables and filters, as files are; staged records; guards that say what the
                 branch's record says; a token that is not dirty holds nothing; the compacted tree
    5. jobs      their records
    6. blobs     if asked: the bytes of all that branches and tags show are there, in their size

Nothing is taken from a cache, and nothing is changed. Memory does not grow with history or entries: commits are walked
by generation, so that each is met after all that descend from it, and a range is checked with the commit that brought
it. The repository may be in use: what is found wrong with a branch counts if its record, read again, has it too.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import jobs, releases
from esker.engine.lake import Lake
from esker.engine.repositories import cutting_of
from esker.errors import CorruptError, InvalidError, Kind, NotFoundError
from esker.format import files
from esker.format.names import digest, digest_of
from esker.model import Commit, CommitID, Entry, FileName, Layer, Repository, Table, Token
from esker.refs import commits, tags
from esker.refs.branches import OPEN, SEALED
from esker.refs.records import Branch
from esker.staging import filters, tokens
from esker.stores.cache import MemoryCache
from esker.stores.kv import Item, items
from esker.streams.arrays import bools, integers, only_chunk
from esker.streams.entries import CHANGES, SCHEMA, entries_in, puts_in
from esker.tree.cutting import row_bytes

WRONG_MAX: Final = 1000
"""Findings of one branch. Who has more has one cause."""

_METARANGES_BYTES: Final = 64 << 20
"""Of decoded metaranges: those of a commit and its parents are met again soon."""

_BLOBS_AT_ONCE: Final = 32

_EMPTY: Final = ("address", "checksum", "content_type", "metadata")
"""Columns that say nothing of a path that is deleted."""


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong: what it is about, where, and why."""

    what: str
    """`branch`, `tag`, `commit`, `tree`, `range`, `table`, `token`, `job` or `blob`."""
    where: str
    message: str


def check(
    lake: Lake,
    repo: Repository,
    *,
    deep: bool = False,
    blobs: bool = False,
    advance: Callable[[], object] = lambda: None,
) -> Iterator[Finding]:
    """All that is wrong. `advance` is called for each thing that was looked at. UnavailableError if a store does not
    answer: then nothing is known."""
    return _Check(lake, repo, deep, advance).run(blobs=blobs)


class _Met(NamedTuple):
    commit: Commit
    kept: bool
    """Whether its tree is, and is checked."""


class _Check:
    def __init__(self, lake: Lake, repo: Repository, deep: bool, advance: Callable[[], object]) -> None:
        self._lake = lake
        self._repo = repo
        self._deep = deep
        self._advance = advance
        self._store = lake.blobs(repo)
        self._cutting = cutting_of(repo)
        self._metaranges: MemoryCache[FileName, pa.Table] = MemoryCache(_METARANGES_BYTES)

    def run(self, *, blobs: bool) -> Iterator[Finding]:
        roots: dict[CommitID, str] = {}
        yield from self._tags(roots)
        branches = [item.key.decode(errors="replace") for item in self._scan("branches")]
        for name in branches:
            yield from self._branch(name, roots)
        if self._repo.default_branch not in branches:
            yield Finding("branch", self._repo.default_branch, "the default branch is missing")
        yield from self._history(roots)
        yield from self._jobs()
        if blobs:
            yield from self._blobs(branches, roots)

    def _scan(self, kind: str) -> Iterator[Item]:
        return items(self._lake.kv, f"{kind}/{self._repo.uid}")

    # 1. refs

    def _tags(self, roots: dict[CommitID, str]) -> Iterator[Finding]:
        for item in self._scan("tags"):
            name = item.key.decode(errors="replace")
            self._advance()
            try:
                tag = tags.find(self._lake.kv, self._repo.uid, name)
            except CorruptError as error:
                yield Finding("tag", name, error.message)
                continue
            if tag is not None:
                roots.setdefault(tag.commit, f"tag {name!r}")

    def _branch(self, name: str, roots: dict[CommitID, str]) -> Iterator[Finding]:
        """What is wrong with a branch twice: others may change it while it is looked at."""
        self._advance()
        found = list(islice(self._of_branch(name, roots), WRONG_MAX))
        if found:
            still = set(islice(self._of_branch(name, roots), WRONG_MAX))
            yield from (finding for finding in found if finding in still)

    def _of_branch(self, name: str, roots: dict[CommitID, str]) -> Iterator[Finding]:
        try:
            record = self._lake.branches(self._repo).find(name)
        except CorruptError as error:
            yield Finding("branch", name, error.message)
            return
        if record is None:
            return
        roots.setdefault(record.commit, f"branch {name!r}")
        yield from self._open_token(name, record)
        for layer in (*record.sealed, *((record.l2,) if record.l2 else ())):
            yield from self._layer(f"branch {name!r}", layer)
        for stash_name, stash in record.stashes.items():
            roots.setdefault(stash.commit, f"stash {stash_name!r} of {name!r}")
            for layer in stash.layers:
                yield from self._layer(f"stash {stash_name!r} of {name!r}", layer)
        if record.compacted:
            yield from self._compacted(name, record, record.compacted)

    # 2. commits

    def _history(self, roots: dict[CommitID, str]) -> Iterator[Finding]:
        """Everything that the roots descend from, children first."""
        frontier: list[tuple[int, CommitID]] = []
        waiting: dict[CommitID, _Met] = {}
        lost: set[CommitID] = set()

        def meet(name: CommitID, why: str) -> Iterator[Finding]:
            if name in waiting or name in lost:
                return
            try:
                commit = commits.get(self._lake.kv, self._repo.uid, name)
            except (CorruptError, NotFoundError) as error:
                lost.add(name)
                yield Finding("commit", name, f"{error.message}, and {why} needs it")
            else:
                kept = name in roots or not releases.noted(self._lake, self._repo, name)
                waiting[name] = _Met(commit, kept)
                heapq.heappush(frontier, (-commit.generation, name))

        for name, why in roots.items():
            yield from meet(name, why)
        while frontier:
            _, name = heapq.heappop(frontier)
            commit, kept = waiting.pop(name)
            self._advance()
            parents = []
            for parent in commit.parents:
                yield from meet(parent, f"commit {name[:12]}")
                if parent in waiting:
                    parents.append(waiting[parent])
            if len(parents) == len(commit.parents):
                expected = 1 + max((parent.commit.generation for parent in parents), default=0)
                if commit.generation != expected:
                    yield Finding("commit", name, f"its generation is {commit.generation}, and not {expected}")
            if kept:
                known = [parent.commit.tree for parent in parents if parent.kept]
                yield from self._tree(f"commit {name[:12]}", commit.tree, known)

    # 3. trees

    def _tree(self, where: str, tree: FileName, known: Sequence[FileName]) -> Iterator[Finding]:
        """A tree, but for ranges that one of the `known` trees has: they are checked with that."""
        if tree in known:
            return
        try:
            meta = self._metarange(tree)
        except CorruptError as error:
            yield Finding("tree", where, error.message)
            return
        why = self._wrong_metarange(tree, meta)
        if why:
            yield Finding("tree", where, f"{tree}: {why}")
        names: pa.Array = only_chunk(meta["name"])
        fresh = np.ones(len(names), dtype=bool)
        for other in known:
            try:
                theirs = only_chunk(self._metarange(other)["name"])
            except CorruptError:
                continue  # told with the commit that it is of
            fresh &= ~bools(pc.is_in(names, value_set=theirs))
        for at in np.flatnonzero(fresh):
            self._advance()
            row = {name: meta[name][int(at)].as_py() for name in meta.column_names}
            why = self._wrong_range(row)
            if why:
                yield Finding("range", where, f"{row['name']}: {why}")

    def _metarange(self, tree: FileName) -> pa.Table:
        def load() -> tuple[pa.Table, int]:
            self._advance()
            table = self._decoded(files.METARANGE, tree, f"_esker/metaranges/{tree}")
            return table, 1 + table.nbytes

        return self._metaranges.get_or_load(tree, load)

    def _wrong_metarange(self, tree: FileName, meta: pa.Table) -> str | None:
        if digest("metarange", meta.drop_columns(["name"])) != digest_of(tree):
            return "its rows have another digest than its name"
        if len(meta) == 0:
            return None
        lows, highs = only_chunk(meta["min"]), only_chunk(meta["max"])
        if not _all(pc.less_equal(lows, highs)) or not _all(pc.less(highs[:-1], lows[1:])):
            return "its ranges are out of order, or overlap"
        if not _all(pc.equal(pc.utf8_slice_codeunits(meta["name"], 0, 64), meta["id"])):
            return "a range's file is named after another digest than its id"
        if self._deep:
            full = (integers(only_chunk(meta["count"])) >= self._cutting.entries_max) | (
                integers(only_chunk(meta["bytes"])) >= self._cutting.bytes_max
            )
            if not (full | self._cutting.cuts_after(highs))[:-1].all():
                return "a range, not the last, ends where no cut is"
        return None

    def _wrong_range(self, said: dict[str, object]) -> str | None:
        """None, or what is wrong with the file of a range, by its row of a metarange."""
        name = FileName(str(said["name"]))
        try:
            table = self._decoded(files.RANGE, name, f"_esker/ranges/{name}")
        except CorruptError as error:
            return error.message
        paths = only_chunk(table["path"])
        why = _wrong_rows(table, SCHEMA)
        if why:
            return why
        if not digest("range", table) == digest_of(name) == said["id"]:
            return "its rows have another digest than its name, or the tree's row of it"
        sizes = row_bytes(table)
        is_so = {
            "min": paths[0].as_py(),
            "max": paths[-1].as_py(),
            "count": len(paths),
            "bytes": int(sizes.sum()),
        }
        for field, value in is_so.items():
            if said[field] != value:
                return f"its {field} is {value!r}, and the tree says {said[field]!r}"
        if self._deep:
            too_full = len(paths) > self._cutting.entries_max or int(sizes[:-1].sum()) >= self._cutting.bytes_max
            if too_full or self._cutting.cuts_after(paths)[:-1].any():
                return "it goes on where a cut is"
        return None

    def _decoded(self, shape: files.Shape, name: FileName, blob: str) -> pa.Table:
        try:
            data = self._store.get(blob)
        except InvalidError as error:  # a damaged record may name what no blob is called
            raise CorruptError(Kind.MISSING_FILE, error.message) from None
        if data is None:
            raise CorruptError(Kind.MISSING_FILE, f"{blob} is missing from {self._store.url}")
        return files.decode(shape, name, data)

    # 4. staging

    def _open_token(self, name: str, record: Branch) -> Iterator[Finding]:
        where = f"branch {name!r}"
        guard = self._guard(record.token)
        if record.dirty:
            yield from self._token(where, record.token)
            if self._lake.kv.guards and guard != OPEN:
                yield Finding("token", where, f"guard of the open token {record.token} is {_said(guard)}, and not open")
            return
        if guard is not None:
            yield Finding("token", where, f"guard of the clean token {record.token} is {_said(guard)}, and not missing")
        if self._lake.kv.scan(tokens.partition(record.token), limit=1):
            yield Finding("token", where, f"the open token {record.token} holds records, though it is said to be clean")

    def _guard(self, token: Token) -> bytes | None:
        guard = self._lake.branches(self._repo).guard(token)
        found = self._lake.kv.get(guard.partition, guard.key)
        return found.value if found else None

    def _layer(self, where: str, layer: Layer) -> Iterator[Finding]:
        if layer.token:
            yield from self._token(where, layer.token)
            guard = self._guard(layer.token)
            if self._lake.kv.guards and guard != SEALED:
                yield Finding("token", where, f"guard of sealed token {layer.token} is {_said(guard)}, and not sealed")
        for one, other in zip(layer.tables, layer.tables[1:], strict=False):
            if one.max >= other.min:
                yield Finding("table", where, f"layer {layer.id} has tables that overlap: {one.file}, {other.file}")
        for table in layer.tables:
            why = self._wrong_table(table)
            if why:
                yield Finding("table", where, f"{table.file}: {why}")
        if layer.more_deletes:
            why = self._wrong_table(layer.more_deletes)
            if why or layer.more_deletes.tombstones != layer.more_deletes.count:
                yield Finding("table", where, f"{layer.more_deletes.file}: {why or 'it holds more than prefixes'}")

    def _token(self, where: str, token: Token) -> Iterator[Finding]:
        """The records of a token that cannot be read."""
        self._advance()
        for item in items(self._lake.kv, tokens.partition(token)):
            try:
                tokens.decode(item.key.decode(), item.record.value)
            except UnicodeDecodeError:
                yield Finding("token", where, f"the path of a record of token {token} is no text: {item.key!r}")
            except CorruptError as error:
                yield Finding("token", where, f"token {token}: {error.message}")

    def _wrong_table(self, said: Table) -> str | None:
        self._advance()
        name = FileName(said.file.rpartition("/")[2])
        try:
            rows = self._decoded(files.LAYER, name, f"_esker/staging/{said.file}.sst")
        except CorruptError as error:
            return error.message
        why = _wrong_rows(rows, CHANGES)
        if why:
            return why
        at = CHANGES.get_field_index("tombstone")
        numbers = rows.set_column(at, "tombstone", rows["tombstone"].cast(pa.int64())).combine_chunks()
        if digest("layer", numbers) != digest_of(name):
            return "its rows have another digest than its name"
        paths = only_chunk(rows["path"])
        deleted = bools(rows["tombstone"])
        is_so = (paths[0].as_py(), paths[-1].as_py(), len(paths), int(deleted.sum()))
        if is_so != (said.min, said.max, said.count, said.tombstones):
            return "its bounds or counts are not what the branch says"
        gone = rows.filter(rows["tombstone"])
        if not all(_all(pc.equal(gone[column], "")) for column in _EMPTY):
            return "a tombstone of it has more than a path"
        kept = self._lake.kv.get(f"filters/{self._repo.uid}", said.file.encode())
        if kept is not None and kept.value != filters.build(paths):
            return "its filter is another's, and hides paths that it holds"
        return None

    def _compacted(self, name: str, record: Branch, tree: FileName) -> Iterator[Finding]:
        try:
            under = [commits.get(self._lake.kv, self._repo.uid, record.commit).tree]
        except (CorruptError, NotFoundError):
            under = []  # told with the commit
        yield from self._tree(f"compacted tree of branch {name!r}", tree, under)

    # 5. jobs

    def _jobs(self) -> Iterator[Finding]:
        for item in self._scan("jobs"):
            name = item.key.decode(errors="replace")
            self._advance()
            try:
                jobs.get(self._lake, self._repo, name)
            except CorruptError as error:
                yield Finding("job", name, error.message)
            except NotFoundError:
                continue  # forgotten meanwhile

    # 6. blobs

    def _blobs(self, branches: Iterable[str], roots: dict[CommitID, str]) -> Iterator[Finding]:
        """What is wrong with bytes. A range that two heads have is looked at once, if one is the first."""
        lake, repo = self._lake, self._repo
        first: FileName | None = None

        def entries() -> Iterator[tuple[str, Entry]]:
            nonlocal first
            for commit, why in roots.items():
                try:
                    tree = commits.get(lake.kv, repo.uid, commit).tree
                    yield from ((why, entry) for entry in self._entries_of(tree, first))
                except (CorruptError, NotFoundError):
                    continue  # told above
                first = first or tree
            for name in branches:
                yield from ((f"branch {name!r}", entry) for entry in self._staged(name, first))

        with ThreadPoolExecutor(_BLOBS_AT_ONCE) as pool:
            waiting: deque[Future[Finding | None]] = deque()
            for why, entry in entries():
                waiting.append(pool.submit(self._wrong_blob, why, entry))
                if len(waiting) >= 4 * _BLOBS_AT_ONCE and (found := waiting.popleft().result()):
                    yield found
            yield from (found for future in waiting if (found := future.result()))

    def _wrong_blob(self, why: str, entry: Entry) -> Finding | None:
        self._advance()
        blobs, name = self._lake.locate(self._repo, entry.address)
        try:
            found = blobs.head(name)
        except InvalidError as error:
            return Finding("blob", why, f"the address of {entry.path!r} is none: {error.message}")
        if found is None:
            return Finding("blob", why, f"the bytes of {entry.path!r} are missing: {entry.address}")
        if found.size != entry.size:
            return Finding("blob", why, f"{entry.path!r} has {entry.size} bytes, and {entry.address} has {found.size}")
        return None

    def _entries_of(self, tree: FileName, known: FileName | None) -> Iterator[Entry]:
        """Of a tree, but for ranges that the one that is `known` has."""
        names = only_chunk(self._metarange(tree)["name"])
        if known:
            names = names.filter(pc.invert(pc.is_in(names, value_set=only_chunk(self._metarange(known)["name"]))))
        for name in names.to_pylist():
            yield from entries_in(self._decoded(files.RANGE, FileName(name), f"_esker/ranges/{name}"))

    def _staged(self, name: str, known: FileName | None) -> Iterator[Entry]:
        """What the layers of a branch, and its stashes, put."""
        try:
            record = self._lake.branches(self._repo).find(name)
            if record is None:
                return
            stashed = chain.from_iterable(stash.layers for stash in record.stashes.values())
            for layer in chain(record.layers, stashed):
                if layer.token:
                    for item in items(self._lake.kv, tokens.partition(layer.token)):
                        entry = tokens.decode(item.key.decode(), item.record.value)
                        if entry:
                            yield entry
                for table in layer.tables:
                    file = FileName(table.file.rpartition("/")[2])
                    yield from entries_in(puts_in(self._decoded(files.LAYER, file, f"_esker/staging/{table.file}.sst")))
            if record.compacted:
                yield from self._entries_of(record.compacted, known)
        except (CorruptError, UnicodeDecodeError):
            return  # told above


def _wrong_rows(table: pa.Table, schema: pa.Schema) -> str | None:
    """None, or what no file of entries or changes may have."""
    if table.num_rows == 0:
        return "it has no rows"
    if any(table[name].null_count for name in schema.names):
        return "it has nulls"
    paths = only_chunk(table["path"])
    if not _all(pc.less(paths[:-1], paths[1:])):
        return "its paths are out of order, or twice there"
    if not _all(pc.greater(pc.binary_length(paths), 0)) or not _all(pc.greater_equal(table["size"], 0)):
        return "it has an empty path, or a size below zero"
    return None


def _all(told: pa.Array | pa.ChunkedArray) -> bool:
    return bool(pc.all(told, min_count=0).as_py())


def _said(guard: bytes | None) -> str:
    return "missing" if guard is None else repr(guard.decode(errors="replace"))
