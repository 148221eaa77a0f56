"""How much there is: objects and bytes by prefix, and what each commit added.

Sizes are of what a ref shows, and count an object once for each path. Growth is a diff of each commit with its first
parent, so it costs what changed.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import spans
from esker.engine.lake import Lake
from esker.engine.log import log
from esker.errors import InvalidError, Kind
from esker.model import Commit, CommitID, FileName, Repository
from esker.streams.arrays import bools
from esker.tree.diff import diff
from esker.tree.trees import Trees

DEPTH_MAX: Final = 100


class Size(msgspec.Struct, frozen=True):
    """What lies under a prefix that is no longer than was asked for, and under none that is longer."""

    prefix: str
    objects: int
    bytes: int


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """What a commit changed against its first parent: objects, and the bytes that came and went with them."""

    commit: CommitID
    date_ms: int
    message: str
    objects: int
    """That there are then."""
    added: int
    removed: int
    changed: int
    bytes_added: int
    bytes_removed: int


def by_prefix(lake: Lake, repo: Repository, ref: str, *, prefix: str = "", depth: int = 1) -> list[Size]:
    """Objects and bytes by the directories, `depth` deep below `prefix`, that they are in; in order."""
    check_depth(depth)
    trees = spans.trees_of(lake, repo)
    start, stop = spans.bounds(prefix)
    planned = spans.plan(lake, repo, ref, start=start, stop=stop)
    found = sizes((rows for span in planned for rows in span.read(trees)), prefix, depth)
    return [Size(*row) for row in zip(*(found[name].to_pylist() for name in found.column_names), strict=True)]


def sizes(tables: Iterable[pa.Table], prefix: str, depth: int) -> pa.Table:
    """`prefix`, `objects` and `bytes` of the entries in these tables, which begin with `prefix`."""
    total = _SIZES.empty_table()
    for table in tables:
        rest = pc.utf8_slice_codeunits(table["path"], len(prefix))
        directories = pc.struct_field(pc.extract_regex(rest, f"^(?P<to>(?:[^/]*/){{0,{depth}}})"), "to")
        grouped = pa.table({"prefix": directories, "bytes": table["size"]}).group_by("prefix")
        counted = grouped.aggregate([("bytes", "count"), ("bytes", "sum")])
        rows = pa.table([counted["prefix"], counted["bytes_count"], counted["bytes_sum"]], schema=_SIZES)
        both = pa.concat_tables([total, rows]).group_by("prefix").aggregate([("objects", "sum"), ("bytes", "sum")])
        total = pa.table([both["prefix"], both["objects_sum"], both["bytes_sum"]], schema=_SIZES)
    total = total.sort_by("prefix")
    whole = pc.binary_join_element_wise(pa.scalar(prefix), total["prefix"], "")
    return total.set_column(0, _SIZES.field("prefix"), whole)


_SIZES: Final = pa.schema([("prefix", pa.string()), ("objects", pa.int64()), ("bytes", pa.int64())])


def by_commit(lake: Lake, repo: Repository, ref: str, *, amount: int = 100) -> Iterator[Growth]:
    """What each of the newest commits of `ref` changed, along first parents."""
    trees = spans.trees_of(lake, repo)
    for name, commit, before in steps(lake, repo, ref, amount):
        yield growth(trees, name, commit, before)


def steps(lake: Lake, repo: Repository, ref: str, amount: int) -> Iterator[tuple[CommitID, Commit, FileName]]:
    """The newest commits of `ref` along first parents, each with the tree before it."""
    after: CommitID | None = None
    while amount > 0:
        page = log(lake, repo, ref, first_parent=True, after=after, amount=min(amount, 1000))
        for name, commit in page.items:
            before = lake.commits(repo).get(commit.parents[0]).tree if commit.parents else lake.past(repo).empty()
            yield name, commit, before
        if page.next is None:
            return
        after, amount = page.next, amount - len(page.items)


def growth(trees: Trees, name: CommitID, commit: Commit, before: FileName) -> Growth:
    """What one commit changed against the tree before it."""
    added = removed = changed = bytes_added = bytes_removed = 0
    for deltas in diff(trees, before, commit.tree):
        there, was = ~bools(deltas["tombstone"]), bools(deltas["was"])
        added += int((there & ~was).sum())
        removed += int((~there).sum())
        changed += int((there & was).sum())
        bytes_added += pc.sum(deltas["size"]).as_py()  # a tombstone's is 0, as what was not there
        bytes_removed += pc.sum(deltas["was_size"]).as_py()
    return Growth(
        commit=name,
        date_ms=commit.date_ms,
        message=commit.message,
        objects=trees.metarange(commit.tree).count,
        added=added,
        removed=removed,
        changed=changed,
        bytes_added=bytes_added,
        bytes_removed=bytes_removed,
    )


def check_depth(depth: int) -> None:
    if not 0 <= depth <= DEPTH_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"sizes are told 0 to {DEPTH_MAX} directories deep, not {depth}")
