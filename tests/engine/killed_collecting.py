"""A garbage collection that is killed: `python -m tests.engine.killed_collecting <directory> <deletes> <ahead>`.

It deletes so many files, its own aside, and then kills its own process; its clock is so many seconds ahead.
"""

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

from esker.engine import garbage, repositories
from esker.stores.blob import BlobInfo
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


class Dated(LocalBlobs):
    """Tells the time by the clock that is ahead."""

    def __init__(self, root: Path, world: Ahead) -> None:
        super().__init__(root)
        self._ahead = world

    def head(self, name: str) -> BlobInfo | None:
        found = super().head(name)
        return found and found._replace(mtime_ms=found.mtime_ms + int(self._ahead.more_s * 1000))


class Deadly(Dated):
    left = 0

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            super().delete([name])
            self.left -= not name.startswith("_esker/gc/")
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    world = Ahead(float(sys.argv[3]))
    blobs = Deadly(directory / "blobs", world)
    lake = open_lake(SQLiteKV(directory / "kv.db"), blobs, AT_ONCE, world)
    blobs.left = int(sys.argv[2])
    garbage.collect(lake, repositories.get(lake, NAME), grace_s=GRACE_S)
