"""How benchmarks measure and print: the best of a few runs, ratios within one run, a verdict against each promise.

What is printed is kept in `bench/results/`, as JSON and as plots, beside what the run before measured. A file is
written with every line, so a program that dies leaves what it had measured, and what it had not keeps its last value.
"""

import atexit
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from bench import _environment

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


def file_of(module: str, *, quick: bool) -> Path:
    return RESULTS / f"{module}{'-quick' if quick else ''}.json"


def set_aside(file: Path) -> None:
    """What was measured becomes what was measured last: of a program that is about to be run, and may die."""
    _write(file, ended=False, took_s=0, lines=_not_measured(_lines(file)))


class Report:
    """A table of measures, each with what was promised of it. Quick runs are kept apart from full ones."""

    def __init__(self) -> None:
        self.missed = 0
        self._quick = "--quick" in sys.argv
        self._file = file_of(Path(sys.argv[0]).stem, quick=self._quick)
        self._before = {line["what"]: line for line in _not_measured(_lines(self._file))}
        self._lines: list[dict[str, Any]] = []
        self._begun_s = time.monotonic()
        self._write(ended=False)
        atexit.register(self._end)

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
        mpl.rcParams["svg.hashsalt"] = name  # the same picture is the same file
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(6, 4))
        for label, points in curves.items():
            axes.plot([at for at, _ in points], [value for _, value in points], marker="o", label=label)
        axes.set(title=title, xlabel=x, ylabel=y, xscale="log", yscale="log")
        axes.grid(visible=True, which="both", alpha=0.2)
        axes.legend()
        RESULTS.mkdir(exist_ok=True)
        stem = f"{name}{'-quick' if self._quick else ''}"
        for kind in ("png", "svg"):
            metadata = {"Date": None} if kind == "svg" else {}
            figure.savefig(RESULTS / f"{stem}.{kind}", bbox_inches="tight", metadata=metadata)
        pyplot.close(figure)
        self._keep({"what": title, "plot": f"{stem}.svg"})

    def _line(self, what: str, value: float, limit: str, unit: str, kept: bool, note: str) -> None:
        self.missed += not kept
        verdict = "ok" if kept else "MISSED"
        was = self._before.get(what, {}).get("last")
        last = f"(last {was:.3g})" if was is not None else ""
        print(f"  {what:<52} {value:>9.3g} {unit:<4} ({limit} {unit}) {verdict:<6} {last:<13} {note}", flush=True)
        line = {"what": what, "value": round(value, 4), "unit": unit, "promised": limit, "kept": kept, "note": note}
        self._keep(line if was is None else {**line, "last": was})

    def _keep(self, line: dict[str, Any]) -> None:
        self._lines.append(line)
        self._write(ended=False)

    def _end(self) -> None:
        """At the end of the program, however it comes about: whether it was by an error is what Python remembers."""
        self._write(ended=not hasattr(sys, "last_value"))

    def _write(self, *, ended: bool) -> None:
        measured = {line["what"] for line in self._lines}
        missing = [line for what, line in self._before.items() if not ended and what not in measured]
        _write(self._file, ended=ended, took_s=time.monotonic() - self._begun_s, lines=self._lines + missing)


def _lines(file: Path) -> list[dict[str, Any]]:
    return list(json.loads(file.read_text())["lines"]) if file.exists() else []


def _not_measured(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of promises, with what was last measured of each."""
    kept = ("what", "unit", "promised")
    return [
        {name: line[name] for name in kept} | {"last": line.get("value", line.get("last"))}
        for line in lines
        if "promised" in line
    ]


def _write(file: Path, *, ended: bool, took_s: float, lines: list[dict[str, Any]]) -> None:
    found = {"ended": ended, "seconds": round(took_s, 1), "environment": _environment.here(), "lines": lines}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(found, indent=1) + "\n")
