"""A stack of layers, newest first, and how it is read: one path, a window of a listing, or folded into one.

A layer's own entries lie above its own prefix deletes, and those hide all that lies below the layer; so in each layer
the entry is looked for first, and the deletes always.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from esker.model import Entry, Layer
from esker.staging import tokens
from esker.staging.tables import UNKNOWN, Tables, Unknown
from esker.stores.kv import SCAN_LIMIT_MAX, KVStore
from esker.streams.arrays import after_prefix, bools, lower_bound, only_chunk
from esker.streams.entries import NO_CHANGES, entries_in
from esker.streams.listing import Seek, Sorted
from esker.streams.prefixes import NO_PREFIXES
from esker.streams.rows import Changes

WINDOW_ROWS: Final = 256
"""Staged rows of a layer read at a time for a listing: about one call's worth."""


class Window(NamedTuple):
    """What the layers say of some consecutive paths, in order: encoded records, `tokens.TOMBSTONE` for deleted ones."""

    paths: list[bytes]
    values: list[bytes]
    deletes: tuple[str, ...]
    """Prefixes under which everything below the layers is hidden."""
    start: bytes
    end: bytes | None
    """The last path of which all is known; None: all that follow."""


@dataclass(frozen=True, slots=True)
class Stack:
    kv: KVStore
    tables: Tables
    layers: tuple[Layer, ...]

    def lookup(self, path: str) -> Entry | None | Unknown:
        """The entry at `path`, None if it is deleted, or UNKNOWN."""
        key = path.encode()
        for layer in self.layers:
            if layer.token:
                record = self.kv.get(tokens.partition(layer.token), key)
                if record:
                    return tokens.decode(path, record.value)
            elif layer.tables:
                found = self.tables.lookup(layer, path)
                if found is not UNKNOWN:
                    return found
            if self.tables.hides(layer, path):
                return None
        return UNKNOWN

    def window(self, start: bytes, rows_max: int = WINDOW_ROWS) -> Window:
        """What the layers say of `start` and the paths that follow, as far as one read of each tells."""
        found: dict[bytes, bytes] = {}
        hidden = NO_PREFIXES
        self.tables.read_ahead(self.layers, start.decode(), None, whole=False)
        read = [self._rows(layer, start, rows_max) for layer in self.layers]
        end = min((_last(rows) for rows in read if len(rows) == rows_max), default=None)
        for layer, rows in zip(self.layers, read, strict=True):
            for path, value in rows if isinstance(rows, list) else _records(rows, end):
                if path not in found and not (hidden and hidden.covers(path)):
                    found[path] = value
            hidden |= self.tables.deletes(layer)
        paths = sorted(path for path in found if end is None or path <= end)
        return Window(paths, [found[path] for path in paths], hidden.between(start, end), start, end)

    def fold(self, start: str = "", stop: str | None = None) -> Changes:
        """All layers as one, of the paths from `start` on and before `stop`."""
        self.tables.read_ahead(self.layers, start, stop, whole=True)
        folded = Changes(NO_CHANGES)
        for layer in reversed(self.layers):
            deletes = self.tables.deletes(layer).between(b"", None)
            folded = Changes(self._changes(layer, start, stop), deletes).over(folded)
        return folded

    def _rows(self, layer: Layer, start: bytes, rows_max: int) -> list[tuple[bytes, bytes]] | pa.Table:
        """The first rows of a layer from `start` on: records of a token, or rows of tables."""
        if layer.token:
            found = self.kv.scan(tokens.partition(layer.token), start, rows_max)
            return [(item.key, item.record.value) for item in found]
        return self.tables.some(layer, start.decode(), rows_max) if layer.tables else []

    def _changes(self, layer: Layer, start: str, stop: str | None) -> pa.Table:
        if layer.token:
            return tokens.changes(self.kv, layer.token, start, stop)
        return self.tables.changes(layer, start, stop) if layer.tables else NO_CHANGES


def _last(rows: list[tuple[bytes, bytes]] | pa.Table) -> bytes:
    if isinstance(rows, list):
        return rows[-1][0]
    path: str = rows["path"][-1].as_py()
    return path.encode()


