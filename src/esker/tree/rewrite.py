"""Apply changes to a tree: open only what they touch, and keep the rest by reference.

    1. plan     which ranges of the base do the changes and prefix deletes fall into?
    2. read     those, a few ahead
    3. lay      the changes over their rows
    4. write    ranges from the boundary before the first change until a boundary meets an old one again

A key in the gap between two ranges belongs to the right one, since nothing ended between them; a key after the last
range belongs to that. A range wholly inside a deleted prefix is dropped unopened.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from esker.model import Digest, FileName
from esker.streams.arrays import Bools, after_prefix, lower_bound, only_chunk
from esker.streams.entries import CHANGES, IDENTITY, NO_CHANGES, NO_ENTRIES, check
from esker.streams.prefixes import minimal
from esker.streams.rows import Changes, Feed, compare, outside, overlay
from esker.tree.trees import Metarange, RangeInfo, Trees
from esker.tree.writer import Writer

Decide = Callable[[pa.Table, pa.Table], "Decision"]
"""From the base's rows and the changes among them (and maybe more columns), what to do."""


Done = dict[tuple[str, ...], "list[Future[RangeInfo]]"]
"""By a range and the changes that fell into it, the ranges that took its place: where that began and ended at
boundaries, and so will again."""


class Decision(NamedTuple):
    changes: pa.Table
    """The changes to make."""
    conflicts: list[str]
    """Paths on which nothing can be decided."""


def apply(trees: Trees, base: FileName, changes: Iterable[pa.Table], prefixes: Iterable[str] = ()) -> FileName:
    """The tree of `base` without what lies under `prefixes`, and with `changes` on top.

    `changes` are batches of `CHANGES`, sorted by path within and across batches.
    """
    checked = (check(batch, CHANGES) for batch in changes)
    tree, _ = rewrite(trees, base, checked, lambda _, piece: Decision(piece, []), prefixes=minimal(prefixes))
    assert tree is not None
    return tree


def preview(trees: Trees, base: FileName, changes: Changes, columns: Sequence[str] = IDENTITY) -> Iterator[pa.Table]:
    """What `apply` would change, as `DELTAS` in order: rows that differ in `columns`. Writes nothing."""
    meta = trees.metarange(base)

    steps = _plan(meta, Feed([changes.rows]), changes.deletes)
    needs = ((step, [meta.info(step.range)] if step.range < len(meta) else []) for step in steps)
    for step, found in trees.reading_ahead(needs):
        rows = found[0].table if found else NO_ENTRIES
        places = outside(rows, changes.deletes)
        under = rows if places is None else rows.take(pa.array(places))
        over = pa.concat_tables([NO_CHANGES, *step.changes]).combine_chunks()
        deltas = compare(rows, overlay(under, over)[0], columns)
        if deltas.num_rows:
            yield deltas


def rewrite(
    trees: Trees,
    base: FileName,
    changes: Iterable[pa.Table],
    decide: Decide,
    *,
    prefixes: Sequence[str] = (),
    also_reads: Sequence[FileName] = (),
    done: Done | None = None,
) -> tuple[FileName | None, list[str]]:
    """As `apply`, with the changes that `decide` makes of those given; no tree, but all conflicts, if it finds any.

    `also_reads` names other trees whose files may be used again. `done` remembers what became of a range under these
    very changes, so that doing them again to another base costs only where the bases differ.
    """
    meta = trees.metarange(base)
    done = {} if done is None else done
    writer = Writer(trees, [meta, *map(trees.metarange, also_reads)])
    conflicts: list[str] = []
    kept = 0
    for (step, key), found in trees.reading_ahead(_needs(meta, _plan(meta, Feed(changes), prefixes), done)):
        if key in done:
            if conflicts:
                continue  # it had none before, and will have none now
            writer.keep(meta, kept, step.range)
            kept = min(step.range + 1, len(meta))
            if writer.at_boundary():
                writer.take(done[key])
                continue
            found = [trees.rows(meta.info(step.range))] if step.opens else []
        laid = _lay(trees, meta, decide, prefixes, step, found[0].table if found else None)
        conflicts += laid.conflicts
        if conflicts:
            continue  # there will be no tree
        writer.keep(meta, kept, step.range)
        kept = min(step.range + 1, len(meta))
        if laid.rows is None:
            writer.keep(meta, step.range, kept)
            continue
        mark = writer.mark()
        for table, cuts in laid.rows:
            writer.rows(table, cuts)
        written = writer.written_since(mark)
        if written is not None:
            done[key] = written
    if conflicts:
        return None, conflicts
    writer.keep(meta, kept, len(meta))
    return writer.finish(), []


def ahead(
    trees: Trees,
    base: FileName,
    changes: Iterable[pa.Table],
    decide: Decide,
    done: Done,
    is_mine: Callable[[Digest], bool],
    *,
    also_reads: Sequence[FileName] = (),
) -> None:
    """Do what `rewrite` would for those ranges of the base that are `is_mine`, and remember it."""
    meta = trees.metarange(base)
    reads = [meta, *map(trees.metarange, also_reads)]
    steps = ((step, _key(meta, step)) for step in _plan(meta, Feed(changes), ()) if step.range < len(meta))
    wanted = ((step, key) for step, key in steps if key not in done and is_mine(Digest(key[0])))
    under_way: deque[tuple[tuple[str, ...], list[Future[RangeInfo]]]] = deque()

    def settle(most: int) -> None:
        while len(under_way) > most:
            key, written = under_way.popleft()
            for future in written:
                future.result()
            done[key] = written

    for (step, key), found in trees.reading_ahead((item, [meta.info(item[0].range)]) for item in wanted):
        laid = _lay(trees, meta, decide, (), step, found[0].table)
        writer = Writer(trees, reads)
        for table, cuts in laid.rows or ():
            writer.rows(table, cuts)
        if written := writer.written_since(0):
            under_way.append((key, written))
        settle(trees.ahead)
    settle(0)


