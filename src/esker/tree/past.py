"""The past as the engine sees it: trees by name, whatever they are made of.

`StoredPast` is the real one. The simulator has another, of dicts, so that the engine's own code can run through many
thousands of schedules a minute.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

import pyarrow as pa
from msgspec.structs import replace

from esker.model import Digest, Entry, FileName, Table
from esker.streams.entries import IDENTITY
from esker.streams.listing import Sorted
from esker.streams.rows import Changes
from esker.tree import build, diff, merge, reading, rewrite
from esker.tree.merge import Memo, Merged, Strategy
from esker.tree.trees import Trees

_FOUND_MAX: Final = 20_000
"""Entries that are found again without looking. Half a kilobyte or so each, as none of them has metadata, which may be
of any size."""


class Past(Protocol):
    """Immutable trees. A tree's name begins with its digest: `format.names.digest_of` compares content."""

    def empty(self) -> FileName: ...
    def get(self, tree: FileName, path: str) -> Entry | None: ...
    def seek(self, tree: FileName, path: str) -> tuple[Sorted, int] | None: ...
    def scan(self, tree: FileName, start: str = "", prefix: str = "") -> Iterator[pa.Table]: ...
    def build(self, batches: Iterable[pa.Table]) -> FileName: ...
    def apply(self, tree: FileName, changes: Changes) -> FileName: ...
    def preview(self, tree: FileName, changes: Changes, columns: Sequence[str] = IDENTITY) -> Iterator[pa.Table]: ...
    def diff(
        self,
        left: FileName,
        right: FileName,
        columns: Sequence[str] = IDENTITY,
        start: str = "",
        stop: str | None = None,
    ) -> Iterator[pa.Table]: ...
    def differs(self, left: FileName, right: FileName, prefix: str) -> bool: ...
    def merge(
        self, base: FileName, source: FileName, dest: FileName, strategy: Strategy, memo: Memo | None = None
    ) -> Merged: ...
    def merge_ahead(
        self,
        base: FileName,
        source: FileName,
        dest: FileName,
        strategy: Strategy,
        memo: Memo,
        is_mine: Callable[[Digest], bool],
    ) -> None: ...
    def size(self, tree: FileName) -> int: ...
    def writing_behind(self) -> AbstractContextManager[object]: ...
    def write_layer(self, changes: pa.Table, where: str) -> Table: ...
    def read_layers(self, names: Sequence[FileName]) -> list[pa.Table]: ...
    def delete_layer(self, name: FileName) -> None: ...
    def delete_tree(self, name: FileName, kept: Sequence[FileName]) -> None: ...


class StoredPast:
    """Trees of range files. `found` is what was asked for lately, of all repositories: trees do not change."""

    def __init__(self, trees: Trees, found: dict[tuple[FileName, str], Entry] | None = None) -> None:
        self.trees = trees
        self._found = found

    def empty(self) -> FileName:
        return build.build(self.trees, [])

    def get(self, tree: FileName, path: str) -> Entry | None:
        if self._found is None:
            return reading.get(self.trees, tree, path)
        found = self._found.get((tree, path))
        if found is None:
            found = reading.get(self.trees, tree, path)
            if found is None or found.metadata:
                return found
            if len(self._found) >= _FOUND_MAX:
                self._found.clear()
            self._found[tree, path] = found
        return replace(found, metadata={})  # it is for whoever asked to change

    def seek(self, tree: FileName, path: str) -> tuple[Sorted, int] | None:
        return reading.seek(self.trees, tree, path)

    def scan(self, tree: FileName, start: str = "", prefix: str = "") -> Iterator[pa.Table]:
        return reading.scan(self.trees, tree, start, prefix)

    def build(self, batches: Iterable[pa.Table]) -> FileName:
        return build.build(self.trees, batches)

    def apply(self, tree: FileName, changes: Changes) -> FileName:
        return rewrite.apply(self.trees, tree, [changes.rows], changes.deletes)

    def preview(self, tree: FileName, changes: Changes, columns: Sequence[str] = IDENTITY) -> Iterator[pa.Table]:
        return rewrite.preview(self.trees, tree, changes, columns)

    def diff(
        self,
        left: FileName,
        right: FileName,
        columns: Sequence[str] = IDENTITY,
        start: str = "",
        stop: str | None = None,
    ) -> Iterator[pa.Table]:
        return diff.diff(self.trees, left, right, columns, start, stop)

    def differs(self, left: FileName, right: FileName, prefix: str) -> bool:
        return diff.differs(self.trees, left, right, prefix)

    def merge(
        self, base: FileName, source: FileName, dest: FileName, strategy: Strategy, memo: Memo | None = None
    ) -> Merged:
        return merge.merge(self.trees, base, source, dest, strategy, memo)

    def merge_ahead(
        self,
        base: FileName,
        source: FileName,
        dest: FileName,
        strategy: Strategy,
        memo: Memo,
        is_mine: Callable[[Digest], bool],
    ) -> None:
        merge.merge_ahead(self.trees, base, source, dest, strategy, memo, is_mine)

    def writing_behind(self) -> AbstractContextManager[object]:
        """Trees and layers written inside are in the store when this is left without an error, and not before."""
        return self.trees.writing_behind()

    def size(self, tree: FileName) -> int:
        """How many entries it has."""
        return self.trees.metarange(tree).count

    def write_layer(self, changes: pa.Table, where: str) -> Table:
        return self.trees.write_layer(changes, where)

    def read_layers(self, names: Sequence[FileName]) -> list[pa.Table]:
        return self.trees.read_layers(names)

    def delete_layer(self, name: FileName) -> None:
        self.trees.delete_layer(name)

    def delete_tree(self, name: FileName, kept: Sequence[FileName]) -> None:
        self.trees.delete_tree(name, kept)
