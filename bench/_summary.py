"""All results of a mode, as they lie in `bench/results/`, on one page: what was promised, what was measured, what was
measured the time before, and what is worse than it was."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from bench._report import RESULTS

WORSE: Final = 1.25
"""By how much a figure has to be off its last value to be called worse: less is noise."""


class Table(NamedTuple):
    """What one module measured."""

    name: str
    ended: bool
    """Otherwise it died, and its last lines were not measured."""
    seconds: float
    environment: dict[str, str]
    lines: list[dict[str, Any]]

    @property
    def promises(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "promised" in line]


def tables(*, quick: bool) -> list[Table]:
    """In the order of their names."""
    suffix = "-quick"
    files = [file for file in sorted(RESULTS.glob("*.json")) if file.stem.endswith(suffix) == quick]
    return [Table(name=file.stem.removesuffix(suffix), **json.loads(file.read_text())) for file in files]


def is_worse(line: dict[str, Any]) -> bool:
    """Whether it was better by a quarter, and more than rounding, the last time."""
    if "value" not in line or "last" not in line:
        return False
    value, last = line["value"], line["last"]
    low, high = (last, value) if line["promised"].startswith("<=") else (value, last)
    return bool(high > WORSE * low and high - low >= 0.01)


def told(found: Sequence[Table]) -> Iterator[str]:
    """The summary, a line at a time."""
    promises = [(table.name, line) for table in found for line in table.promises]
    kept = sum(line.get("kept", False) for _, line in promises)
    minutes = sum(table.seconds for table in found) / 60
    programs = f"{len(found)} program{'s' if len(found) > 1 else ''}"
    yield f"{kept} of {len(promises)} promises kept, {programs}, {minutes:.1f} minutes"
    for name, line in promises:
        if not line.get("kept", True):
            yield f"missed: {name}: {line['what']}: {measured(line)} ({promised(line)})"
    for table in found:
        if not table.ended:
            left = sum("value" not in line for line in table.promises)
            yield f"died: {table.name}: what it had measured is kept; {left} known promises were not measured"
    for name, line in promises:
        if is_worse(line):
            yield f"worse than the last run: {name}: {line['what']}: {measured(line)}, was {line['last']:.3g}"


def as_markdown(found: Sequence[Table], *, quick: bool) -> str:
    """The page."""
    first, *others = told(found)
    text = [
        f"# Results{' of a quick run' if quick else ''}",
        "",
        f"`make bench{' ARGS=--quick' if quick else ''}` wrote this. The two sides of a ratio took turns in one run of",
        "one program. *Last* is what the run before measured.",
        *(["Promises are of full sizes: on small ones, what is fixed weighs more."] if quick else []),
        "",
        f"**{first}.**",
        "",
        *(f"- {line}" for line in others),
        *([""] if others else []),
    ]
    places = {tuple(table.environment.items()) for table in found}
    if len(places) == 1:
        text += [*_environment(found[0]), ""]
    if any(_margins(found)):
        picture = f"promises{'-quick' if quick else ''}.svg"
        text += [f"![How far each measure is on the right side of what was promised of it]({picture})", ""]
    for table in found:
        text += [f"## {table.name}", ""]
        text += [f"`make bench ARGS='{table.name}{' --quick' if quick else ''}'`: {table.seconds:.0f} s", ""]
        if len(places) > 1:
            text += [*_environment(table), ""]
        text += ["| | measured | promised | last | |", "|---|---|---|---|---|"]
        text += [_row(line) for line in table.lines if "plot" not in line]
        text += ["", *(f"![{line['what']}]({line['plot']})\n" for line in table.lines if "plot" in line)]
    return "\n".join(text).rstrip() + "\n"


def measured(line: dict[str, Any]) -> str:
    return f"{line['value']:.3g} {line['unit']}".rstrip() if "value" in line else "not this time"


def promised(line: dict[str, Any]) -> str:
    return f"{line['promised']} {line['unit']}".rstrip()


def _row(line: dict[str, Any]) -> str:
    note = line.get("note", "").replace("|", "\\|")
    if "promised" not in line:
        return f"| {line['what']} | | | | {note} |"
    value = measured(line) + ("" if line.get("kept", True) else " **missed**")
    last = f"{line['last']:.3g}" + (" **worse now**" if is_worse(line) else "") if "last" in line else ""
    return f"| {line['what']} | {value} | {promised(line)} | {last} | {note} |"


def _environment(table: Table) -> Iterator[str]:
    yield "On: " + ", ".join(f"{name} {value}" for name, value in table.environment.items()) + "."


def draw(found: Sequence[Table], *, quick: bool) -> None:
    """One picture of all promises: how many times better than its limit each figure is."""
    points = _margins(found)
    if not points:
        return
    import matplotlib as mpl  # takes a second

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "promises"
    from matplotlib import pyplot

    names, margins = zip(*reversed(points), strict=True)
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.2 * len(points)))
    colours = ["tab:green" if margin >= 1 else "tab:red" for margin in margins]
    axes.scatter(margins, range(len(margins)), c=colours, s=18)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="times better than promised", ylim=(-1, len(margins)))
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.grid(visible=True, axis="x", alpha=0.3)
    for kind in ("png", "svg"):
        metadata = {"Date": None} if kind == "svg" else {}
        stem = f"promises{'-quick' if quick else ''}"
        figure.savefig(RESULTS / f"{stem}.{kind}", bbox_inches="tight", metadata=metadata)
    pyplot.close(figure)


def _margins(found: Iterable[Table]) -> list[tuple[str, float]]:
    """Where both the limit and the figure are more than nothing: the others have no ratio."""
    margins = []
    for table in found:
        for line in table.promises:
            limit, value = float(line["promised"][3:]), line.get("value", 0)
            if limit > 0 and value > 0:
                margin = limit / value if line["promised"].startswith("<=") else value / limit
                margins.append((f"{table.name}: {line['what']}", margin))
    return margins
