"""A collector that is killed in the sweep, again and again: each run goes on where the one before stopped."""

import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from esker.engine import garbage, repositories, tasks
from esker.engine.cleaning import Cleaner
from esker.engine.tasks import SILENT_MS, TaskState
from esker.errors import EskerError
from esker.stores.blob_local import LocalBlobs
from esker.stores.kv_sqlite import SQLiteKV
from tests.engine.killed_collecting import NAME, Ahead, Dated
from tests.engine.lakes import AT_ONCE, TINY, contents, open_lake
from tests.engine.worn import GRACE_S, files, live_through, reachable

STEPS = 150
EACH = 5
"""Deletes of a run, before it is killed."""


def test_what_a_killed_collector_left_the_next_one_takes(tmp_path: Path) -> None:
    world, dice = Ahead(0), random.Random(4)
    lake = open_lake(SQLiteKV(tmp_path / "kv.db"), Dated(tmp_path / "blobs", world), AT_ONCE, world)
    repo = repositories.create(lake, NAME, "memory://killed", cutting=TINY)
    for _ in range(STEPS):
        with suppress(EskerError):
            live_through(lake, repo, dice)
    cleaner = Cleaner(lake, repo)
    while cleaner.run():
        pass
    shown = contents(lake, repo, "main")
    world.more_s += GRACE_S + 10
    before = files(lake, repo)
    garbage.collect(lake, repo, grace_s=GRACE_S)
    assert files(lake, repo) == before
    world.more_s += GRACE_S + 10
    kills = 0
    while True:
        command = [sys.executable, "-m", "tests.engine.killed_collecting", str(tmp_path), str(EACH), str(world.more_s)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2])
        now = files(lake, repo)
        assert reachable(lake, repo) <= now <= before
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert now < before, "each gets further"
        before = now
        kills += 1
        assert kills < 50
    assert kills > 1
    assert files(lake, repo) == reachable(lake, repo)
    assert contents(open_lake(lake.kv, LocalBlobs(tmp_path / "blobs"), AT_ONCE, world), repo, "main") == shown
    world.more_s += SILENT_MS / 1000 + 1
    states = [task.state for task in tasks.every(lake, repo)]
    assert (states.count(TaskState.FAILED), states.count(TaskState.DONE)) == (kills, 2)
    lake.kv.close()
