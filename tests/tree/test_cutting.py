"""Cutting: the hash that other writers must agree on, and boundaries that depend on nothing but rows."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.streams.entries import table_of
from esker.streams.hashes import hash_paths
from esker.tree.build import build
from esker.tree.cutting import Cutting
from tests.tree.lakes import Lake, build_lake, cuttings, lakes, numbered, open_trees, paths

WORD = (1 << 64) - 1


def hash_as_specified(path: bytes, salt: int) -> int:
    """docs/spec/tree.md, byte by byte."""
    h = salt ^ (len(path) * 0x9E3779B97F4A7C15 & WORD)
    for at in range(0, len(path), 8):
        h = (h ^ int.from_bytes(path[at : at + 8], "little")) * 0x9E3779B97F4A7C15 & WORD
        h ^= h >> 32
    h ^= h >> 33
    h = h * 0xFF51AFD7ED558CCD & WORD
    h ^= h >> 33
    h = h * 0xC4CEB9FE1A85EC53 & WORD
    return h ^ (h >> 33)


@given(st.lists(paths, min_size=1), st.integers(0, WORD), st.data())
def test_the_hash_is_the_specified_one(found: list[str], salt: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(found) - 1))
    array = pa.array(found, pa.string()).slice(start)
    assert hash_paths(array, salt).tolist() == [hash_as_specified(path.encode(), salt) for path in found[start:]]


def test_the_hash_never_changes() -> None:
    assert hash_paths(pa.array(["tables/events/part-00000.parquet"]), 7).tolist() == [0x4567840C8BEBE812]


def test_ranges_are_about_as_long_as_asked_and_never_longer_than_allowed() -> None:
    cutting = Cutting(entries_mean=50, entries_max=200)
    array = pa.array([f"part-{n:06d}" for n in range(100_000)])
    assert 1_700 < cutting.cuts_after(array).sum() < 2_300
    trees = open_trees(cutting)
    meta = trees.metarange(build_lake(trees, numbered(5_000)))
    assert max(meta.table["count"].to_pylist()) <= 200


@given(cuttings, lakes)
def test_writers_that_start_at_hash_cuts_cut_alike(cutting: Cutting, lake: Lake) -> None:
    """What lets many processes build one tree: their ranges, one after another, are the ranges of the whole."""
    trees = open_trees(cutting)
    table = table_of(lake.values())
    whole = trees.metarange(build(trees, [table])).table["id"].to_pylist()
    cuts = [0, *(n + 1 for n, cut in enumerate(cutting.cuts_after(table["path"].combine_chunks())) if cut), len(lake)]
    pieces = [table.slice(start, stop - start) for start, stop in itertools.pairwise(cuts) if start < stop]
    parts = [trees.metarange(build(trees, [piece])).table["id"].to_pylist() for piece in pieces]
    assert [range_id for part in parts for range_id in part] == whole


@pytest.mark.parametrize("bad", [{"entries_mean": 0}, {"entries_max": 0}, {"bytes_max": 0}, {"salt": 1 << 64}])
def test_a_cutting_that_cannot_be_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a cutting needs"):
        Cutting(**bad)
