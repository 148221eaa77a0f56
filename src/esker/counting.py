"""The metrics library, as all of esker has it.

Where processes share their metrics, as a server's workers do, the library keeps each value in a mapped file, and takes
one lock for all of them. A request adds to half a dozen values. Once two of dozens of threads have met at that lock,
each waits for it at every value, and gives up the interpreter every time: that took longer than all else. So what is
added waits, without a lock, until it is settled.
"""

import threading
from collections import deque
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry, Histogram, values
from prometheus_client import Counter as Counter
from prometheus_client import Gauge as Gauge

__all__ = ["REGISTRY", "CollectorRegistry", "Counter", "Gauge", "Histogram", "settle"]

_Value: Final[Any] = values.ValueClass
_waiting: Final[list["_Gathered"]] = []
_settling: Final = threading.Lock()


class _Gathered:
    """What the library calls a value. Adding to one is appending to a list, which threads may do at once."""

    _multiprocess = True

    def __init__(self, *given: Any, **named: Any) -> None:
        self._value = _Value(*given, **named)
        self._added: deque[float] = deque()
        _waiting.append(self)

    def inc(self, amount: float) -> None:
        self._added.append(amount)

    def set(self, value: float, timestamp: float | None = None) -> None:
        self._added.clear()
        self._value.set(value, timestamp)

    def get(self) -> float:
        settle()
        found: float = self._value.get()
        return found

    def settle(self) -> None:
        if count := len(self._added):
            self._value.inc(sum(self._added.popleft() for _ in range(count)))


def settle() -> None:
    """Add what waits, so that other processes see it."""
    with _settling:
        for value in [*_waiting]:
            value.settle()


if _Value._multiprocess:
    values.ValueClass = _Gathered
