"""Trees as dicts: what `esker.tree` promises, at a hundredth of the cost. And the real one, on the same network.

A file costs a turn to read and to write, and may fail; it is immutable, and gone once it is deleted.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256
from typing import Any

import pyarrow as pa

from esker.errors import CorruptError, Kind
from esker.model import Digest, Entry, FileName, Table
from esker.streams.arrays import after_prefix
from esker.streams.entries import IDENTITY, SCHEMA, entries_in, table_of
from esker.streams.rows import Changes, compare
from esker.testing.simulation.stores import Network
from esker.tree.merge import Memo, Merged, Strategy
from esker.world import World


class DictRows:
    """A tree's entries at hand."""

    __slots__ = ("_table", "all", "paths", "ranges")

    def __init__(self, entries: dict[str, Entry]) -> None:
        self.all = entries
        self.paths = sorted(entries)
        self.ranges: dict[str, str] = {}
        """By the first character of the paths in it: the file of a range. Trees share them."""
        self._table: pa.Table | None = None

    def range_of(self, first: str) -> dict[str, Entry]:
        return {path: entry for path, entry in self.all.items() if path[0] == first}

    @property
    def table(self) -> pa.Table:
        if self._table is None:
            self._table = table_of(self.all.values()) if self.all else SCHEMA.empty_table().combine_chunks()
        return self._table

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, at: int) -> bytes:
        return self.paths[at].encode()

    def find(self, path: bytes, low: int = 0) -> int:
        return bisect_left(self.paths, path.decode(), low)

    def entries(self, places: list[int]) -> list[Entry]:
        return [self.all[self.paths[at]] for at in places]


Files = dict[str, DictRows | pa.Table | None]
"""By name: trees, layers, and ranges, of which nothing but that they are there is known."""

OnDelete = Callable[[str], None]
"""Told of every file that is about to be deleted."""


