"""Processes that put and commit until they are killed: `python -m tests.engine.killed <directory> <rounds>`.

One interpreter starts, and forks workers: three that write, one that commits and cleans. Each says on the pipe what it
tries, and what was acknowledged; lines are short, so a kill cuts none in half. After some milliseconds all are killed.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Final, NoReturn

from esker.engine import commit, entries, repositories
from esker.engine.cleaning import Cleaner
from esker.errors import EskerError, Kind
from esker.stores.blob_local import LocalBlobs
from esker.stores.kv_sqlite import SQLiteKV
from tests.engine.lakes import entry, open_lake

WRITERS: Final = 3
WORKERS: Final = WRITERS + 1
NAME: Final = "killed"


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def write(directory: Path, worker: int, number: int) -> NoReturn:
    """Numbers go up, so the larger content is the later. Paths under `d/` are deleted, too."""
    lake = open_lake(SQLiteKV(directory / "kv.db"), LocalBlobs(directory / "blobs"))
    repo = repositories.get(lake, NAME)
    while True:
        number += 1
        path = f"{'pd'[number % 2]}/{worker}/{number % 7}"
        if number % 10 == 1:
            say("try", path, -number)
            entries.delete(lake, repo, "main", path)
            say("done", path, -number)
        elif number % 50 == 3:
            say("try", path, -number)
            entries.delete_prefix(lake, repo, "main", path)
            say("done", path, -number)
        else:
            say("try", path, number)
            entries.put(lake, repo, "main", entry(path, number), if_absent=False)
            say("done", path, number)


def commit_all(directory: Path) -> NoReturn:
    lake = open_lake(SQLiteKV(directory / "kv.db"), LocalBlobs(directory / "blobs"))
    repo = repositories.get(lake, NAME)
    cleaner = Cleaner(lake, repo)
    while True:
        say("commit")
        try:
            say("committed", commit.commit(lake, repo, "main", "m"))
        except EskerError as error:
            if error.kind is not Kind.NO_CHANGES:
                raise
            say("nothing")
        cleaner.run()


def main(directory: Path, rounds: int) -> None:
    dice = random.Random(rounds)
    for turn in range(rounds):
        workers = []
        for worker in range(WORKERS):
            if (child := os.fork()) == 0:
                try:
                    if worker < WRITERS:
                        write(directory, worker, turn * 100_000)
                    commit_all(directory)
                except BaseException as error:  # noqa: BLE001 - told to the test
                    say("failed", repr(error).replace("\n", " ")[:3000])
                finally:
                    os._exit(1)
            workers.append(child)
        time.sleep(0.03 + dice.random() * 0.3)
        for child in dice.sample(workers, WORKERS):
            os.kill(child, signal.SIGKILL)
        for child in workers:
            _, status = os.waitpid(child, 0)
            say("killed" if os.WIFSIGNALED(status) else "ended")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
