"""Steps of long work, done by executors, while the driver gives signs of life."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from esker.errors import EskerError
from esker.world import REAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BEAT_S: Final = 1.0
_TASKS_A_CORE: Final = 2
"""So that one slow task does not leave a core idle for long."""

A = TypeVar("A")
B = TypeVar("B")


class Counter(Protocol):
    """Spark's accumulator."""

    @property
    def value(self) -> int: ...
    def add(self, term: int) -> None: ...


class OnSpark:
    """Has steps done by executors. `what` is what Spark's own displays call the work. A task for each thing, or where
    things may be `small`, for some."""

    def __init__(self, spark: "SparkSession", what: str, *, small: bool = False) -> None:
        self._context = spark.sparkContext
        self._what = what
        self._small = small
        self.parallel = _TASKS_A_CORE * self._context.defaultParallelism

    def __call__(self, step: Callable[[A], B], things: Sequence[A], beat: Callable[[], None]) -> Iterator[B]:
        """What `step` makes of each thing, in order, once all are done. `beat` is called every second; what it raises
        ends the work. An error of ours that a step raises is raised here, as it was."""
        if not things:
            return
        tasks = min(len(things), 2 * self.parallel) if self._small else len(things)

        def work() -> list[B | EskerError]:
            return self._context.parallelize(things, tasks).map(partial(_told, step)).collect()

        for one in self.watch(work, _name(step), beat):
            if isinstance(one, EskerError):
                raise one
            yield one

    def watch(self, work: Callable[[], A], name: str, beat: Callable[[], None]) -> A:
        """What `work` returns, which runs jobs of Spark's."""
        group = f"esker-{REAL.token(8)}"

        def grouped() -> A:
            self._context.setJobGroup(group, f"{self._what}: {name}", interruptOnCancel=True)  # of this thread
            return work()

        with ThreadPoolExecutor(1, thread_name_prefix="esker-spark") as pool:
            waiting = pool.submit(grouped)
            try:
                while True:
                    try:
                        return waiting.result(timeout=_BEAT_S)
                    except Late:
                        if waiting.done():
                            raise  # the work's own
                        beat()
            except BaseException:
                self._context.cancelJobGroup(group)
                raise


def _told(step: Callable[[A], B], thing: A) -> B | EskerError:
    """What a step returns or raises: as an error of a task, Spark would tell of it in words alone."""
    try:
        return step(thing)
    except EskerError as error:
        return error


def _name(step: Callable[[A], B]) -> str:
    function = step.func if isinstance(step, partial) else step
    return function.__name__.strip("_").replace("_", " ")
