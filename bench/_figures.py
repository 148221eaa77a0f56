"""The figures in the README, from the results of a full run: `make bench` writes them there."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench._summary import Table, measured, promised

README: Final = Path(__file__).parents[1] / "README.md"
BEGIN: Final = "<!-- figures: written by `make bench` -->\n"
END: Final = "<!-- end of figures -->\n"

FIGURES: Final[Sequence[tuple[str, str, str]]] = (
    ("tree", "commit 1,000 clustered: git / esker", "a commit of 1,000 files in a million: git's time / esker's"),
    ("tree", "merge 1,000 + 1,000 scattered: git / esker", "a merge of 1,000 + 1,000 changes in a million: the same"),
    (
        "tree",
        "apply 1,000 clustered: 10,000,000 / 1,000,000 entries",
        "that commit in ten million files / in a million",
    ),
    ("merge", "64 racers: starting over / esker", "64 merges into one branch at once: merges that start over / esker"),
    ("merge", "contended merges from 32 threads", "merges into one branch from 32 threads"),
    ("lsm", "first page after 1,000,000 deletes, compacted / clean", "a page behind a million deletes / a clean one"),
    ("lsm", "get through 64 L1 tables: opened", "files opened by a read through 64 staged layers"),
    ("server", "stat on a clean branch, against it", "stat over HTTP, as a share of an empty route of the same stack"),
    ("server", "upload of 2,048 MB, against a plain file copy", "a 2 GB upload, as a share of a plain copy's rate"),
    ("server", "memory of a worker meanwhile", "memory of a worker meanwhile"),
    ("spark", "4000 files, a-task-each: faster than v1", "4,000 files from Spark: its own committer's time / esker's"),
    ("spark", "4000 files, a-task-each: beside the tasks alone", "the same / the tasks alone, which write nothing"),
    ("spark", "planning a read of 4000 partitions", "planning a read of 4,000 partitions"),
    ("pipeline", "entries marked a second, of 3,000,000", "entries that a collection marks a second"),
    (
        "pipeline",
        "import of 1,000,000: by Spark / listing + build",
        "an import of a million files by Spark / their listing and a bare build of the tree",
    ),
    (
        "pipeline",
        "driver's memory: import of 5,000,000 / 100,000 objects",
        "the driver's memory in an import of five million / of a hundred thousand",
    ),
)
"""The program, what it says, and what the README says."""


def block(found: Sequence[Table]) -> str:
    """What stands between the marks."""
    lines = {(table.name, line["what"]): line for table in found for line in table.promises}
    rows = [
        f"| {words} | {measured(line)} | {promised(line)} | `make bench ARGS={module}` |\n"
        for module, what, words in FIGURES
        if "value" in (line := lines.get((module, what), {}))
    ]
    head = "| | measured | promised | by |\n|---|---|---|---|\n"
    return f"{BEGIN}{head}{''.join(rows)}{END}" if rows else f"{BEGIN}No run is kept here at the moment.\n{END}"


def written() -> str:
    """What the README has."""
    text = README.read_text("utf-8")
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def write(found: Sequence[Table]) -> None:
    text = README.read_text("utf-8")
    README.write_text(text.replace(written(), block(found)), "utf-8")
