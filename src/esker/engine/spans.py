"""What a ref shows, in pieces that can be read apart from each other, by other processes too.

A span is a stretch of paths with all that it takes to read them: a tree, and what is staged over it. Refs and staging
tokens are read when spans are planned, and files when a span is read, so whoever does needs the store and nothing else.

Spans of a branch name layers that may fall off it: what is not read within the grace time may be gone, and then reading
fails by saying so. A commit's spans last as long as the commit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import pyarrow as pa

from esker.engine.lake import Lake
from esker.engine.refs import resolve
from esker.model import FileName, Layer, Repository
from esker.staging import tokens
from esker.streams.arrays import after_prefix, lower_bound, only_chunk
from esker.streams.entries import NO_CHANGES, NO_ENTRIES
from esker.streams.prefixes import Prefixes
from esker.streams.rows import Changes, outside, overlay
from esker.tree import reading
from esker.tree.past import StoredPast
from esker.tree.trees import Trees

RANGES: Final = 32
"""Of a span: about 130,000 entries, some 25 MB."""

SPANS_MAX: Final = 10_000
"""Of larger trees, spans are larger."""


@dataclass(frozen=True)
class Staged:
    """What one layer says of a span: files of staged changes, or the rows of a token."""

    files: tuple[FileName, ...]
    rows: pa.Table
    deletes: tuple[str, ...]

    def changes(self, trees: Trees, start: str, stop: str | None) -> Changes:
        tables = [*trees.read_layers(self.files)] if self.files else []
        rows = pa.concat_tables([self.rows, *tables]).combine_chunks()
        return Changes(clipped(rows, start, stop), self.deletes)


@dataclass(frozen=True)
class Span:
    """Paths from `start` on and before `stop`. Layers are newest first."""

    tree: FileName
    layers: tuple[Staged, ...]
    start: str
    stop: str | None

    def read(self, trees: Trees) -> Iterator[pa.Table]:
        """Its entries, sorted."""
        if not self.layers:
            yield from reading.scan(trees, self.tree, self.start, stop=self.stop)
            return
        staged = Changes(NO_CHANGES)
        for layer in reversed(self.layers):
            staged = layer.changes(trees, self.start, self.stop).over(staged)
        found = [NO_ENTRIES, *reading.scan(trees, self.tree, self.start, stop=self.stop)]
        rows = pa.concat_tables(found).combine_chunks()
        places = outside(rows, staged.deletes)
        under = rows if places is None else rows.take(pa.array(places))
        laid = overlay(under, staged.rows)[0]
        if laid.num_rows:
            yield laid


def trees_of(lake: Lake, repo: Repository) -> Trees:
    """The repository's trees, as files."""
    past = lake.past(repo)
    assert isinstance(past, StoredPast), "what is read apart is files"
    return past.trees


def plan(
    lake: Lake, repo: Repository, ref: str, *, start: str = "", stop: str | None = None, ranges: int = RANGES
) -> list[Span]:
    """What `ref` shows now of the paths from `start` on and before `stop`: of a branch with what is staged there, of
    `branch@` without."""
    found = resolve(lake, repo, ref)
    tree = lake.commits(repo).get(found.commit).tree
    layers: tuple[Layer, ...] = ()
    if found.record is not None and not (found.record.clean and lake.settings.dirty_read_optimization):
        tree = found.record.compacted or tree
        layers = lake.stack(repo, found.record).layers
    maxes = trees_of(lake, repo).metarange(tree).maxes
    read = [(layer, _token_rows(lake, layer, start, stop), lake.tables(repo).deletes(layer)) for layer in layers]
    return [
        Span(tree, tuple(_staged(*layer, low, high) for layer in read), low, high)
        for low, high in stretches(maxes, start, stop, ranges)
    ]


def differing(
    trees: Trees, left: FileName, right: FileName, start: str = "", stop: str | None = None, ranges: int = RANGES
) -> list[tuple[str, str | None]]:
    """From `start` to `stop`, in stretches that can be compared apart: each has so many ranges that only one of the two
    trees has, or more. None if the trees are equal."""
    one, other = trees.metarange(left), trees.metarange(right)
    if one.id == other.id:
        return []
    shared = {*one.table["id"].to_pylist()} & {*other.table["id"].to_pylist()}
    ends = {
        last
        for meta in (one, other)
        for name, last in zip(meta.table["id"].to_pylist(), meta.maxes, strict=True)
        if name not in shared
    }
    return stretches(sorted(ends), start, stop, ranges)


def stretches(maxes: Sequence[str], start: str, stop: str | None, ranges: int) -> list[tuple[str, str | None]]:
    """From `start` to `stop`, in stretches that each end where a range does: so many ranges each, or more."""
    inside = [last for last in maxes if last >= start and (stop is None or last < stop)]
    step = max(ranges, -(-len(inside) // SPANS_MAX))
    cuts = [last + "\0" for last in inside[step - 1 : -1 : step]]  # no text lies between `last` and `last` + NUL
    return list(pairwise([start, *cuts, stop]))  # type: ignore[list-item] # only the last may be None


def bounds(prefix: str) -> tuple[str, str | None]:
    """The paths that begin with `prefix`."""
    return prefix, after_prefix(prefix)


def clipped(rows: pa.Table, start: str, stop: str | None) -> pa.Table:
    """The sorted rows from `start` on and before `stop`."""
    paths = only_chunk(rows["path"])
    low = lower_bound(paths, start) if start else 0
    high = len(paths) if stop is None else lower_bound(paths, stop, low)
    return rows.slice(low, high - low)


def _token_rows(lake: Lake, layer: Layer, start: str, stop: str | None) -> pa.Table:
    return tokens.changes(lake.kv, layer.token, start, stop) if layer.token else NO_CHANGES


def _staged(layer: Layer, rows: pa.Table, deletes: Prefixes, start: str, stop: str | None) -> Staged:
    """What concerns one span of a layer."""
    files = tuple(table.file for table in layer.tables if table.max >= start and (stop is None or table.min < stop))
    hidden = deletes.between(start.encode(), None if stop is None else stop.encode())
    return Staged(files, clipped(rows, start, stop), hidden)
