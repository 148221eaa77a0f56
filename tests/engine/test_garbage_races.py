"""Garbage collection beside everything else: threads that write, commit, merge, compact and read while it runs, again
and again, and time that passes in leaps. No operation sees a leap, as none takes half the grace time."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pytest

from esker.engine import entries, garbage
from esker.engine.cleaning import Cleaner
from esker.errors import EskerError
from esker.model import Entry
from esker.settings import Settings
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.kv_memory import MemoryKV
from tests.engine.lakes import Clock, new_setup
from tests.engine.worn import BRANCHES, GRACE_S, PATHS, files, live_through, reachable

WRITERS: Final = 3
COLLECTIONS: Final = 12
OPERATIONS: Final = 25
"""Between two leaps, at least."""

PAUSE_S: Final = 0.005
"""Between two operations of a writer, so that the collector gets its turn."""


class Leaping(Clock):
    """Time stands still within an operation, and leaps between two. All threads draw from one well of ids."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()
        self._at_work = 0
        self._done = 0
        self._leaping = False

    @contextmanager
    def within(self) -> Iterator[None]:
        """One operation."""
        with self._changed:
            self._changed.wait_for(lambda: not self._leaping)
            self._at_work += 1
        try:
            yield
        finally:
            with self._changed:
                self._at_work -= 1
                self._done += 1
                self._changed.notify_all()

    def leap(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._done >= OPERATIONS)
            self._done = 0
            self._leaping = True
            self._changed.wait_for(lambda: not self._at_work)
            self.ms += int(seconds * 1000)
            self.passed_s += seconds
            self._leaping = False
            self._changed.notify_all()


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_anybody_can_reach_goes_while_all_work_at_once(seed: int) -> None:
    clock = Leaping()
    setup = new_setup(MemoryKV(), MemoryBlobs(clock), Settings(grace_s=GRACE_S / 10), clock)
    lakes = [setup.again() for _ in range(WRITERS)]
    failures: list[BaseException] = []
    deleted: list[int] = []
    done, enough = threading.Event(), threading.Event()

    def write(number: int) -> None:
        dice, lake = random.Random(f"{seed} {number}"), lakes[number]
        seen: list[tuple[int, Entry]] = []
        while not enough.is_set():
            with clock.within():
                with suppress(EskerError):  # there is no such branch, say
                    live_through(lake, setup.repo, dice)
                read(number, dice, seen)
            time.sleep(PAUSE_S)

    def read(number: int, dice: random.Random, seen: list[tuple[int, Entry]]) -> None:
        """What a branch shows is there; and so is, for half the grace time, what it showed."""
        lake, blobs = lakes[number], setup.blobs
        for _ in range(3):
            with suppress(EskerError):
                found = entries.get(lake, setup.repo, dice.choice(BRANCHES), dice.choice(PATHS))
                seen.append((clock.ms, found))
        seen[:] = [(at, entry) for at, entry in seen if clock.ms - at < GRACE_S * 500]
        for _, entry in seen:
            assert blobs.head(entry.address), f"{entry} was shown, and is gone"

    def clean() -> None:
        cleaner = Cleaner(setup.lake, setup.repo)
        while not done.is_set():
            with clock.within(), suppress(EskerError):
                cleaner.run()
            done.wait(0.01)

    def collect() -> None:
        dice = random.Random(seed)
        while len(deleted) < COLLECTIONS and not failures:
            clock.leap(dice.choice([0.1, 0.4, 1.1]) * GRACE_S)
            deleted.append(garbage.collect(setup.again(), setup.repo, grace_s=GRACE_S).deleted)
        enough.set()

    def told(work: Callable[..., None], *arguments: object) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            failures.append(error)
            enough.set()

    writers = [threading.Thread(target=told, args=(write, number)) for number in range(WRITERS)]
    others = [threading.Thread(target=told, args=(work,)) for work in (collect, clean)]
    for thread in (*writers, *others):
        thread.start()
    for writer in writers:
        writer.join()
    done.set()
    for thread in others:
        thread.join()
    if failures:
        raise failures[0]
    assert sum(deleted) > 0
    lake = setup.again()
    assert reachable(lake, setup.repo) <= files(lake, setup.repo)
    cleaner = Cleaner(lake, setup.repo)
    for _ in range(3):
        clock.ms += int((GRACE_S + 1) * 1000)
        clock.passed_s += GRACE_S + 1
        while cleaner.run():
            pass
        report = garbage.collect(lake, setup.repo, grace_s=GRACE_S)
    assert report.dead == 0
    assert files(lake, setup.repo) == reachable(lake, setup.repo)