def _records(rows: pa.Table, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """Rows of tables up to `end`, as records of a token would be."""
    if end is not None:
        rows = rows.slice(0, lower_bound(only_chunk(rows["path"]), end.decode() + "\0"))
    values = [tokens.TOMBSTONE] * rows.num_rows
    alive = np.flatnonzero(~bools(rows["tombstone"]))
    for at, entry in zip(alive.tolist(), entries_in(rows.take(pa.array(alive))), strict=True):
        values[at] = tokens.encode(entry)
    return zip(rows["path"].cast(pa.binary()).to_pylist(), values, strict=True)


class View:
    """A tree with layers over it, to list: for one page, since it remembers what it read of the layers."""

    def __init__(self, stack: Stack, below: Seek, rows_max: int = WINDOW_ROWS) -> None:
        self.windows = 0
        """How often the layers were read: more than once is at more than one moment."""
        self._stack = stack
        self._below = below
        self._rows_max = rows_max
        self._window: Window | None = None

    def seek(self, path: str) -> tuple[Sorted, int] | None:
        """The entries at hand from the first at or after `path` on."""
        while True:
            window = self._window_at(path.encode())
            below = self._below(path)
            if not window.paths and not window.deletes and window.end is None:
                return below
            end = window.end
            if below:
                last = below[0].path(len(below[0]) - 1)
                end = last if end is None else min(end, last)
            merged = _Overlaid(below, window, path.encode(), end)
            if len(merged):
                return merged, 0
            if end is None:
                return None
            path = end.decode() + "\0"

    def _window_at(self, start: bytes) -> Window:
        window = self._window
        if window is None or not window.start <= start or (window.end is not None and start > window.end):
            window = self._window = self._stack.window(start, self._rows_max)
            self.windows += 1
            self._rows_max = min(2 * self._rows_max, SCAN_LIMIT_MAX)  # where one is not enough, it is mostly many
        return window


class _Overlaid:
    """Sorted entries of a tree with a window of staged ones over them, from `start` through `end`.

    `_order` has the place of each among the tree's entries, or, inverted, among the staged ones.
    """

    def __init__(self, below: tuple[Sorted, int] | None, window: Window, start: bytes, end: bytes | None) -> None:
        self._window = window
        staged = range(
            bisect_left(window.paths, start),
            len(window.paths) if end is None else bisect_left(window.paths, end + b"\0"),
        )
        live = [at for at in staged if window.values[at] != tokens.TOMBSTONE]
        if below is None:
            self._order = np.array([~at for at in live], dtype=np.int64)
            self._places = self._order.data
            return
        self._rows, first = below
        stop = len(self._rows) if end is None else self._rows.find(end + b"\0", first)
        shown = np.zeros(len(self._rows) + 1, dtype=bool)
        shown[first:stop] = True
        for prefix in window.deletes:
            above = after_prefix(prefix)
            low = self._rows.find(prefix.encode(), first)
            shown[low : stop if above is None else self._rows.find(above.encode(), low)] = False
        places: dict[int, int] = {}
        at = first
        for number in staged:
            path = window.paths[number]
            if at < len(self._rows) and self._rows.path(at) < path:
                at = self._rows.find(path, at + 1)
            places[number] = at
            if at < stop and self._rows.path(at) == path:
                shown[at] = False
                at += 1  # where entries that follow each other were deleted, each is found at once
        kept = np.flatnonzero(shown)
        before = np.searchsorted(kept, [places[number] for number in live])
        self._order = np.insert(kept, before, [~number for number in live])
        self._places = self._order.data

    def __len__(self) -> int:
        return len(self._order)

    def path(self, at: int) -> bytes:
        place = self._places[at]
        return self._rows.path(place) if place >= 0 else self._window.paths[~place]

    def find(self, path: bytes, low: int = 0) -> int:
        return bisect_left(range(len(self)), path, low, key=self.path)

    def entries(self, places: list[int]) -> list[Entry]:
        found = self._order[places]
        from_below = found >= 0
        entries = self._rows.entries(found[from_below].tolist()) if from_below.any() else []
        for at in np.flatnonzero(~from_below).tolist():
            entries.insert(at, self._staged(~int(found[at])))
        return entries

    def _staged(self, number: int) -> Entry:
        entry = tokens.decode(self._window.paths[number].decode(), self._window.values[number])
        assert entry is not None, "tombstones are not listed"
        return entry
