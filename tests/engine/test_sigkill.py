"""Processes that write, commit, compact and clean are killed, some hundreds of times. Nothing acknowledged is lost."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

from esker.engine import branches, commit, repositories
from esker.engine.cleaning import Cleaner
from esker.errors import Kind
from esker.stores.blob_local import LocalBlobs
from esker.stores.kv_sqlite import SQLiteKV
from esker.tree.cutting import Cutting
from tests.engine.killed import NAME, WORKERS
from tests.engine.lakes import committed, contents, history_of, kind_of, open_lake

ROUNDS: Final = 75
"""Five processes are killed in each."""


def test_no_acknowledged_write_or_commit_is_lost_to_kills(tmp_path: Path) -> None:
    lake = open_lake(SQLiteKV(tmp_path / "kv.db"), LocalBlobs(tmp_path / "blobs"))
    repo = repositories.create(lake, NAME, "memory://killed", cutting=Cutting(entries_mean=8, entries_max=20))
    lake.kv.close()
    command = [sys.executable, "-m", "tests.engine.killed", str(tmp_path), str(ROUNDS)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert not [line for line in lines if line[0] == "failed"]
    assert sum(line == ["killed"] for line in lines) == ROUNDS * WORKERS

    # What each path may hold: the last acknowledged, or anything tried since.
    possible: dict[str, list[int]] = defaultdict(lambda: [0])
    before: dict[str, int] = {}
    acknowledged: dict[str, int] = {}
    commits: dict[str, dict[str, int]] = {}
    for line in lines:
        match line:
            case ["try", path, number]:
                possible[path].append(int(number))
            case ["done", path, number]:
                possible[path] = [int(number)]
                acknowledged[path] = int(number)
            case ["commit"]:
                before = {**acknowledged}
            case ["committed", name]:
                commits[name] = before
    lake = open_lake(SQLiteKV(tmp_path / "kv.db"), LocalBlobs(tmp_path / "blobs"))
    shown = contents(lake, repo, "main")
    for path, numbers in possible.items():
        if path in shown:
            assert int(shown[path]) in numbers, path
        else:
            assert min(numbers) <= 0, path
    assert set(shown) <= set(possible)
    assert len(acknowledged) > 20, "they came to write"
    assert len(commits) > ROUNDS / 10, "and to commit"
    assert lines.count(["compacted"]) > ROUNDS / 10, "and to compact"

    history = [*history_of(lake, repo)]
    assert set(commits) <= set(history), "every commit is in the history, once"
    assert len(set(history)) == len(history)
    for name in history:
        held = {path: int(found.checksum) for path, found in committed(lake, repo, name).items()}
        for path, told in commits.get(name, {}).items():
            if path.startswith("p/") and told > 0:
                assert held[path] >= told, "a commit holds what was acknowledged before it began"

    assert kind_of(lambda: commit.commit(lake, repo, "main", "after")) in (None, Kind.NO_CHANGES)
    assert contents(lake, repo, "main@") == shown
    assert [name for name, _ in branches.every(lake, repo)] == ["main"]
    cleaner = Cleaner(lake, repo)
    while cleaner.run():
        pass
    assert not lake.branches(repo).get("main").dropped
    assert not lake.kv.scan(f"cleanup/{repo.uid}")
    lake.kv.close()
