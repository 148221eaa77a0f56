"""The tables of layers: sorted files of staged changes, read with as few of them opened as may be.

A layer's tables do not overlap, so one path concerns at most one of them; a filter tells whether even that is needed.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, Protocol

import pyarrow as pa

from esker.model import Entry, FileName, Layer, Table
from esker.staging.filters import Filters
from esker.stores.cache import MemoryCache
from esker.streams.arrays import lower_bound, only_chunk
from esker.streams.entries import NO_CHANGES, entries_in
from esker.streams.prefixes import NO_PREFIXES, Prefixes

ROWS: Final = 32_768
"""Of a table, and at most so many tables a layer: beyond that, tables grow."""
TABLES_MAX: Final = 32

_PREFIX_CACHE_BYTES: Final = 16 << 20
_PREFIX_BYTES: Final = 50
"""In memory, beside its text."""


class Unknown(Enum):
    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
"""Nothing is said of a path: what is below decides."""


class Files(Protocol):
    """Where tables are kept: a `tree.past.Past`, of which nothing else is known here."""

    def write_layer(self, changes: pa.Table, where: str) -> Table: ...
    def read_layers(self, names: Sequence[FileName]) -> list[pa.Table]: ...
    def delete_layer(self, name: FileName) -> None: ...


class Tables:
    """The tables of one repository's layers."""

    def __init__(self, files: Files, filters: Filters) -> None:
        self._files = files
        self._filters = filters
        self._prefixes: MemoryCache[str, Prefixes] = MemoryCache(_PREFIX_CACHE_BYTES)

    def write(self, changes: pa.Table, where: str, rows_min: int = 0) -> tuple[Table, ...]:
        """Store sorted changes as one or several tables, to which nothing points yet; each but the last of at least so
        many rows, and more if they would be too many tables."""
        rows = max(rows_min or ROWS, -(-changes.num_rows // TABLES_MAX))
        written = []
        for start in range(0, changes.num_rows, rows):
            some = changes.slice(start, rows).combine_chunks()
            table = self._files.write_layer(some, where)
            self._filters.write(table.file, only_chunk(some["path"]))
            written.append(table)
        return tuple(written)

    def write_prefixes(self, tombstones: pa.Table, where: str) -> Table:
        """Store prefixes, as tombstones at each of them, in one table."""
        return self._files.write_layer(tombstones, where)

    def delete(self, name: FileName) -> None:
        """Take a table away: nothing names it any more."""
        self._prefixes.drop(name)
        self._filters.delete(name)
        self._files.delete_layer(name)

    def lookup(self, layer: Layer, path: str) -> Entry | None | Unknown:
        """The entry at `path` in the layer's tables, None if it is deleted, or UNKNOWN."""
        at = bisect_left(layer.tables, path, key=_max)
        if at == len(layer.tables) or layer.tables[at].min > path:
            return UNKNOWN
        table = layer.tables[at]
        if not self._filters.may_hold(table, path.encode()):
            return UNKNOWN
        rows = self._files.read_layers([table.file])[0]
        place = lower_bound(only_chunk(rows["path"]), path)
        if place == rows.num_rows or rows["path"][place].as_py() != path:
            return UNKNOWN
        return None if rows["tombstone"][place].as_py() else entries_in(rows.slice(place, 1))[0]

    def changes(self, layer: Layer, start: str, stop: str | None) -> pa.Table:
        """The rows of the paths from `start` on and before `stop`."""
        found = self._files.read_layers([table.file for table in _overlapping(layer.tables, start, stop)])
        pieces = [_clipped(rows, start, stop) for rows in found]
        return pa.concat_tables([NO_CHANGES, *pieces]).combine_chunks()

    def rows(self, table: Table) -> pa.Table:
        """All rows of a table."""
        return self._files.read_layers([table.file])[0]

    def some(self, layer: Layer, start: str, rows_max: int) -> pa.Table:
        """The first rows from `start` on, at most so many."""
        pieces = [NO_CHANGES]
        left = rows_max
        for table in _overlapping(layer.tables, start, None):
            rows = _clipped(self._files.read_layers([table.file])[0], start, None).slice(0, left)
            pieces.append(rows)
            left -= rows.num_rows
            if left == 0:
                break
        return pa.concat_tables(pieces).combine_chunks()

    def deletes(self, layer: Layer) -> Prefixes:
        """The layer's prefix deletes."""
        if layer.more_deletes is None:
            return Prefixes(prefix.encode() for prefix in layer.deletes) if layer.deletes else NO_PREFIXES
        file = layer.more_deletes.file
        return self._prefixes.get_or_load(file, lambda: self._load_prefixes(file))

    def _load_prefixes(self, file: FileName) -> tuple[Prefixes, int]:
        found = Prefixes(prefix.encode() for prefix in self._files.read_layers([file])[0]["path"].to_pylist())
        return found, sum(_PREFIX_BYTES + len(prefix) for prefix in found.all)

    def hides(self, layer: Layer, path: str) -> bool:
        """Whether the layer's prefix deletes hide the path, in all that lies below."""
        if layer.more_deletes is None:
            return path.startswith(layer.deletes)
        return layer.more_deletes.min <= path and self.deletes(layer).covers(path.encode())

    def fetch(self, table: Table) -> None:
        """Bring in a table and its filter."""
        self._filters.fetch(table)
        self._files.read_layers([table.file])

    def read_ahead(self, layers: Iterable[Layer], start: str, stop: str | None, *, whole: bool) -> None:
        """Bring in, at once, what of these layers lies from `start` on and before `stop`: the first table of each, or
        all of them."""
        wanted: list[FileName] = []
        for layer in layers:
            tables = _overlapping(layer.tables, start, stop)
            wanted += [table.file for table in (tables if whole else tables[:1])]
            wanted += [layer.more_deletes.file] if layer.more_deletes else []
        if len(wanted) > 1:
            self._files.read_layers(wanted)


def _max(table: Table) -> str:
    return table.max


def _overlapping(tables: tuple[Table, ...], start: str, stop: str | None) -> tuple[Table, ...]:
    low = bisect_left(tables, start, key=_max)
    return tuple(table for table in tables[low:] if stop is None or table.min < stop)


def _clipped(rows: pa.Table, start: str, stop: str | None) -> pa.Table:
    paths = only_chunk(rows["path"])
    low = lower_bound(paths, start)
    return rows.slice(low, (len(paths) if stop is None else lower_bound(paths, stop, low)) - low)
