"""What is being done, and what that takes: a request, or a verb in the background, with its steps and its calls of the
stores. From it come traces and the log of slow operations.

An activity belongs to the context that began it; work that the pool does for it is its own too (`Pool`). Nothing is
noted unless this process watches, and then it costs some hundred nanoseconds a step. What is noted never holds a path,
a query or a secret.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from esker.errors import ContentionError, Kind
from esker.world import REAL

P = ParamSpec("P")
T = TypeVar("T")

STEPS_MAX: Final = 256
"""Noted of an activity: a verb that tries again and again takes more, and those are only counted."""


OPERATION_MS_MAX: Final = 24 * 3600 * 1000
"""No operation takes longer. What it wrote, and nothing names yet, is garbage to a collector before long."""

_since: Final[ContextVar[int | None]] = ContextVar("since", default=None)


class Step:
    """A part of an activity, or all of it."""

    __slots__ = ("attributes", "begun_s", "failed", "name", "parent", "took_s")

    def __init__(self, name: str, parent: "Step | None", begun_s: float) -> None:
        self.name = name
        self.parent = parent
        self.begun_s = begun_s
        self.took_s = 0.0
        self.failed = ""
        """The class of the error that it ended with."""
        self.attributes: dict[str, str | int | float] = {}


class Activity:
    """Counts may lose a little when several threads of the pool count at once: nothing depends on them."""

    __slots__ = ("begun_ms", "calls", "came_with", "seconds", "steps", "steps_left_out", "whole")

    def __init__(self, name: str) -> None:
        self.whole = Step(name, None, REAL.monotonic_s())
        self.begun_ms = REAL.now_ms()
        self.came_with: dict[str, str] = {}
        """The caller's trace context."""
        self.steps: list[Step] = []
        """In the order of their beginnings, without the whole."""
        self.steps_left_out = 0
        self.calls: dict[str, int] = {}
        """By what was called, or moved: `kv_reads`, `blob_bytes_read`, `ranges_read`, ..."""
        self.seconds: dict[str, float] = {}
        """By store; of several threads, added up."""


class Watcher(Protocol):
    """Who is told of every activity when it has ended."""

    def ended(self, activity: Activity) -> str:
        """What goes back to the caller as `traceresponse`, if it is traced."""


_current: Final[ContextVar[tuple[Activity, Step] | None]] = ContextVar("activity", default=None)
_watchers: Final[list[Watcher]] = []
"""At most one: this process's."""


def watch(watcher: Watcher | None) -> None:
    """Have this process watch, or no longer."""
    _watchers[:] = [watcher] if watcher else []


def begin(name: str) -> Activity | None:
    """An activity that lasts until `end`, in this context. None if nobody watches."""
    if not _watchers:
        return None
    made = Activity(name)
    _current.set((made, made.whole))
    return made


def end(activity: Activity, failed: str = "") -> str:
    """Tell the watcher: what it answered."""
    _current.set(None)
    activity.whole.took_s = REAL.monotonic_s() - activity.whole.begun_s
    activity.whole.failed = failed
    return _watchers[0].ended(activity) if _watchers else ""


def dropped() -> None:
    """Nobody is to be told of what this context is doing."""
    _current.set(None)


def current() -> Activity | None:
    """What this context is doing."""
    found = _current.get()
    return found[0] if found else None


def count(what: str, n: int = 1) -> None:
    """Something was called, or moved, by what this context is doing."""
    if found := _current.get():
        activity, at = found
        activity.calls[what] = activity.calls.get(what, 0) + n
        if at is not activity.whole:
            at.attributes[what] = int(at.attributes.get(what, 0)) + n


