"""Trees put together from pieces are the trees that are built at once, however they were cut up."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.errors import InvalidError
from esker.format.names import digest_of
from esker.model import Entry, FileName
from esker.streams.entries import table_of
from esker.streams.prefixes import minimal
from esker.tree import pieces
from esker.tree.cutting import Cutting
from esker.tree.trees import Trees
from tests.tree.lakes import Lake, build_lake, cut_up, cuttings, lakes, open_trees, paths, read_lake

some_prefixes = st.lists(st.one_of(paths, st.sampled_from(["", "a", "a/", "b//", "é"])), min_size=1, max_size=3)


def pieces_of(data: st.DataObject, trees: Trees, table: pa.Table, reads: list[FileName]) -> list[pieces.Piece]:
    """The rows in up to four pieces, each written in two batches."""
    ends = sorted(data.draw(st.lists(st.integers(0, table.num_rows), max_size=3), label="ends"))
    made = []
    for start, stop in zip([0, *ends], [*ends, table.num_rows], strict=True):
        made.append(pieces.write(trees, cut_up(data.draw, table.slice(start, stop - start)), reads))
    return made


@given(cuttings, lakes, lakes, some_prefixes, st.data())
def test_pieces_in_the_place_of_prefixes_make_the_tree_that_is_built_at_once(
    cutting: Cutting, old: Lake, new: Lake, under: list[str], data: st.DataObject
) -> None:
    trees = open_trees(cutting)
    base = build_lake(trees, old)
    reads = [base] if data.draw(st.booleans(), label="reads") else []
    regions = []
    expected = {path: entry for path, entry in old.items() if not path.startswith(tuple(under))}
    for prefix in minimal(under):
        below = {path: entry for path, entry in new.items() if path.startswith(prefix)}
        expected |= below
        regions.append((prefix, pieces_of(data, trees, table_of(below.values()), reads)))
    made = pieces.replace(trees, base, regions)
    assert read_lake(trees, made) == expected
    assert digest_of(made) == digest_of(build_lake(trees, expected))
    assert sum(piece.rows for _, some in regions for piece in some) == sum(
        path.startswith(tuple(under)) for path in new
    )


def test_what_is_there_already_is_neither_stored_again_nor_named_anew() -> None:
    trees = open_trees(Cutting(entries_mean=4, entries_max=32))
    lake = {entry.path: entry for entry in (at(f"t/{n:04}") for n in range(500))}
    base = build_lake(trees, lake)
    before = trees.counts()
    piece = pieces.write(trees, [table_of(lake.values())], [base])
    assert pieces.replace(trees, base, [("t/", [piece])]) == base
    assert (trees.counts() - before).ranges_written == 0
    again = pieces.write(trees, [table_of(lake.values())])
    assert pieces.replace(trees, base, [("t/", [again])]) == base


def test_rows_out_of_order_are_refused_within_a_piece_and_between_pieces() -> None:
    trees = open_trees(Cutting(entries_mean=2))
    a, b = (pieces.write(trees, [table_of([at(path)])]) for path in ("a", "b"))
    base = build_lake(trees, {})
    for wrong in ([b, a], [a, a]):
        with pytest.raises(InvalidError, match="comes after"):
            pieces.replace(trees, base, [("", wrong)])
    with pytest.raises(InvalidError, match="is not below"):
        pieces.replace(trees, base, [("b", [a])])
    with pytest.raises(InvalidError, match="comes after"):
        pieces.write(trees, [table_of([at("b")]), table_of([at("a")])])


def at(path: str) -> Entry:
    return Entry(path=path, address="data/x", size=1, checksum="c", mtime_ms=0)