class DictPast:
    """The trees and layer files of one repository."""

    def __init__(self, network: Network, files: Files, world: World, on_delete: OnDelete | None = None) -> None:
        self._network = network
        self._files = files
        self._world = world
        self._on_delete = on_delete
        self._behind: ContextVar[Files | None] = ContextVar("behind", default=None)

    def get(self, tree: FileName, path: str) -> Entry | None:
        return self._read(tree).all.get(path)

    def seek(self, tree: FileName, path: str) -> tuple[DictRows, int] | None:
        rows = self._read(tree)
        at = bisect_left(rows.paths, path)
        return (rows, at) if at < len(rows) else None

    def scan(self, tree: FileName, start: str = "", prefix: str = "") -> Iterator[pa.Table]:
        rows = self._read(tree)
        end = after_prefix(prefix)
        low = bisect_left(rows.paths, max(start, prefix))
        high = len(rows) if end is None else bisect_left(rows.paths, end)
        if low < high:
            yield rows.table.slice(low, high - low)

    def build(self, batches: Iterable[pa.Table]) -> FileName:
        return self._write(DictRows({entry.path: entry for batch in batches for entry in entries_in(batch)}))

    def apply(self, tree: FileName, changes: Changes) -> FileName:
        was = self._read(tree)
        entries = laid_over(was.all, changes)
        return tree if entries == was.all else self._write(DictRows(entries), was)

    def preview(self, tree: FileName, changes: Changes, columns: Sequence[str] = IDENTITY) -> Iterator[pa.Table]:
        was = self._read(tree)
        deltas = compare(was.table, DictRows(laid_over(was.all, changes)).table, columns)
        if deltas.num_rows:
            yield deltas

    def diff(
        self,
        left: FileName,
        right: FileName,
        columns: Sequence[str] = IDENTITY,
        start: str = "",
        stop: str | None = None,
    ) -> Iterator[pa.Table]:
        one, other = (_between(self._read(tree), start, stop).table for tree in (left, right))
        deltas = compare(one, other, columns)
        if deltas.num_rows:
            yield deltas

    def differs(self, left: FileName, right: FileName, prefix: str) -> bool:
        return next(self.diff(left, right, IDENTITY, prefix, after_prefix(prefix)), None) is not None

    def merge(
        self, base: FileName, source: FileName, dest: FileName, strategy: Strategy, memo: Memo | None = None
    ) -> Merged:
        olds, news, heads = (self._read(tree) for tree in (base, source, dest))
        merged, conflicts = dict(heads.all), []
        for path in sorted({*olds.all, *news.all}):
            old, new, head = olds.all.get(path), news.all.get(path), heads.all.get(path)
            if old == new:
                continue
            if head == old or (_same(head, old) and not _same(new, old)):
                taken = new
            elif _same(new, old) or _same(head, new):
                taken = head
            else:
                if strategy is Strategy.NONE:
                    conflicts.append(path)
                taken = new if strategy is Strategy.SOURCE_WINS else head
            merged.pop(path, None)
            if taken is not None:
                merged[path] = taken
        if conflicts:
            return Merged(None, conflicts)
        return Merged(dest if merged == heads.all else self._write(DictRows(merged), heads, news, olds), [])

    def merge_ahead(
        self,
        base: FileName,
        source: FileName,
        dest: FileName,
        strategy: Strategy,
        memo: Memo,
        is_mine: Callable[[Digest], bool],
    ) -> None:
        """Nothing that dicts could spare."""

    def size(self, tree: FileName) -> int:
        return len(self._read(tree))

    @contextmanager
    def writing_behind(self) -> Iterator[None]:
        behind: Files = {}
        before = self._behind.set(behind)
        try:
            yield
        finally:
            self._behind.reset(before)
        if behind:
            self._store("trees", behind)

    def empty(self) -> FileName:
        return self._write(DictRows({}))

    def write_layer(self, changes: pa.Table, where: str) -> Table:
        paths = changes["path"].to_pylist()
        name = FileName(f"{where}/{_digest(changes)}-{self._world.token(16)}")
        self._store("layer", {name: changes})
        tombstones = sum(changes["tombstone"].to_pylist())
        return Table(file=name, min=paths[0], max=paths[-1], count=len(paths), tombstones=tombstones)

    def read_layers(self, names: Sequence[FileName]) -> list[pa.Table]:
        return [self._layer(name) for name in names]

    def delete_layer(self, name: FileName) -> None:
        self._delete("layer", [name])

    def delete_tree(self, name: FileName, kept: Sequence[FileName]) -> None:
        try:
            used = {file for tree in kept for file in self._read(tree).ranges.values()}
            gone = self._read(name, whole=False)
        except CorruptError:
            return
        self._delete("ranges", [file for file in gone.ranges.values() if file not in used])
        if name not in kept:
            self._delete("tree", [name])

    def files_of(self, tree: FileName) -> set[str]:
        """All files of a tree that is there."""
        return {tree, *self._read(tree).ranges.values()}

    def _layer(self, name: FileName) -> pa.Table:
        found = self._network.read(("read", "layer", name[-8:].encode()), lambda: self._files.get(name))
        if found is None:
            raise CorruptError(Kind.MISSING_FILE, f"layer {name} is missing")
        assert not isinstance(found, DictRows)
        return found

    def _read(self, tree: FileName, *, whole: bool = True) -> DictRows:
        behind = self._behind.get() or {}
        if tree in behind:
            found = behind[tree]
        else:
            found = self._network.read(("read", "tree", tree[-8:].encode()), lambda: self._files.get(tree))
        if found is None:
            raise CorruptError(Kind.MISSING_FILE, f"tree {tree} is missing")
        assert isinstance(found, DictRows)
        if whole and not all(file in behind or file in self._files for file in found.ranges.values()):
            raise CorruptError(Kind.MISSING_FILE, f"a range of tree {tree} is missing")
        return found

    def _write(self, rows: DictRows, *reads: DictRows) -> FileName:
        """A tree. Its ranges are those of the trees that were read, where they are equal."""
        name = FileName(f"{_digest(rows)}-{self._world.token(16)}")
        written: Files = {name: rows}
        for first in dict.fromkeys(path[0] for path in rows.paths):
            content = rows.range_of(first)
            shared = (read.ranges[first] for read in reads if first in read.ranges and read.range_of(first) == content)
            file = next(shared, None)
            if file is None:
                file = f"{name}/{first}"
                written[file] = None
            rows.ranges[first] = file
        behind = self._behind.get()
        if behind is None:
            self._store("tree", written)
        else:
            behind.update(written)
        return name

    def _store(self, kind: str, written: Files) -> None:
        name = next(iter(written))
        self._network.write(("write", kind, name[-8:].encode()), lambda: self._files.update(written), repeatable=True)

    def _delete(self, kind: str, names: Sequence[str]) -> None:
        def action() -> None:
            for name in names:
                if name in self._files:
                    if self._on_delete is not None:
                        self._on_delete(name)
                    del self._files[name]

        if names:
            self._network.write(("delete", kind, names[0][-8:].encode()), action, repeatable=True)


def _between(rows: DictRows, start: str, stop: str | None) -> DictRows:
    if not start and stop is None:
        return rows
    return DictRows(
        {path: entry for path, entry in rows.all.items() if path >= start and (stop is None or path < stop)}
    )


def laid_over(entries: dict[str, Entry], changes: Changes) -> dict[str, Entry]:
    """The entries without what the deletes hide, and with the rows on top."""
    laid = dict(entries)
    if changes.deletes:
        laid = {path: entry for path, entry in laid.items() if not path.startswith(changes.deletes)}
    if changes.rows.num_rows:
        for entry, gone in zip(entries_in(changes.rows), changes.rows["tombstone"].to_pylist(), strict=True):
            laid.pop(entry.path, None)
            if not gone:
                laid[entry.path] = entry
    return laid


def changes_in(rows: pa.Table) -> dict[str, str | None]:
    """What a table of changes leaves at each of its paths: a checksum, or nothing."""
    columns = (rows[name].to_pylist() for name in ("path", "checksum", "tombstone"))
    return {path: None if gone else checksum for path, checksum, gone in zip(*columns, strict=True)}


def _same(one: Entry | None, other: Entry | None) -> bool:
    return one is other if one is None or other is None else one.identity() == other.identity()


def _digest(content: DictRows | pa.Table) -> str:
    if isinstance(content, DictRows):
        text = repr([(path, content.all[path]) for path in content.paths])
    else:
        text = repr(content.to_pydict())
    return sha256(text.encode()).hexdigest()


class Inline(Executor):
    """A pool that does the work at once: a simulation has one thread."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # whatever it is belongs to whoever asks for the result
            future.set_exception(error)
        return future
