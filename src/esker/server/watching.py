"""What a server makes of what was done: lines of the slow-operation log, and traces."""

from collections import defaultdict
from typing import Final, Protocol

from esker.activity import Activity, Step
from esker.server.logs import Requests

_STEPS_TOLD_MAX: Final = 20
"""In a line: of those with equal names, all together; the longest ones."""


class Traces(Protocol):
    """Where traces go."""

    def export(self, activity: Activity) -> tuple[str, str]:
        """The id of its trace, and what tells the caller of it; both empty if it is not traced."""

    def close(self) -> None:
        """Send what is left."""


def traces_to(endpoint: str, ratio: float) -> Traces | None:
    """None, and nothing imported, if there is no endpoint."""
    if not endpoint:
        return None
    from esker.server.otlp import OTLP

    return OTLP(endpoint, ratio)


class Watching:
    """An `activity.Watcher`."""

    def __init__(self, slow_s: float, log: Requests, traces: Traces | None) -> None:
        self._slow_s = slow_s
        self._log = log
        self._traces = traces

    def ended(self, activity: Activity) -> str:
        trace, told = self._traces.export(activity) if self._traces else ("", "")
        if 0 < self._slow_s <= activity.whole.took_s:
            self._log.slow(activity, _times(activity), trace)
        return told


def _times(activity: Activity) -> dict[str, float]:
    """Milliseconds, by step, the longest first: `commit/fold` is a step of `commit`."""
    found: defaultdict[str, float] = defaultdict(float)
    names: dict[Step, str] = {activity.whole: ""}
    for step in activity.steps:
        above = names[step.parent] if step.parent else ""
        names[step] = f"{above}/{step.name}" if above else step.name
        found[names[step]] += step.took_s * 1000
    longest = sorted(found.items(), key=lambda item: -item[1])[:_STEPS_TOLD_MAX]
    return {name: round(took_ms, 3) for name, took_ms in longest}
