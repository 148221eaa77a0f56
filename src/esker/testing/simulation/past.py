"""Trees as dicts: what `esker.tree` promises, at a hundredth of the cost. And the real one, on the same network.

A file costs a turn to read and to write, and may fail; it is immutable, and gone once it is deleted.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from hashlib import sha256
from typing import Any

import pyarrow as pa

from esker.errors import CorruptError, Kind
from esker.model import Entry, FileName
from esker.streams.arrays import after_prefix
from esker.streams.entries import IDENTITY, SCHEMA, entries_in, table_of
from esker.streams.rows import Changes, compare
from esker.testing.simulation.stores import Network
from esker.tree.merge import Memo, Merged, Strategy
from esker.world import World


class DictRows:
    """A tree's entries at hand."""

    __slots__ = ("_table", "all", "paths")

    def __init__(self, entries: dict[str, Entry]) -> None:
        self.all = entries
        self.paths = sorted(entries)
        self._table: pa.Table | None = None

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


Files = dict[str, DictRows | pa.Table]


class DictPast:
    """The trees and layer files of one repository."""

    def __init__(self, network: Network, files: Files, world: World) -> None:
        self._network = network
        self._files = files
        self._world = world

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
        was = self._read(tree).all
        entries = laid_over(was, changes)
        return tree if entries == was else self._write(DictRows(entries))

    def preview(self, tree: FileName, changes: Changes, columns: Sequence[str] = IDENTITY) -> Iterator[pa.Table]:
        was = self._read(tree)
        deltas = compare(was.table, DictRows(laid_over(was.all, changes)).table, columns)
        if deltas.num_rows:
            yield deltas

    def diff(self, left: FileName, right: FileName) -> Iterator[pa.Table]:
        deltas = compare(self._read(left).table, self._read(right).table)
        if deltas.num_rows:
            yield deltas

    def differs(self, left: FileName, right: FileName, prefix: str) -> bool:
        sides = (self._read(tree).all for tree in (left, right))
        one, other = ({path: entry for path, entry in side.items() if path.startswith(prefix)} for side in sides)
        return one.keys() != other.keys() or any(not _same(one[path], other[path]) for path in one)

    def merge(
        self, base: FileName, source: FileName, dest: FileName, strategy: Strategy, memo: Memo | None = None
    ) -> Merged:
        olds, news, heads = (self._read(tree).all for tree in (base, source, dest))
        merged, conflicts = dict(heads), []
        for path in sorted({*olds, *news}):
            old, new, head = olds.get(path), news.get(path), heads.get(path)
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
        return Merged(None, conflicts) if conflicts else Merged(self._write(DictRows(merged)), [])

    def empty(self) -> FileName:
        return self._write(DictRows({}))

    def write_layer(self, changes: pa.Table) -> FileName:
        return self._write(changes)

    def read_layer(self, name: FileName) -> pa.Table:
        found = self._network.read(("read", "layer", name[-8:].encode()), lambda: self._files.get(name))
        if found is None:
            raise CorruptError(Kind.MISSING_FILE, f"layer {name} is missing")
        assert not isinstance(found, DictRows)
        return found

    def delete_layer(self, name: FileName) -> None:
        self._network.write(
            ("delete", "layer", name[-8:].encode()), lambda: self._files.pop(name, None), repeatable=True
        )

    def _read(self, tree: FileName) -> DictRows:
        found = self._network.read(("read", "tree", tree[-8:].encode()), lambda: self._files.get(tree))
        if found is None:
            raise CorruptError(Kind.MISSING_FILE, f"tree {tree} is missing")
        assert isinstance(found, DictRows)
        return found

    def _write(self, content: DictRows | pa.Table) -> FileName:
        name = FileName(f"{_digest(content)}-{self._world.token(16)}")

        def action() -> None:
            self._files[name] = content

        kind = "tree" if isinstance(content, DictRows) else "layer"
        self._network.write(("write", kind, name[-8:].encode()), action, repeatable=True)
        return name


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
