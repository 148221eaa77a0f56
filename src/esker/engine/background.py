"""What a process does beside its callers' work: compacts branches that have become slow, and cleans up behind them.

All of it may be done by several processes at once, or by none for a while.
"""

import logging
import threading
from typing import Final

from esker.engine import compaction, repositories, sensor
from esker.engine.cleaning import clean_now_and_then
from esker.engine.lake import Lake
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
        if self._look_first:
            try:
                look_at_all(self._lake)
            except EskerError as error:
                _LOG.warning("looking for branches to compact: %s", error)
        while not self._stopped:
            noticed.wait(_ROUND_S)
            if not self._stopped:
                work(self._lake)


def look_at_all(lake: Lake) -> None:
    """Have the Sensor look at every branch on which anything is staged: a former process may have left some."""
    for repo in repositories.every(lake):
        for name, record in lake.branches(repo).page("", 1000):
            if not record.clean:
                sensor.of(lake).look_at(repo, name)


def work(lake: Lake) -> None:
    """Compact what is due, and clean where it is time."""
    for due in sensor.of(lake).take():
        try:
            record = lake.branches(due.repo).find(due.branch)
            how = record and sensor.of(lake).verdict(due.repo, due.branch, record)
            if how:
                compaction.compact(lake, due.repo, due.branch, how)
            clean_now_and_then(lake, due.repo)
        except EskerError as error:
            _LOG.warning("compacting %r of %r: %s", due.branch, due.repo.name, error)
    for cleaner in list(lake.cleaners.values()):
        clean_now_and_then(lake, cleaner.repo)