def timed(where: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """For functions whose time is spent in a store."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def run(*given: P.args, **named: P.kwargs) -> T:
            if (found := _current.get()) is None:
                return function(*given, **named)
            begun_s = REAL.monotonic_s()
            try:
                return function(*given, **named)
            finally:
                seconds = found[0].seconds
                seconds[where] = seconds.get(where, 0.0) + REAL.monotonic_s() - begun_s

        return run

    return decorate


class step:  # noqa: N801  # reads as a verb where it is used
    """A step of what this context is doing: a block, or a function. Nothing, if it is doing nothing."""

    __slots__ = ("_attributes", "_before", "_name", "_step")

    def __init__(self, name: str, **attributes: str | int) -> None:
        self._name = name
        self._attributes = attributes
        self._step: Step | None = None
        self._before: Any = None

    def __enter__(self) -> "step":
        found = _current.get()
        if found is None:
            return self
        activity, parent = found
        if len(activity.steps) >= STEPS_MAX:
            activity.steps_left_out += 1
            return self
        self._step = Step(self._name, parent, REAL.monotonic_s())
        self._step.attributes.update(self._attributes)
        activity.steps.append(self._step)
        self._before = _current.set((activity, self._step))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._step is not None:
            _current.reset(self._before)
            self._step.took_s = REAL.monotonic_s() - self._step.begun_s
            self._step.failed = kind.__name__ if kind else ""

    def note(self, **attributes: str | int | float) -> None:
        """Add to what is told of the step."""
        if self._step is not None:
            self._step.attributes.update(attributes)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        name, attributes = self._name, self._attributes

        @wraps(function)
        def run(*given: P.args, **named: P.kwargs) -> T:
            if _current.get() is None:
                return function(*given, **named)
            with step(name, **attributes):
                return function(*given, **named)

        return run


class verb:  # noqa: N801  # as `step`
    """A step if this context is doing something, else an activity of its own: a block."""

    __slots__ = ("_activity", "_attributes", "_step")

    def __init__(self, name: str, **attributes: str | int) -> None:
        self._attributes = attributes
        self._step = step(name, **attributes)
        self._activity: Activity | None = None

    def __enter__(self) -> None:
        if _watchers and _current.get() is None:
            self._activity = begin(self._step._name)
            if self._activity:
                self._activity.whole.attributes.update(self._attributes)
        else:
            self._step.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._activity:
            end(self._activity, kind.__name__ if kind else "")
        else:
            self._step.__exit__(kind, error, trace)


@contextmanager
def since(begun_ms: int) -> Iterator[None]:
    """What is done inside began then, or with what it is part of if that began before."""
    outside = _since.set(began_ms(begun_ms))
    try:
        yield
    finally:
        _since.reset(outside)


@contextmanager
def anew() -> Iterator[None]:
    """What is done inside begins only now: it uses nothing that was written before."""
    outside = _since.set(None)
    try:
        yield
    finally:
        _since.reset(outside)


def began_ms(at_most_ms: int) -> int:
    """When what this context is doing began; at the latest, then."""
    begun_ms = _since.get()
    return at_most_ms if begun_ms is None else min(begun_ms, at_most_ms)


def check_age(now_ms: int) -> None:
    """ContentionError if what this context is doing began too long ago to be finished."""
    if now_ms - began_ms(now_ms) > OPERATION_MS_MAX:
        raise ContentionError(
            Kind.CONTENTION, "this was begun more than a day ago, and what it wrote may be gone by now: begin again"
        )


class Pool(ThreadPoolExecutor):
    """Works for the activity of whoever submits. Tells `on_queued` how many more are in it, `on_busy` how many more are
    worked on."""

    def __init__(
        self, threads: int, *, on_queued: Callable[[int], object], on_busy: Callable[[int], object], name: str
    ) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self._on_queued = on_queued
        self._on_busy = on_busy

    def submit(self, fn: Callable[P, T], /, *given: P.args, **named: P.kwargs) -> "Future[T]":
        future = super().submit(self._work, _current.get(), fn, *given, **named)
        self._on_queued(1)
        future.add_done_callback(self._left)
        return future

    def _work(
        self, doing: tuple[Activity, Step] | None, run: Callable[P, T], /, *given: P.args, **named: P.kwargs
    ) -> T:
        self._on_busy(1)
        _current.set(doing)  # and nothing else of the context: what is written behind it, say, is its own
        try:
            return run(*given, **named)
        finally:
            _current.set(None)
            self._on_busy(-1)

    def _left(self, _: object) -> None:
        self._on_queued(-1)
