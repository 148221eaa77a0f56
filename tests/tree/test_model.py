"""Every operation on trees equals the obvious one on dicts, for any paths and any way of cutting."""

from hypothesis import given
from hypothesis import strategies as st

from esker.format.names import digest_of
from esker.model import Entry
from esker.streams.entries import CHANGES, changes_of, entries_in, puts_in
from esker.streams.rows import WHOLE_ROW
from esker.tree import reading
from esker.tree.cutting import Cutting
from esker.tree.diff import diff
from esker.tree.merge import Memo, Strategy, merge
from esker.tree.rewrite import apply
from tests.tree.lakes import Lake, build_lake, cut_up, cuttings, identity, lakes, open_trees, paths, read_lake

prefixes = st.lists(st.one_of(paths, st.sampled_from(["", "a", "a/", "b//"])), max_size=3)


def changed(lake: Lake, puts: Lake, deletes: list[str], under: list[str]) -> Lake:
    """What `apply` should make of it: prefix deletes first, then deletes, then puts."""
    kept = {path: entry for path, entry in lake.items() if path not in deletes and not path.startswith(tuple(under))}
    return kept | puts


@given(cuttings, lakes)
def test_a_scan_is_the_sorted_dict(cutting: Cutting, lake: Lake) -> None:
    trees = open_trees(cutting)
    tree = build_lake(trees, lake)
    assert read_lake(trees, tree) == lake
    assert trees.metarange(tree).count == len(lake)


@given(cuttings, lakes, paths, paths)
def test_a_scan_starts_and_ends_where_it_is_told(cutting: Cutting, lake: Lake, start: str, prefix: str) -> None:
    trees = open_trees(cutting)
    tree = build_lake(trees, lake)
    tables = reading.scan(trees, tree, start, prefix[:2])
    found = [path for table in tables for path in table["path"].to_pylist()]
    assert found == sorted(path for path in lake if path >= start and path.startswith(prefix[:2]))


@given(cuttings, lakes, st.lists(paths))
def test_a_get_finds_what_is_there_and_nothing_else(cutting: Cutting, lake: Lake, others: list[str]) -> None:
    trees = open_trees(cutting)
    tree = build_lake(trees, lake)
    for path in [*lake, *others]:
        assert reading.get(trees, tree, path) == lake.get(path)


@given(cuttings, lakes, lakes, st.lists(paths), prefixes, st.data())
def test_apply_equals_the_dict_version(
    cutting: Cutting, lake: Lake, puts: Lake, deletes: list[str], under: list[str], data: st.DataObject
) -> None:
    trees = open_trees(cutting)
    deletes += [path for path in lake if data.draw(st.booleans(), label=f"delete {path!r}")]
    changes = changes_of(puts.values(), deletes)
    tree = apply(trees, build_lake(trees, lake), cut_up(data.draw, changes), under)
    assert read_lake(trees, tree) == changed(lake, puts, deletes, under)


@given(cuttings, lakes, lakes, lakes, st.data())
def test_equal_content_gives_an_equal_digest_by_every_road(
    cutting: Cutting, start: Lake, way: Lake, end: Lake, data: st.DataObject
) -> None:
    trees = open_trees(cutting)
    tree = build_lake(trees, start)
    tree = apply(trees, tree, cut_up(data.draw, changes_of(way.values())))
    under = data.draw(prefixes)
    tree = apply(trees, tree, [], under)
    here = changed(start | way, {}, [], under)
    tree = apply(trees, tree, cut_up(data.draw, changes_of(end.values(), [path for path in here if path not in end])))
    assert digest_of(tree) == digest_of(build_lake(trees, end))


@given(cuttings, lakes, lakes)
def test_diff_equals_the_dict_version(cutting: Cutting, left: Lake, right: Lake) -> None:
    trees = open_trees(cutting)
    rows = [
        row for table in diff(trees, build_lake(trees, left), build_lake(trees, right)) for row in table.to_pylist()
    ]
    assert [row["path"] for row in rows] == sorted(
        path for path in left.keys() | right.keys() if identity(left, path) != identity(right, path)
    )
    for row in rows:
        before, after = left.get(row["path"]), right.get(row["path"])
        assert (row["was"], row["tombstone"]) == (before is not None, after is None)
        assert (row["was_address"], row["was_size"]) == ((before.address, before.size) if before else ("", 0))
        assert (row["address"], row["checksum"]) == ((after.address, after.checksum) if after else ("", ""))


@given(cuttings, lakes, lakes, st.data())
def test_the_diff_to_applied_changes_is_the_changes(
    cutting: Cutting, lake: Lake, puts: Lake, data: st.DataObject
) -> None:
    """Those of them, that is, that change anything."""
    trees = open_trees(cutting)
    base = build_lake(trees, lake)
    deletes = [path for path in lake if path not in puts and data.draw(st.booleans(), label=f"delete {path!r}")]
    tables = list(diff(trees, base, apply(trees, base, [changes_of(puts.values(), deletes)]), WHOLE_ROW))
    found = {entry.path: entry for table in tables for entry in entries_in(puts_in(table.select(CHANGES.names)))}
    gone = [row["path"] for table in tables for row in table.to_pylist() if row["tombstone"]]
    assert found == {path: entry for path, entry in puts.items() if lake.get(path) != entry}
    assert gone == sorted(deletes)


