"""How benchmarks measure and print: the best of a few runs, ratios within one run, a verdict against each promise."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def seconds(work: Callable[[], T], repeat: int = 3) -> tuple[float, T]:
    """The shortest of `repeat` runs: on a noisy machine, the one least disturbed. And what the last one returned."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


class Report:
    """A table of measures, each with what was promised of it."""

    def __init__(self) -> None:
        self.missed = 0

    def at_most(self, what: str, value: float, limit: float, unit: str = "x", note: str = "") -> None:
        self._line(what, value, f"<= {limit:g}", unit, value <= limit, note)

    def at_least(self, what: str, value: float, limit: float, unit: str = "x", note: str = "") -> None:
        self._line(what, value, f">= {limit:g}", unit, value >= limit, note)

    def note(self, what: str, text: str) -> None:
        print(f"  {what:<52} {text}", flush=True)

    def _line(self, what: str, value: float, limit: str, unit: str, kept: bool, note: str) -> None:
        self.missed += not kept
        verdict = "ok" if kept else "MISSED"
        print(f"  {what:<52} {value:>9.3g} {unit:<4} ({limit} {unit}) {verdict:<6} {note}", flush=True)