def _key(meta: Metarange, step: "_Step") -> tuple[str, ...]:
    """What decides the outcome of a step, given the changes as a whole: the range, and which of them fall into it."""
    ends = [piece["path"][at].as_py() for piece in (*step.changes[:1], *step.changes[-1:]) for at in (0, -1)]
    return (meta.info(step.range).id if step.range < len(meta) else "", *ends)


class _Step(NamedTuple):
    """The next range of the base that cannot be kept as it is (or none, behind the last one), and the changes that
    fall into it: behind its left neighbour's end, not behind its own."""

    range: int
    changes: list[pa.Table]
    opens: bool
    """Not if a deleted prefix covers all of it."""


def _plan(meta: Metarange, feed: Feed, prefixes: Sequence[str]) -> Iterator[_Step]:
    doomed = deque(span for prefix in prefixes if (span := _span(meta, prefix)))
    at = 0
    while True:
        path = feed.peek()
        by_change = len(meta) if path is None else meta.find(path, at)
        while doomed and doomed[0].stop <= at:
            doomed.popleft()
        by_prefix = max(at, doomed[0].start) if doomed else len(meta)
        at = min(by_change, by_prefix)
        if at == len(meta):
            break
        yield _Step(at, list(feed.through(meta.maxes[at])), not _covered(meta, at, prefixes))
        at += 1
    for piece in feed.through(None):
        yield _Step(len(meta), [piece], opens=False)


class _Laid(NamedTuple):
    rows: list[tuple[pa.Table, Bools]] | None
    """What takes the range's place, and after which rows the hash cuts; None to keep it."""
    conflicts: list[str]


def _needs(
    meta: Metarange, steps: Iterator[_Step], done: Done
) -> Iterator[tuple[tuple[_Step, tuple[str, ...]], list[RangeInfo]]]:
    """Each step with its key, and the range to read for it."""
    for step in steps:
        key = _key(meta, step)
        yield (step, key), [meta.info(step.range)] if step.opens and key not in done else []


def _lay(
    trees: Trees, meta: Metarange, decide: Decide, prefixes: Sequence[str], step: _Step, table: pa.Table | None
) -> _Laid:
    """Carry out one step, given the range's entries if it opens one."""
    whole = under = NO_ENTRIES
    cuts = np.zeros(0, dtype=bool)
    if table is not None:
        whole = table
        under, cuts = _surviving(trees, meta, step.range, whole, prefixes)
    parts = [(part, cut, decide(part, piece)) for part, cut, piece in _side_by_side(under, cuts, step.changes)]
    conflicts = [path for _, _, decision in parts for path in decision.conflicts]
    if conflicts or (step.opens and under is whole and not any(decision.changes.num_rows for _, _, decision in parts)):
        return _Laid(None, conflicts)
    rows = []
    for part, cut, decision in parts:
        laid, origin = overlay(part, decision.changes)
        new_cuts = trees.cutting.cuts_after(only_chunk(decision.changes["path"]))
        rows.append((laid, np.concatenate([cut, new_cuts])[origin]))
    return _Laid(rows, [])


def _span(meta: Metarange, prefix: str) -> range:
    """The ranges that may hold paths under `prefix`."""
    end = after_prefix(prefix)
    return range(meta.find(prefix), len(meta) if end is None else bisect_left(meta.mins, end))


def _covered(meta: Metarange, at: int, prefixes: Sequence[str]) -> bool:
    """Whether one of the prefixes covers the whole range. Only the last that is not above its first path can."""
    before = bisect_right(prefixes, meta.mins[at])
    prefix = prefixes[before - 1] if before else None
    return prefix is not None and meta.mins[at].startswith(prefix) and meta.maxes[at].startswith(prefix)


def _surviving(
    trees: Trees, meta: Metarange, at: int, rows: pa.Table, prefixes: Sequence[str]
) -> tuple[pa.Table, Bools]:
    """The rows of a range outside of `prefixes`, and after which the hash cuts: within a range it never does."""
    cuts = np.zeros(rows.num_rows, dtype=bool)
    cuts[-1:] = _ends_by_hash(trees, meta, at)
    places = outside(rows, [prefix for prefix in prefixes if prefix <= meta.maxes[at]]) if prefixes else None
    return (rows, cuts) if places is None else (rows.take(pa.array(places)), cuts[places])


def _ends_by_hash(trees: Trees, meta: Metarange, at: int) -> bool:
    """Whether the hash cuts after the range's last row: the only reason to end, for most."""
    info = meta.info(at)
    if at < len(meta) - 1 and not trees.cutting.is_full(info.count, info.bytes):
        return True
    return bool(trees.cutting.cuts_after(pa.array([info.max]))[0])


def _side_by_side(
    under: pa.Table, cuts: Bools, changes: Sequence[pa.Table]
) -> Iterator[tuple[pa.Table, Bools, pa.Table]]:
    """The rows in as many parts as there are batches of changes, each with those that fall among its rows."""
    start = 0
    for i, piece in enumerate(changes):
        stop = under.num_rows
        if i < len(changes) - 1:
            stop = lower_bound(only_chunk(under["path"]), piece["path"][-1].as_py() + "\0", start)
        yield under.slice(start, stop - start), cuts[start:stop], piece
        start = stop
    if not changes:
        yield under, cuts, NO_CHANGES
