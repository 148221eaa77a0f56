"""A garbage collection that is killed: `python -m tests.engine.killed_collecting <directory> <deletes> <ahead>`.

It deletes so many files, its own aside, and then kills its own process; its clock is so many seconds ahead.
"""

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from esker.engine import garbage, repositories
from esker.stores.blob_local import LocalBlobs
from esker.stores.kv_sqlite import SQLiteKV
from esker.world import RealWorld
from tests.engine.lakes import AT_ONCE, open_lake
from tests.engine.worn import GRACE_S

NAME = "worn"


class Ahead(RealWorld):
    def __init__(self, seconds: float) -> None:
        self.more_s = seconds

    def now_ms(self) -> int:
        return super().now_ms() + int(self.more_s * 1000)


class Deadly(LocalBlobs):
    left = 0

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            super().delete([name])
            self.left -= not name.startswith("_esker/gc/")
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    blobs = Deadly(directory / "blobs")
    lake = open_lake(SQLiteKV(directory / "kv.db"), blobs, AT_ONCE, Ahead(float(sys.argv[3])))
    blobs.left = int(sys.argv[2])
    garbage.collect(lake, repositories.get(lake, NAME), grace_s=GRACE_S)
