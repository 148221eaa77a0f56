"""A stack of layers shows what the layers, laid one on another, would: by path, by window, and folded."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from esker.model import Entry, Layer, LayerID, Token
from esker.staging import tokens
from esker.staging.stack import Stack, View
from esker.staging.tables import UNKNOWN
from esker.streams.entries import changes_of, entries_in, table_of
from esker.streams.listing import Sorted, page
from esker.streams.rows import Changes, overlay
from esker.tree.trees import Rows
from tests.staging.tables import Place, entry, new_place

PATHS = ["a", "a/", "a/b", "a/b/c", "a/c", "ab", "b/1", "b/2", "é/x", "\U0010ffff"]
PREFIXES = ["", "a", "a/", "a/b", "b/", "é", "q"]

some_rows = st.dictionaries(st.sampled_from(PATHS), st.one_of(st.none(), st.integers(0, 9)), max_size=6)
some_deletes = st.lists(st.sampled_from(PREFIXES), max_size=2, unique=True).map(tuple)
some_layers = st.lists(
    st.tuples(some_rows, some_deletes, st.sampled_from(["token", "table", "small", "many"])), max_size=6
)

Plan = list[tuple[dict[str, int | None], tuple[str, ...], str]]
Shown = dict[str, int]


def laid(place: Place, plan: Plan) -> Stack:
    """The layers of a plan, oldest first. A token has no prefix deletes."""
    layers = []
    for number, (rows, deletes, kind) in enumerate(plan):
        if kind == "token":
            token = Token(f"t{number}")
            for path, content in rows.items():
                value = tokens.encode(None if content is None else entry(path, content))
                place.kv.put(tokens.partition(token), path.encode(), value)
            layers.append(Layer(id=LayerID(str(number)), token=token))
        else:
            layers.append(place.layer(rows, deletes, rows_a_table=2 if kind == "small" else 100, many=kind == "many"))
    return place.stack(*layers[::-1])


def over(below: Shown, plan: Plan) -> Shown:
    """The obvious version."""
    shows = dict(below)
    for rows, deletes, kind in plan:
        if kind != "token":
            shows = {path: content for path, content in shows.items() if not path.startswith(deletes)}
        for path, content in rows.items():
            shows.pop(path, None)
            if content is not None:
                shows[path] = content
    return shows


@given(some_layers)
def test_a_lookup_finds_what_is_on_top(plan: Plan) -> None:
    stack = laid(new_place(), plan)
    above, below = over({}, plan), over(dict.fromkeys(PATHS, 99), plan)
    for path in PATHS:
        found = stack.lookup(path)
        if found is UNKNOWN:
            assert below[path] == 99
        elif found is None:
            assert path not in below
        else:
            assert found == entry(path, above[path])


@given(some_layers, st.sampled_from(["", *PATHS]), st.sampled_from([None, *PATHS]))
def test_a_fold_is_the_layers_as_one(plan: Plan, start: str, stop: str | None) -> None:
    below = dict.fromkeys(PATHS, 99)
    folded = laid(new_place(), plan).fold(start, stop)
    rows = folded.over(Changes(changes_of(entry(path, content) for path, content in below.items()))).rows
    alive, _ = overlay(table_of([]), rows)
    inside = {
        path: content for path, content in over(below, plan).items() if path >= start and (stop is None or path < stop)
    }
    found = {one.path: one.size for one in entries_in(alive)}
    assert {path: size for path, size in found.items() if path >= start and (stop is None or path < stop)} == inside


@given(some_layers, st.integers(0, 6))
def test_folds_of_folds_are_the_same_whatever_the_grouping(plan: Plan, at: int) -> None:
    whole = laid(new_place(), plan).fold()
    older, newer = laid(new_place(), plan[:at]).fold(), laid(new_place(), plan[at:]).fold()
    both = newer.over(older)
    assert both.rows.equals(whole.rows)
    assert both.deletes == whole.deletes


@given(
    some_layers,
    st.dictionaries(st.sampled_from(PATHS), st.integers(0, 9), max_size=8),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from(["", *PREFIXES]),
    st.sampled_from(["", "/"]),
)
def test_a_listing_over_a_tree_shows_what_is_there(
    plan: Plan, below: Shown, rows_max: int, amount: int, prefix: str, delimiter: str
) -> None:
    stack = laid(new_place(), plan)
    tree = Rows(table_of(entry(path, content) for path, content in below.items()))

    def seek(path: str) -> tuple[Sorted, int] | None:
        at = tree.find(path.encode())
        return (tree, at) if at < len(tree) else None

    shows = {path: content for path, content in over(below, plan).items() if path.startswith(prefix)}
    expected: list[Entry | str] = []
    for path in sorted(shows):
        cut = path.find(delimiter, len(prefix)) if delimiter else -1
        item = entry(path, shows[path]) if cut < 0 else path[: cut + 1]
        if item not in expected[-1:]:
            expected.append(item)
    found: list[Entry | str] = []
    after: str | None = ""
    while after is not None:
        view = View(stack, seek, rows_max)
        part = page(view.seek, prefix=prefix, after=after, delimiter=delimiter, amount=amount)
        found += part.items
        after = part.next
    assert found == expected


@given(some_layers, st.sampled_from(["", *PATHS]), st.integers(1, 4))
def test_a_window_tells_of_consecutive_paths(plan: Plan, start: str, rows_max: int) -> None:
    window = laid(new_place(), plan).window(start.encode(), rows_max)
    paths = [path.decode() for path in window.paths]
    assert paths == sorted(paths)
    assert all(path >= start for path in paths)
    above, below = over({}, plan), over(dict.fromkeys(PATHS, 99), plan)
    known = [path for path in sorted(PATHS) if path >= start and (window.end is None or path.encode() <= window.end)]
    for path in known:
        at = bisect_left(paths, path)
        if at < len(paths) and paths[at] == path:
            found = tokens.decode(path, window.values[at])
            assert (found and found.size) == above.get(path)
        elif path.startswith(window.deletes):
            assert path not in below
        else:
            assert below[path] == 99
