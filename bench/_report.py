"""How benchmarks measure and print: the best of a few runs, ratios within one run, a verdict against each promise.

What is printed is kept in `bench/results/`, as JSON and as plots, and compared with what the last run left there.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

T = TypeVar("T")

RESULTS: Final = Path(__file__).parent / "results"


def seconds(work: Callable[[], T], repeat: int = 3) -> tuple[float, T]:
    """The shortest of `repeat` runs: on a noisy machine, the one least disturbed. And what the last one returned."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


class Report:
    """A table of measures, each with what was promised of it. Quick runs are kept apart from full ones."""

    def __init__(self) -> None:
        self.missed = 0
        self._name = Path(sys.argv[0]).stem + ("-quick" if "--quick" in sys.argv else "")
        self._file = RESULTS / f"{self._name}.json"
        before = json.loads(self._file.read_text()) if self._file.exists() else []
        self._before = {line["what"]: line.get("value") for line in before}
        self._lines: list[dict[str, Any]] = []

    def at_most(self, what: str, value: float, limit: float, unit: str = "x", note: str = "") -> None:
        self._line(what, value, f"<= {limit:g}", unit, value <= limit, note)

    def at_least(self, what: str, value: float, limit: float, unit: str = "x", note: str = "") -> None:
        self._line(what, value, f">= {limit:g}", unit, value >= limit, note)

    def note(self, what: str, text: str) -> None:
        print(f"  {what:<52} {text}", flush=True)
        self._keep({"what": what, "note": text})

    def plot(self, name: str, title: str, x: str, y: str, curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Draw curves, each a list of points, on logarithmic axes."""
        import matplotlib as mpl  # takes a second, and most benchmarks draw nothing

        mpl.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(6, 4))
        for label, points in curves.items():
            axes.plot([at for at, _ in points], [value for _, value in points], marker="o", label=label)
        axes.set(title=title, xlabel=x, ylabel=y, xscale="log", yscale="log")
        axes.grid(visible=True, which="both", alpha=0.2)
        axes.legend()
        RESULTS.mkdir(exist_ok=True)
        for kind in ("png", "svg"):
            metadata = {"Date": None} if kind == "svg" else {}
            figure.savefig(RESULTS / f"{name}.{kind}", bbox_inches="tight", metadata=metadata)
        pyplot.close(figure)

    def _line(self, what: str, value: float, limit: str, unit: str, kept: bool, note: str) -> None:
        self.missed += not kept
        verdict = "ok" if kept else "MISSED"
        was = self._before.get(what)
        last = f"(last {was:.3g})" if was is not None else ""
        print(f"  {what:<52} {value:>9.3g} {unit:<4} ({limit} {unit}) {verdict:<6} {last:<13} {note}", flush=True)
        self._keep(
            {"what": what, "value": round(value, 4), "unit": unit, "promised": limit, "kept": kept, "note": note}
        )

    def _keep(self, line: dict[str, Any]) -> None:
        self._lines.append(line)
        RESULTS.mkdir(exist_ok=True)
        self._file.write_text(json.dumps(self._lines, indent=1) + "\n")


def as_markdown(quick: bool) -> str:
    """The tables of the last runs."""
    text = ["# Results", "", f"`make bench{' ARGS=--quick' if quick else ''}` wrote this. Ratios are of one run.", ""]
    for file in sorted(RESULTS.glob("*.json")):
        if file.stem.endswith("-quick") != quick:
            continue
        text += [f"## {file.stem.removesuffix('-quick')}", "", "| | measured | promised | |", "|---|---|---|---|"]
        for line in json.loads(file.read_text()):
            if "value" in line:
                measured = f"{line['value']:.3g} {line['unit']}{'' if line['kept'] else ' **missed**'}"
                text.append(f"| {line['what']} | {measured} | {line['promised']} | {line['note']} |")
            else:
                text.append(f"| {line['what']} | | | {line['note']} |")
        text.append("")
    return "\n".join(text)
