"""What a process does beside its callers' work: compacts branches that have become slow, and cleans up behind them.

All of it may be done by several processes at once, or by none for a while.
"""

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from esker.engine import compaction, repositories, sensor
from esker.engine.cleaning import clean_now_and_then
from esker.engine.lake import Lake
from esker.engine.sensor import Due
from esker.errors import EskerError

_ROUND_S: Final = 30.0
"""Between looks at what there may be to clean. Compaction starts when the Sensor notices."""

_LOG: Final = logging.getLogger("esker.background")


class Background:
    """A thread for it; stopping it waits until what is under way is done. With `look_first` it begins with what former
    processes left, at the cost of a look at every branch."""

    def __init__(self, lake: Lake, *, look_first: bool = False) -> None:
        self._lake = lake
        self._look_first = look_first
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="esker-background", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        sensor.of(self._lake).noticed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        noticed = sensor.of(self._lake).noticed
        while not self._stopped:
            if self._look_first:
                self._look_first = not _done("looking for branches to compact", lambda: look_at_all(self._lake))
            work(self._lake)
            if not self._stopped:
                noticed.wait(_ROUND_S)


def look_at_all(lake: Lake) -> None:
    """Have the Sensor look at every branch on which anything is staged, and clean everywhere: a former process may have
    left some."""
    for repo in repositories.every(lake):
        clean_now_and_then(lake, repo)
        for name, record in lake.branches(repo).page("", 1000):
            if not record.clean:
                sensor.of(lake).look_at(repo, name)


def work(lake: Lake) -> None:
    """Compact what is due, and clean where it is time. What could not be compacted now is looked at again later."""
    for due in sensor.of(lake).take():
        if not _done(f"compacting {due.branch!r} of {due.repo.name!r}", partial(_compact, lake, due)):
            sensor.of(lake).look_at_later(due)
    for cleaner in list(lake.cleaners.values()):
        _done(f"cleaning {cleaner.repo.name!r}", partial(clean_now_and_then, lake, cleaner.repo))


def _compact(lake: Lake, due: Due) -> None:
    record = lake.branches(due.repo).find(due.branch)
    how = record and sensor.of(lake).verdict(due.repo, due.branch, record)
    if how and not compaction.compact(lake, due.repo, due.branch, how):
        sensor.of(lake).look_at_later(due)  # somebody is at it, or died over it


def _done(what: str, work: Callable[[], object]) -> bool:
    """Whether it went well. Else it is logged: a thread that ended would be missed by nobody."""
    try:
        work()
    except EskerError as error:
        _LOG.warning("%s: %s", what, error)
        return False
    except Exception:  # noqa: BLE001 - whatever it was, the next is another matter
        _LOG.exception("%s: a mistake of ours", what)
        return False
    return True
