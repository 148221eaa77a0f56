"""The tables in docs/rest.md, from the table of operations: `python -m tests.server.rest_table` writes them."""

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Final

from esker.server.call import Operation
from esker.server.operations import OPERATIONS

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "rest.md"
OURS: Final = " ✦"
START: Final = "<!-- operations: written by `python -m tests.server.rest_table` -->\n"


def tables() -> str:
    """What is there, by group; then what answers 501."""
    there = [one for one in OPERATIONS if one.implemented]
    absent = [one for one in OPERATIONS if not one.implemented]
    parts = ["\n## What is there\n"]
    for group, members in _groups(there):
        rows = "".join(
            f"| {one.method} | `{one.route}` | {one.id}{OURS * one.ours} | {one.need.value} | {one.summary} |\n"
            for one in members
        )
        parts.append(f"\n**{group}**\n\n| | | operation | takes | |\n|---|---|---|---|---|\n{rows}")
    parts.append("\n## What answers 501\n\n")
    parts += [f"- {group}: {', '.join(one.id for one in members)}\n" for group, members in _groups(absent)]
    return "".join(parts)


def _groups(operations: Iterable[Operation]) -> Iterable[tuple[str, list[Operation]]]:
    ordered = sorted(operations, key=lambda one: one.group)
    return ((group, list(members)) for group, members in groupby(ordered, key=lambda one: one.group))


def written() -> str:
    """The document as it should be."""
    before, marker, _ = DOCUMENT.read_text().partition(START)
    assert marker, f"{DOCUMENT} has no mark where the tables begin"
    return before + START + tables()


if __name__ == "__main__":
    DOCUMENT.write_text(written())
