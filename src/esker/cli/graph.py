"""History, drawn: a column is a line of descent, and each commit stands below all that descend from it.

A column waits for one commit: a parent of the last that was drawn in it. Several may wait for the same; they meet
there, in the leftmost.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Document = dict[str, Any]


def drawn(
    commits: Iterable[Document], parents: Callable[[Document], Sequence[str]], line: Callable[[Document], str]
) -> Iterator[str]:
    """Lines for commits that come children first."""
    waiting: list[str] = []
    for commit in commits:
        name = commit["id"]
        if name not in waiting:
            waiting.append(name)
        at = waiting.index(name)
        meeting = [column for column in range(at + 1, len(waiting)) if waiting[column] == name]
        if meeting:
            yield _joined(["/" if column in meeting else "|" for column in range(len(waiting))], at, meeting[-1])
            waiting = [one for column, one in enumerate(waiting) if column not in meeting]
        yield f"{' '.join('*' if column == at else '|' for column in range(len(waiting)))}  {line(commit)}"
        first, *others = [*parents(commit)] or [""]
        if others:
            yield _joined(["|"] * len(waiting) + ["\\"] * len(others), at, len(waiting) + len(others) - 1)
            waiting += others
        waiting[at] = first
        if not first:
            del waiting[at]
            if at < len(waiting):
                yield " ".join("|" if column < at else "/" for column in range(len(waiting)))


def _joined(signs: Sequence[str], low: int, high: int) -> str:
    """Columns, with a line from one to another."""
    return "".join(sign + ("-" if low <= column < high else " ") for column, sign in enumerate(signs)).rstrip()
