"""Processes that put and commit until they are killed: `python -m tests.engine.killed <directory> <rounds>`.

One interpreter starts, and forks workers: three that write, one that commits and cleans, one that compacts. Each says
on the pipe what it tries, and what was acknowledged; lines are short, so a kill cuts none in half. After some
milliseconds all are killed.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, NoReturn

from esker.engine import commit, compaction, entries, repositories
from esker.engine.cleaning import Cleaner
from esker.engine.lake import Lake
from esker.engine.policy import Compaction
from esker.errors import ContentionError, EskerError, Kind
from esker.model import Repository, Staging
from esker.settings import Settings
from esker.stores.blob_local import LocalBlobs
from esker.stores.kv_sqlite import SQLiteKV
from tests.engine.lakes import AT_ONCE, entry, open_lake

WRITERS: Final = 3
"""The first of them through the memstore, with some threads."""

THREADS: Final = 4
WORKERS: Final = WRITERS + 2
NAME: Final = "killed"

OVERTAKEN: Final = Kind.CONTENTION
"""Files are cleaned away at once here, those that another folds too: it says so, and has changed nothing."""


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def opened(directory: Path, settings: Settings = AT_ONCE) -> tuple[Lake, Repository]:
    lake = open_lake(SQLiteKV(directory / "kv.db"), LocalBlobs(directory / "blobs"), settings)
    return lake, repositories.get(lake, NAME)


def write_together(directory: Path, worker: int, number: int) -> None:
    """Several threads, through the memstore, with pauses: each write may become a layer."""
    lake, repo = opened(directory, Settings(staging=Staging.LSM, grace_s=0.0, memstore_wait_ms=2))
    with ThreadPoolExecutor(THREADS) as pool:
        for writer in [pool.submit(write, lake, repo, f"{worker}{n}", number, 0.03) for n in range(THREADS)]:
            writer.result()


def write_alone(directory: Path, worker: int, number: int) -> None:
    write(*opened(directory), str(worker), number)


def write(lake: Lake, repo: Repository, worker: str, number: int, pause_s: float = 0.0) -> NoReturn:
    """Numbers go up, so the larger content is the later. Paths under `d/` are deleted, too."""
    while True:
        time.sleep(pause_s)
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


def commit_all(directory: Path, times: float = inf) -> None:
    lake, repo = opened(directory)
    cleaner = Cleaner(lake, repo)
    while times > 0:
        times -= 1
        say("commit")
        try:
            say("committed", commit.commit(lake, repo, "main", "m"))
        except EskerError as error:
            if error.kind not in (Kind.NO_CHANGES, OVERTAKEN):
                raise
            say("nothing")
        cleaner.run()


def compact_all(directory: Path) -> None:
    lake, repo = opened(directory)
    while True:
        for how in (Compaction.MINOR, Compaction.MINOR, Compaction.MAJOR):
            with suppress(ContentionError):
                if compaction.compact(lake, repo, "main", how, force=True):
                    say("compacted")
            time.sleep(0.04)  # forced, it makes a commit that is under way fold again


def fork(work: Callable[[], None]) -> int:
    if (child := os.fork()) == 0:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the test
            say("failed", repr(error).replace("\n", " ")[:3000])
        finally:
            os._exit(1)
    return child


def main(directory: Path, rounds: int) -> None:
    dice = random.Random(rounds)
    for turn in range(rounds):
        number = turn * 100_000
        works = [
            partial(write_together, directory, 0, number),
            *(partial(write_alone, directory, worker, number) for worker in range(1, WRITERS)),
            partial(commit_all, directory),
            partial(compact_all, directory),
        ]
        workers = [fork(work) for work in works]
        time.sleep(0.03 + dice.random() * 0.3)
        for child in dice.sample(workers, WORKERS):
            os.kill(child, signal.SIGKILL)
        for child in workers:
            _, status = os.waitpid(child, 0)
            say("killed" if os.WIFSIGNALED(status) else "ended")
        if turn % 4 == 3:  # on a slow machine, nobody lives long enough to commit what piled up
            os.waitpid(fork(partial(commit_all, directory, 1)), 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