def merged(base: Lake, source: Lake, dest: Lake, strategy: Strategy) -> tuple[Lake, list[str]]:
    """A three-way merge, key by key."""
    result: Lake = {}
    conflicts = []
    for path in sorted(base.keys() | source.keys() | dest.keys()):
        before, theirs, ours = (identity(lake, path) for lake in (base, source, dest))
        chosen: Entry | None
        if dest.get(path) == base.get(path):
            chosen = source.get(path)
        elif theirs == before:
            chosen = dest.get(path)
        elif ours == before:
            chosen = source.get(path)
        elif ours == theirs or strategy is Strategy.DEST_WINS:
            chosen = dest.get(path)
        elif strategy is Strategy.SOURCE_WINS:
            chosen = source.get(path)
        else:
            conflicts.append(path)
            continue
        if chosen:
            result[path] = chosen
    return result, conflicts


@given(cuttings, lakes, st.data(), st.sampled_from(Strategy))
def test_merge_equals_the_dict_version(cutting: Cutting, base: Lake, data: st.DataObject, strategy: Strategy) -> None:
    trees = open_trees(cutting)
    source, dest = (
        changed(
            base, data.draw(lakes), [path for path in base if data.draw(st.booleans(), label=f"deletes {path!r}")], []
        )
        for _ in ("source", "dest")
    )
    expected, conflicts = merged(base, source, dest, strategy)
    base_tree, source_tree, dest_tree = (build_lake(trees, lake) for lake in (base, source, dest))
    before = trees.counts()
    found = merge(trees, base_tree, source_tree, dest_tree, strategy)
    assert found.conflicts == conflicts
    if conflicts:
        assert found.tree is None
        assert (trees.counts() - before).metaranges_written == 0
    else:
        assert found.tree is not None
        assert read_lake(trees, found.tree) == expected
        assert digest_of(found.tree) == digest_of(build_lake(trees, expected))


@given(cuttings, lakes, st.data(), st.sampled_from(Strategy))
def test_a_merge_tried_again_equals_a_merge_from_scratch(
    cutting: Cutting, first: Lake, data: st.DataObject, strategy: Strategy
) -> None:
    """However often the destination moves, and the base with it."""
    trees = open_trees(cutting)

    def vary(lake: Lake) -> Lake:
        deletes = [path for path in lake if data.draw(st.integers(0, 3), label=f"keep {path!r}") == 0]
        return changed(lake, data.draw(lakes), deletes, [])

    source = vary(first)
    base, dest = first, vary(first)
    memo = Memo()
    for _ in range(data.draw(st.integers(2, 4), label="tries")):
        base_tree, source_tree, dest_tree = (build_lake(trees, lake) for lake in (base, source, dest))
        expected, conflicts = merged(base, source, dest, strategy)
        found = merge(trees, base_tree, source_tree, dest_tree, strategy, memo)
        assert found.conflicts == conflicts
        if found.tree is not None:
            assert digest_of(found.tree) == digest_of(build_lake(trees, expected))
        dest = vary(dest)
        if data.draw(st.booleans(), label="base moves"):
            base = vary(base)


@given(
    cuttings,
    lakes,
    st.one_of(paths, st.just("")),
    st.sampled_from(["", "/", "//", "é"]),
    st.integers(1, 5),
)
def test_pages_of_a_listing_add_up_to_the_whole(
    cutting: Cutting, lake: Lake, prefix: str, delimiter: str, amount: int
) -> None:
    trees = open_trees(cutting)
    tree = build_lake(trees, lake)
    prefix = prefix[:2]
    expected: list[str] = []
    for path in sorted(path for path in lake if path.startswith(prefix)):
        cut = path.find(delimiter, len(prefix)) if delimiter else -1
        item = path if cut < 0 else path[: cut + len(delimiter)]
        if item not in expected[-1:]:
            expected.append(item)
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = reading.listing(trees, tree, prefix=prefix, delimiter=delimiter, after=token, amount=amount)
        items = [item if isinstance(item, str) else item.path for item in page.items]
        assert all(item == lake[item.path] for item in page.items if not isinstance(item, str))
        assert len(items) == amount or page.next is None
        assert page.next in (None, *items[-1:])
        found += items
        token = page.next
    assert found == expected


@given(cuttings, lakes, paths)
def test_a_page_starts_behind_any_path(cutting: Cutting, lake: Lake, after: str) -> None:
    trees = open_trees(cutting)
    page = reading.listing(trees, build_lake(trees, lake), after=after)
    assert page.items == [lake[path] for path in sorted(lake) if path > after]
    assert page.next is None
