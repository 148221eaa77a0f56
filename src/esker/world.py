"""Time, identity and chance, injected: the only module that touches the real ones.

Code that wants the time, a fresh id or a random pause takes a `World`. The simulator passes its own, and a seed then
decides everything; ruff's banned-api holds the rest of the package to it.
"""

import os
import random
import threading
import time
from typing import Protocol


class Event(Protocol):
    """As of `threading`."""

    def set(self) -> None: ...
    def clear(self) -> None: ...
    def wait(self, timeout: float | None = None) -> object: ...


class World(Protocol):
    """What code may know about the world outside its arguments."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch. Advice only: nothing safe may depend on it."""

    def monotonic_s(self) -> float:
        """A clock of this process that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def token(self, n_bytes: int) -> str:
        """Fresh hexadecimal text of `n_bytes` unpredictable bytes: never the same twice."""

    def chance(self) -> float:
        """A number in [0, 1): for spreading retries, never for ids."""

    def event(self) -> Event:
        """Something to wait for that somebody else sets."""


class RealWorld:
    """The machine's clocks and the kernel's randomness."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(time.monotonic)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def token(self, n_bytes: int) -> str:
        return os.urandom(n_bytes).hex()

    def chance(self) -> float:
        return random.random()

    def event(self) -> Event:
        return threading.Event()


REAL = RealWorld()
