"""What operations open and store: counted, since a count holds on any machine."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from esker.errors import InvalidError, UnavailableError
from esker.format.names import digest_of
from esker.model import Entry, FileName
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.cache import MemoryCache
from esker.streams.entries import as_changes, changes_of, table_of
from esker.testing.faults import Call, CountingBlobs, Fault, FaultyBlobs
from esker.tree import reading
from esker.tree.build import build
from esker.tree.cutting import Cutting
from esker.tree.diff import diff
from esker.tree.merge import Memo, Strategy, merge
from esker.tree.rewrite import apply
from esker.tree.trees import TreeCounts, Trees
from tests.tree.lakes import Lake, build_lake, numbered, open_trees, read_lake

CUTTING = Cutting(salt=3, entries_mean=50, entries_max=400)
LAKE = numbered(5_000)


def cold() -> tuple[Trees, CountingBlobs]:
    blobs = CountingBlobs(MemoryBlobs())
    return open_trees(CUTTING, blobs), blobs


def again(blobs: CountingBlobs) -> Trees:
    """The same store with an empty cache, and its counts at zero."""
    return open_trees(CUTTING, blobs)


def some(version: int, start: int, stop: int) -> Lake:
    return dict(list(numbered(5_000, version).items())[start:stop])


def differing(trees: Trees, left: FileName, right: FileName) -> int:
    """In how many ranges two trees differ."""
    ids = [set(trees.metarange(name).table["id"].to_pylist()) for name in (left, right)]
    return max(len(ids[0] - ids[1]), len(ids[1] - ids[0]))


def test_a_point_get_opens_one_range() -> None:
    trees, blobs = cold()
    tree = build_lake(trees, LAKE)
    trees = again(blobs)
    assert reading.get(trees, tree, "dir3/001700") == LAKE["dir3/001700"]
    assert reading.get(trees, tree, "dir3/001700/not") is None
    assert trees.counts() == TreeCounts(ranges_read=1, metaranges_read=1)


def test_a_clustered_change_opens_and_writes_only_what_it_touches() -> None:
    trees, blobs = cold()
    base = build_lake(trees, LAKE)
    trees = again(blobs)
    tree = apply(trees, base, [as_changes(table_of(some(1, 2_000, 2_010).values()))])
    counts = trees.counts()
    k = differing(trees, base, tree)
    assert k <= 2
    assert (counts.ranges_read, counts.ranges_written) == (k, k)
    assert (counts.metaranges_read, counts.metaranges_written) == (1, 1)


def test_changes_that_change_nothing_store_nothing() -> None:
    trees, blobs = cold()
    base = build_lake(trees, LAKE)
    trees = again(blobs)
    assert apply(trees, base, [changes_of(some(0, 1_000, 4_000).values(), ["not/there"])]) == base
    assert (trees.counts().ranges_written, trees.counts().metaranges_written) == (0, 0)


def test_a_deleted_prefix_is_dropped_unopened_but_for_its_edges() -> None:
    trees, blobs = cold()
    base = build_lake(trees, LAKE)
    trees = again(blobs)
    tree = apply(trees, base, [], ["dir4/"])
    assert trees.counts().ranges_read <= 2
    assert read_lake(trees, tree) == {path: entry for path, entry in LAKE.items() if not path.startswith("dir4/")}
    trees = again(blobs)
    empty = apply(trees, base, [], [""])
    assert trees.counts().ranges_read == 0
    assert read_lake(trees, empty) == {}


def test_deleting_a_boundary_opens_the_range_behind_it() -> None:
    trees, blobs = cold()
    base = build_lake(trees, LAKE)
    last = trees.metarange(base).maxes[3]
    trees = again(blobs)
    tree = apply(trees, base, [changes_of([], [last])])
    assert trees.counts().ranges_read == 2
    assert digest_of(tree) == digest_of(build_lake(trees, {path: e for path, e in LAKE.items() if path != last}))


@pytest.mark.parametrize("strategy", Strategy)
def test_diff_and_merge_of_equal_trees_open_nothing(strategy: Strategy) -> None:
    trees, blobs = cold()
    base = build_lake(trees, LAKE)
    other = apply(trees, base, [as_changes(table_of(some(1, 100, 200).values()))])
    trees = again(blobs)
    assert list(diff(trees, base, base)) == []
    assert merge(trees, base, base, other, strategy).tree == other
    assert merge(trees, base, other, base, strategy).tree == other
    assert merge(trees, base, other, other, strategy).tree == other
    assert trees.counts().ranges_read == trees.counts().ranges_written == 0


def test_diff_opens_only_ranges_that_differ() -> None:
    trees, blobs = cold()
    base = build_lake(trees, LAKE)
    other = apply(trees, base, [as_changes(table_of(some(1, 1_000, 1_500).values()))])
    trees = again(blobs)
    rows = sum(table.num_rows for table in diff(trees, base, other))
    assert rows == 500
    assert trees.counts().ranges_read <= 2 * differing(trees, base, other)


def test_a_merge_of_disjoint_changes_opens_only_ranges_that_one_side_changed() -> None:
    trees, blobs = cold()
    base = build_lake(trees, LAKE)
    source = apply(trees, base, [changes_of(some(1, 1_000, 1_200).values(), ["dir2/001300"])])
    dest = apply(trees, base, [changes_of(some(1, 3_000, 3_300).values(), ["dir8/004200"])])
    changed = {
        blob
        for name in (base, source, dest)
        for blob in trees.metarange(name).table["name"].to_pylist()
        if any(blob not in trees.metarange(other).table["name"].to_pylist() for other in (base, source, dest))
    }
    k = differing(trees, base, source) + differing(trees, base, dest)
    trees = again(blobs)
    blobs.reset()
    merged = merge(trees, base, source, dest)
    assert merged.tree is not None
    opened = {name.rpartition("/")[2] for method, name in blobs.names if method == "get" and "/ranges/" in name}
    assert opened <= changed
    assert trees.counts().ranges_read == len(opened) <= 2 * k + 2
    assert trees.counts().ranges_written == 0, "every range of the result is one of the two sides'"


def test_a_merge_tried_again_reads_and_writes_only_what_the_race_touched() -> None:
    trees, blobs = cold()
    base = build_lake(trees, LAKE)
    source = apply(trees, base, [as_changes(table_of(some(1, 0, 2_000).values()))])
    dest = apply(trees, base, [as_changes(table_of(some(1, 4_000, 4_010).values()))])
    moved = apply(trees, dest, [as_changes(table_of(some(2, 1_900, 1_910).values()))])
    trees = again(blobs)
    memo = Memo()
    merge(trees, base, source, dest, Strategy.SOURCE_WINS, memo)
    first = trees.counts()
    touched = differing(trees, dest, moved)
    blobs.reset()
    merge(trees, base, source, moved, Strategy.SOURCE_WINS, memo)
    counts = trees.counts() - first
    assert counts.ranges_read <= touched
    assert counts.ranges_written <= touched
    assert trees.counts().ranges_read <= first.ranges_read + touched


def test_a_failing_store_fails_the_operation_and_stores_no_tree() -> None:
    class Broken(MemoryBlobs):
        def put(self, name: str, data: bytes | memoryview) -> None:
            if "/ranges/" in name:
                raise OSError("disk full")
            super().put(name, data)

    blobs = Broken()
    with pytest.raises(OSError, match="disk full"):
        build_lake(open_trees(CUTTING, blobs), LAKE)
    assert list(blobs.list()) == []


def test_one_thread_in_the_pool_is_enough() -> None:
    """No task of the pool waits for another."""
    with ThreadPoolExecutor(1) as pool:
        trees = Trees(MemoryBlobs(), CUTTING, cache=MemoryCache(0), pool=pool)
        base = build(trees, [table_of(LAKE.values())])
        one, two = (apply(trees, base, [as_changes(table_of(some(v, 0, 5_000).values()))]) for v in (1, 2))
        assert len(merge(trees, base, one, two).conflicts) == 5_000
        assert sum(table.num_rows for table in diff(trees, one, two)) == 5_000


def test_entries_that_are_not_sorted_are_refused_by_row() -> None:
    trees, _ = cold()
    entry = Entry(path="b", address="x", size=1, checksum="", mtime_ms=0)
    table = table_of([entry])
    with pytest.raises(InvalidError, match="'b' comes after 'b'"):
        build(trees, [table, table])


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_trees_written_behind_can_be_read_at_once_and_are_stored_in_the_end(cache_bytes: int) -> None:
    blobs = MemoryBlobs()
    trees = open_trees(CUTTING, blobs, cache_bytes)
    with trees.writing_behind():
        tree = build_lake(trees, LAKE)
        assert read_lake(trees, tree) == LAKE
    assert read_lake(open_trees(CUTTING, blobs), tree) == LAKE


def test_a_file_written_behind_that_the_store_refuses_is_an_error_at_the_end() -> None:
    def decide(call: Call) -> Fault | None:
        return Fault.REFUSED if call.method == "put" and "/ranges/" in call.name else None

    trees = open_trees(CUTTING, FaultyBlobs(MemoryBlobs(), decide))
    with pytest.raises(UnavailableError), trees.writing_behind():
        build_lake(trees, LAKE)
