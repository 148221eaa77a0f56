"""The drawing of history: columns that part at merges and meet at what is common."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.cli.graph import drawn


def lines(*commits: tuple[str, Sequence[str]]) -> list[str]:
    documents = [{"id": name, "parents": parents} for name, parents in commits]
    return list(drawn(documents, lambda one: one["parents"], lambda one: one["id"]))


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([("c", "b"), ("b", "a"), ("a", "")], ["*  c", "*  b", "*  a"]),
        (
            [("m", "bc"), ("b", "a"), ("c", "a"), ("a", "")],
            ["*  m", "|-\\", "* |  b", "| *  c", "|-/", "*  a"],
        ),
        (
            [("m", "bcd"), ("c", "a"), ("b", "a"), ("d", "a"), ("a", "")],
            ["*  m", "|-\\-\\", "| * |  c", "* | |  b", "| | *  d", "|-/-/", "*  a"],
        ),
        ([("m", "xy"), ("x", ""), ("y", "z"), ("z", "")], ["*  m", "|-\\", "* |  x", "/", "*  y", "*  z"]),
    ],
    ids=["a line", "a merge", "an octopus", "two roots"],
)
def test_histories_are_drawn(commits: list[tuple[str, str]], expected: list[str]) -> None:
    assert lines(*commits) == expected


@given(st.lists(st.sets(st.integers(0, 30), max_size=3), min_size=1, max_size=30))
def test_each_commit_has_one_star_in_its_own_line_and_in_order(asked: list[set[int]]) -> None:
    names = [f"c{at}" for at in range(len(asked))]
    commits = [
        (name, [f"c{other}" for other in sorted(parents) if at < other < len(asked)])
        for at, (name, parents) in enumerate(zip(names, asked, strict=True))
    ]
    found = lines(*commits)
    assert [line.split("  ")[1] for line in found if "*" in line] == names
    assert all(line.count("*") <= 1 for line in found)
    assert all(set(line.split("  ")[0]) <= set("*|/\\- ") for line in found)
