"""Sorted rows, against dicts."""

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from esker.model import Entry
from esker.streams.arrays import lower_bounds, only_chunk
from esker.streams.entries import IDENTITY, table_of
from esker.streams.rows import WHOLE_ROW, compare

ROWS = 1000


def entry(number: int, content: str, mtime_ms: int = 0) -> Entry:
    return Entry(path=f"{number:04}", address="a", size=1, checksum=content, mtime_ms=mtime_ms)


@given(seed=st.integers(0, 1 << 32), edits=st.sampled_from([0, 1, 3, 10, 30, 300]), block=st.integers(0, 300))
@example(seed=0, edits=0, block=ROWS)
def test_what_differs_is_what_differs_between_dicts(seed: int, edits: int, block: int) -> None:
    """Rows put, deleted, changed and touched at random, and a block of them gone."""
    dice = random.Random(seed)
    left = {number: entry(number, "old") for number in range(0, 2 * ROWS, 2)}
    start = dice.randrange(2 * ROWS)
    right = {number: row for number, row in left.items() if not start <= number < start + 2 * block}
    for number in dice.choices(range(2 * ROWS), k=edits):
        match dice.randrange(3):
            case 0:
                right.pop(number, None)
            case 1:
                right[number] = entry(number, "new")
            case _:
                right[number] = entry(number, "old", 1)
    for ours, theirs in ((left, right), (right, left)):
        for columns in (WHOLE_ROW, IDENTITY):
            deltas = compare(table_of(ours.values()), table_of(theirs.values()), columns).to_pylist()
            found = [
                (
                    int(row["path"]),
                    row["was_checksum"] if row["was"] else None,
                    None if row["tombstone"] else row["checksum"],
                )
                for row in deltas
            ]
            assert found == [
                (number, content(ours.get(number)), content(theirs.get(number)))
                for number in sorted({*ours, *theirs})
                if (ours.get(number) != theirs.get(number) and columns is WHOLE_ROW)
                or content(ours.get(number)) != content(theirs.get(number))
            ]


def content(row: Entry | None) -> str | None:
    return row.checksum if row else None


@pytest.mark.parametrize("count", [1, 16, 17, 200])
def test_bounds_of_few_texts_and_of_many_are_the_same(count: int) -> None:
    dice = random.Random(count)
    texts = only_chunk(table_of(entry(number, "") for number in range(0, 2000, 3))["path"])
    sought = only_chunk(table_of(entry(number, "") for number in dice.sample(range(3000), count))["path"])
    expected = [sum(text < each for text in texts.to_pylist()) for each in sought.to_pylist()]
    assert lower_bounds(texts, sought).tolist() == expected
