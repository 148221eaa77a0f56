"""The metrics library, as all of esker has it.

Where processes share their metrics, as a server's workers do, the library keeps each value in a mapped file, and takes
one lock for all of them. A request adds to half a dozen values. Once two of dozens of threads have met at that lock,
each waits for it at every value, and gives up the interpreter every time: that took longer than all else. So what such
a process adds to esker's own values waits, without a lock, until it is settled.
"""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry, Histogram, values
from prometheus_client import Counter as Counter
from prometheus_client import Gauge as Gauge

from esker.world import REAL

__all__ = ["REGISTRY", "CollectorRegistry", "Counter", "Gauge", "Histogram", "gather", "settle", "settled"]

SETTLE_S: Final = 0.1
"""Between two times that a process tells the others what it has counted."""

SETTLED_WITHIN_S: Final = 3.0
"""A process that is so busy that it has not got round to it by then is not waited for."""

_OURS: Final = ("esker_", "graveler_")
_STAMP: Final = "settled-"
_LOG: Final = logging.getLogger("esker.server")

_Value: Final[Any] = values.ValueClass
_gathered: Final[list["_Gathered"]] = []
_settling: Final = threading.Lock()
_gathers: Final = threading.Event()


class _Gathered:
    """What the library calls a value. Adding to one is appending to a list, which threads may do at once."""

    _multiprocess = True

    def __init__(self, *given: Any, **named: Any) -> None:
        self._value = _Value(*given, **named)
        self._added: deque[float] = deque()
        _gathered.append(self)

    def inc(self, amount: float) -> None:
        if _gathers.is_set():
            self._added.append(amount)
        else:
            self._value.inc(amount)

    def set(self, value: float, timestamp: float | None = None) -> None:
        with _settling:
            self._added.clear()
            self._value.set(value, timestamp)

    def settle(self) -> None:
        if count := len(self._added):
            self._value.inc(sum(self._added.popleft() for _ in range(count)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._value, name)


class _Values:
    """Makes the library's values: those of a program that esker is a part of are as they would be without it."""

    _multiprocess = True

    def __call__(self, kind: str, metric: str, *rest: Any, **named: Any) -> Any:
        make: Callable[..., Any] = _Gathered if metric.startswith(_OURS) else _Value
        return make(kind, metric, *rest, **named)


if _Value._multiprocess:
    values.ValueClass = _Values()


def gather(directory: Path) -> None:
    """From now on let what this process counts wait, and settle it all the time. Processes of one directory can tell
    when the others last did. None of them forks."""
    stamp = directory / f"{_STAMP}{os.getpid()}"
    stamp.touch()
    _gathers.set()
    threading.Thread(target=_settle, args=(stamp,), name="metrics", daemon=True).start()


def _settle(stamp: Path) -> None:
    while True:
        REAL.sleep(SETTLE_S)
        try:
            begun_s = REAL.monotonic_s()
            settle()
            stamp.write_text(f"{begun_s}", "utf-8")
        except OSError:
            if not stamp.parent.exists():
                return  # the server has stopped
            _LOG.exception("metrics could not be settled")


def settle() -> None:
    """Add what waits, so that other processes see it."""
    with _settling:
        for value in [*_gathered]:
            value.settle()


def settled(directory: Path) -> None:
    """Return when what the living processes of this directory counted before the call can be seen, or after
    `SETTLED_WITHIN_S`."""
    begun_s = REAL.monotonic_s()
    stamps = [file for file in directory.glob(f"{_STAMP}*") if Path("/proc", file.name.removeprefix(_STAMP)).exists()]
    while any(_when(file) < begun_s for file in stamps) and REAL.monotonic_s() < begun_s + SETTLED_WITHIN_S:
        REAL.sleep(SETTLE_S / 4)


def _when(stamp: Path) -> float:
    return float(stamp.read_text("utf-8") or 0)
