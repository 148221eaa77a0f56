"""Work that threads share: what is asked for while a run is under way goes into the next one, together.

Whoever comes to a quiet line runs at once, alone; nobody waits for company. The thread that leads runs for all that
wait, and names the next leader, so at most one run of a line is under way, and no thread of its own is needed.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from esker.errors import EskerError, Kind, UnavailableError

RUN_MAX: Final = 500
"""In one run: bounds how long it keeps others waiting."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")


class _Ask(Generic[T, R]):
    def __init__(self, item: T) -> None:
        self.item = item
        self.result: R
        self.done = False
        self.error: EskerError | None = None
        self.wake = threading.Lock()  # released when it is done, or when its thread is to lead
        self.wake.acquire()


class _Line(Generic[T, R]):
    def __init__(self) -> None:
        self.waiting: list[_Ask[T, R]] = []
        self.leader: _Ask[T, R] | None = None


class Together(Generic[K, T, R]):
    """`run` takes a line's key and what was asked for, in order, and gives what all of them get. If it raises an error
    of ours, so do all."""

    def __init__(self, run: Callable[[K, Sequence[T]], R]) -> None:
        self._run = run
        self._mutex = threading.Lock()  # over lines, and all that is in them
        self._lines: dict[K, _Line[T, R]] = {}

    def ask(self, key: K, item: T) -> R:
        ask = _Ask[T, R](item)
        with self._mutex:
            line = self._lines.setdefault(key, _Line())
            line.waiting.append(ask)
            leads = line.leader is None
            if leads:
                line.leader = ask
        try:
            if not leads:
                ask.wake.acquire()
            if not ask.done:
                self._lead(key, line)
        finally:
            self._leave(key, line, ask)
        if ask.error is not None:
            raise type(ask.error)(ask.error.kind, ask.error.message) from ask.error
        return ask.result

    def _lead(self, key: K, line: _Line[T, R]) -> None:
        """All that are taken along are answered, whatever is raised here: an exception that is no error of ours goes on
        to the leader's caller."""
        with self._mutex:
            group, line.waiting = line.waiting[:RUN_MAX], line.waiting[RUN_MAX:]
        error: EskerError | None = UnavailableError(Kind.STORE_UNAVAILABLE, "a write was interrupted")
        try:
            result = self._run(key, [ask.item for ask in group])
            for ask in group:
                ask.result = result
            error = None
        except EskerError as cause:
            error = cause
        finally:
            for ask in group:
                ask.error, ask.done = error, True
                if ask is not line.leader:
                    ask.wake.release()

    def _leave(self, key: K, line: _Line[T, R], ask: _Ask[T, R]) -> None:
        """Name the next leader, if `ask` led. Holds also where an interrupt cut its waiting short."""
        with self._mutex:
            if not ask.done and ask in line.waiting:
                line.waiting.remove(ask)
            if line.leader is ask:
                line.leader = line.waiting[0] if line.waiting else None
                if line.leader is not None:
                    line.leader.wake.release()
                else:
                    self._lines.pop(key, None)
