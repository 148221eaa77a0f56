"""The SQLite store: the port's promises, and what several processes, kills and full disks do to them."""

import mmap
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from esker.errors import CorruptError, InvalidError, Kind, OutcomeUnknownError, UnavailableError
from esker.stores import kv_sqlite
from esker.stores.kv import Guard, Guarded, Record
from esker.stores.kv_sqlite import SQLiteKV
from esker.stores.sqlite_log import log_index
from esker.testing.kv_suite import Connect, GuardedKVSuite, in_forked_child, together, value

CAS_PROCESS = """
import sys
from esker.stores.kv_sqlite import SQLiteKV
kv = SQLiteKV(sys.argv[1])
for _ in range(int(sys.argv[2])):
    while True:
        record = kv.get("p", b"n")
        swapped = kv.put_if("p", b"n", b"%d" % (int(record.value) + 1 if record else 1), record and record.version)
        if swapped:
            break
kv.close()
"""

# Each thread writes its own key, counting up, and says so after each acknowledged write. The lines are short, so each
# is one write to the pipe: a kill cuts none in half.
KILLED_PROCESS = """
import os, sys, threading
from esker.stores.kv_sqlite import SQLiteKV
path, first = sys.argv[1], int(sys.argv[2])
kv = SQLiteKV(path)
def write(thread):
    number = first
    while True:
        number += 1
        if number % 3:
            kv.put("p", b"%d" % thread, b"%d" % number)
        else:
            record = kv.get("p", b"%d" % thread)
            assert kv.put_if("p", b"%d" % thread, b"%d" % number, record and record.version)
        os.write(1, b"%d %d\\n" % (thread, number))
for thread in range(4):
    threading.Thread(target=write, args=(thread,)).start()
"""

KILLS = 25
WRITERS = 4
"""Killed together, 25 times: 100 kills."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "when missing" / "kv?#%41.db"


@pytest.fixture
def kv(path: Path) -> Iterator[SQLiteKV]:
    store = SQLiteKV(path)
    yield store
    store.close()


class TestSQLiteKV(GuardedKVSuite):
    @pytest.fixture
    def connect(self, path: Path) -> Connect:
        return lambda: SQLiteKV(path)


def test_increments_of_several_processes_lose_no_update(kv: SQLiteKV, path: Path) -> None:
    command = [sys.executable, "-c", CAS_PROCESS, str(path), "50"]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert value(kv, "p", b"n") == b"200"


def test_several_processes_may_be_first(path: Path) -> None:
    command = [sys.executable, "-c", CAS_PROCESS, str(path), "1"]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    store = SQLiteKV(path)
    assert value(store, "p", b"n") == b"4"
    store.close()


def test_no_acknowledged_write_is_lost_to_a_kill(tmp_path: Path) -> None:
    paths = [tmp_path / f"{writer}.db" for writer in range(WRITERS)]
    firsts = [0] * WRITERS
    for kill in range(KILLS):
        processes = [
            subprocess.Popen([sys.executable, "-c", KILLED_PROCESS, path, str(first)], stdout=subprocess.PIPE)
            for path, first in zip(paths, firsts, strict=True)
        ]
        for index, (path, process) in enumerate(zip(paths, processes, strict=True)):
            assert process.stdout is not None
            acknowledged = [process.stdout.readline() for _ in range(1 + 7 * kill)]
            process.send_signal(signal.SIGKILL)
            acknowledged += process.stdout.readlines()
            process.stdout.close()
            process.wait()
            last = {thread: int(number) for thread, number in (line.split() for line in acknowledged)}
            store = SQLiteKV(path)
            for thread, number in last.items():
                found = int(value(store, "p", thread))
                assert found in (number, number + 1), "the last acknowledged, or the one that was under way"
            firsts[index] = max(int(item.record.value) for item in store.scan("p"))
            store.close()
    for path in paths:
        with sqlite3.connect(path) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.close()


def test_writes_of_many_threads_share_transactions(kv: SQLiteKV) -> None:
    before = kv.transactions

    def write(thread: int) -> None:
        for number in range(50):
            assert kv.put_if("p", b"%d %d" % (thread, number), b"v", None)

    together([partial(write, thread) for thread in range(32)])
    assert len(kv.scan("p", limit=10_000)) == 32 * 50
    assert (kv.transactions - before) * 5 <= 32 * 50, "each fsync served five writes or more"


def test_a_write_alone_is_a_transaction_at_once(kv: SQLiteKV) -> None:
    before = kv.transactions
    for number in range(10):
        kv.put("p", b"k", b"%d" % number)
    assert kv.transactions - before == 10


def test_writes_of_one_group_keep_their_own_outcomes(kv: SQLiteKV, path: Path) -> None:
    """Another connection holds the write lock until all of them wait: then they are one transaction."""
    kv.put("p", b"guard", b"open")
    blocker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    before = kv.transactions

    def put_if(number: int) -> Any:
        return kv.put_if("p", b"one", b"%d" % number, None)

    def guarded(guard: bytes) -> Any:
        return kv.put_guarded("p", b"two", b"v", guard=Guard("p", b"guard", guard))

    def release() -> Any:
        while len(kv._waiting) < 8:  # the ninth leads, alone
            threading.Event().wait(0.001)
        return blocker.execute("ROLLBACK")

    racers = [partial(put_if, number) for number in range(7)]
    outcomes = together([*racers, partial(guarded, b"open"), partial(guarded, b"shut"), release])
    assert outcomes[:7].count(True) == 1
    assert outcomes[7:9] == [Guarded.STORED, Guarded.REFUSED]
    assert value(kv, "p", b"one") == b"%d" % outcomes.index(True)
    assert kv.transactions - before == 2
    blocker.close()


def test_a_read_sees_no_old_snapshot(kv: SQLiteKV, path: Path) -> None:
    """A cursor left open by a scan or a get would keep its connection at the moment that it was opened."""
    other = SQLiteKV(path)
    kv.put_many("p", [(b"%d" % number, b"old") for number in range(10)])
    first = kv.scan("p", limit=2)
    kv.get("p", b"5")
    for number in range(10):
        other.put("p", b"%d" % number, b"new")
    assert [item.record.value for item in first] == [b"old"] * 2
    assert value(kv, "p", b"1") == b"new"
    assert {item.record.value for item in kv.scan("p")} == {b"new"}
    assert len(kv._idle) == 1, "and all of it on one connection"
    other.put("q", b"k", b"v")
    raw = sqlite3.connect(path, isolation_level=None)
    busy, *_ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0, "no reader is left that would hold back the log"
    raw.close()
    other.close()


def test_waiting_for_a_lock_is_no_lost_race_but_ends(kv: SQLiteKV, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_sqlite, "BUSY_TIMEOUT_S", 0.05)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(UnavailableError):
        kv.put_if("p", b"k", b"v", None)
    with pytest.raises(UnavailableError):
        kv.put_many("p", [(b"k", b"v")])
    assert kv.get("p", b"k") is None, "readers do not wait for writers"
    blocker.execute("ROLLBACK")
    blocker.close()
    assert kv.put_if("p", b"k", b"v", None)


@pytest.fixture
def reads(kv: SQLiteKV, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys that `kv` asked SQLite for."""
    asked: list[bytes] = []
    ask = kv._get_now

    def counted(partition: str, key: bytes) -> Record | None:
        asked.append(key)
        return ask(partition, key)

    monkeypatch.setattr(kv, "_get_now", counted)
    return asked


def test_while_nothing_changes_sqlite_is_asked_once(kv: SQLiteKV, reads: list[bytes]) -> None:
    kv.put("p", b"k", b"v")
    first = kv.get("p", b"k")
    assert first is not None
    assert [kv.get("p", b"k") for _ in range(10)] == [first] * 10
    assert [kv.get("p", b"missing") for _ in range(10)] == [None] * 10
    assert reads == [b"k", b"missing"]


def test_after_any_change_sqlite_is_asked_again(kv: SQLiteKV, path: Path, reads: list[bytes]) -> None:
    other = SQLiteKV(path)
    for store, key in ((kv, b"k"), (other, b"k"), (other, b"elsewhere"), (kv, b"elsewhere")):
        for n in range(50):
            store.put("p", key, b"%d" % n)
            found = (value(kv, "p", key), value(kv, "p", key), value(other, "p", key))
            assert found == (b"%d" % n,) * 3
    kv.delete("p", b"k")
    assert other.get("p", b"k") is kv.get("p", b"k") is None
    assert len(reads) == 4 * 50 + 1, "once after each"
    other.close()


def test_a_change_is_seen_across_checkpoints_and_new_logs(kv: SQLiteKV, path: Path) -> None:
    """A log that is begun again has frames of the same numbers as the last one had."""
    for n in range(30):
        SQLiteKV(path).put("p", b"k", b"%d" % n)
        assert value(kv, "p", b"k") == b"%d" % n
        with sqlite3.connect(path) as tool:
            tool.execute("PRAGMA wal_checkpoint(RESTART)")
        tool.close()
        assert value(kv, "p", b"k") == b"%d" % n


PING_PROCESS = """
import sys
from esker.stores.kv_sqlite import SQLiteKV
kv = SQLiteKV(sys.argv[1])
for line in sys.stdin:
    kv.put("p", b"k", line.strip().encode())
    print(kv.get("p", b"k").value.decode(), flush=True)
"""


def test_what_another_process_was_told_is_written_is_seen(kv: SQLiteKV, path: Path) -> None:
    command = [sys.executable, "-c", PING_PROCESS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for n in range(500):
            print(n, file=other.stdin, flush=True)
            assert other.stdout.readline() == f"{n}\n"
            assert value(kv, "p", b"k") == b"%d" % n
            assert value(kv, "p", b"k") == b"%d" % n
        other.stdin.close()


def test_large_records_are_not_remembered_and_only_so_many_others_are(kv: SQLiteKV) -> None:
    kv.put("p", b"large", b"x" * (kv_sqlite.REMEMBERED_BYTES_MAX + 1))
    kv.get("p", b"large")
    assert not kv._remembered
    for n in range(kv_sqlite.REMEMBERED_MAX + 1):
        kv.get("p", b"%d" % n)
    assert len(kv._remembered) == 1


def test_where_the_index_cannot_be_found_every_read_asks_sqlite(kv: SQLiteKV, path: Path, reads: list[bytes]) -> None:
    assert log_index(sqlite3.connect(path), path.with_name("another.db")) is None
    kv._index = None
    kv.put("p", b"k", b"v")
    assert value(kv, "p", b"k") == value(kv, "p", b"k") == b"v"
    assert len(reads) == 2


def test_a_store_that_is_closed_while_it_is_read_does_no_harm(path: Path) -> None:
    def read(store: SQLiteKV) -> None:
        for _ in range(300):
            store.get("p", b"k")

    for _ in range(20):
        store = SQLiteKV(path)
        store.put("p", b"k", b"v")
        readers = [threading.Thread(target=read, args=(store,)) for _ in range(4)]
        for reader in readers:
            reader.start()
        store.close()
        for reader in readers:
            reader.join()
        store.close()


def test_a_first_write_waits_for_who_has_the_file_to_itself(kv: SQLiteKV, path: Path) -> None:
    """As one does that is first to open it, while it mends the log: for a moment, even reads are locked."""
    kv._idle.pop().close()
    kv._index = None
    alone = sqlite3.connect(path, isolation_level=None)
    alone.execute("PRAGMA locking_mode = EXCLUSIVE")
    alone.execute("BEGIN IMMEDIATE")
    alone.execute("COMMIT")
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(kv.put_if("p", b"k", b"v", None)))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    alone.close()
    thread.join(30)
    assert results == [True]


def test_a_commit_that_fails_has_an_unknown_outcome(kv: SQLiteKV, path: Path) -> None:
    """A limit on file sizes, as a full disk: the transaction is written to the log by COMMIT, and there it fails."""

    def write_at_the_limit() -> None:
        store = SQLiteKV(path)
        store.put("p", b"k", b"old")
        size = Path(f"{path}-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        try:
            store.put("p", b"k", b"new" * 10_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert store.get("p", b"k") is not None
            store.put("p", b"after", b"v")

    assert in_forked_child(write_at_the_limit) == OutcomeUnknownError.__name__
    assert value(kv, "p", b"after") == b"v", "the store goes on"


def test_an_interrupted_leader_leaves_nobody_waiting(kv: SQLiteKV) -> None:
    def interrupted(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM kv")
        raise KeyboardInterrupt

    kv.put("p", b"k", b"v")
    with pytest.raises(KeyboardInterrupt):
        kv._write(interrupted)
    kv.put("p", b"l", b"v")
    assert [item.key for item in kv.scan("p")] == [b"k", b"l"], "what it had done was rolled back"


def test_an_instance_is_refused_in_a_forked_child(kv: SQLiteKV) -> None:
    kv.put("p", b"k", b"v")
    for call in (lambda: kv.get("p", b"k"), lambda: kv.scan("p"), lambda: kv.put("p", b"k", b"w")):
        assert in_forked_child(call) == InvalidError.__name__
    assert value(kv, "p", b"k") == b"v"


@pytest.mark.parametrize("path", ["", ":memory:", "file:x.db", "sqlite:///x.db", "a\0b", "/", "/dev/null/x.db"])
def test_a_path_that_is_no_local_file_is_refused(path: str) -> None:
    with pytest.raises(InvalidError):
        SQLiteKV(path)


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = kv_sqlite._file_system(tmp_path)
    assert here is not None
    monkeypatch.setattr(kv_sqlite, "NETWORK_FILE_SYSTEMS", {here})
    with pytest.raises(InvalidError, match="network"):
        SQLiteKV(tmp_path / "kv.db")
    assert os.listdir(tmp_path) == []


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE kv (partition, key, version, value)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(InvalidError):
        SQLiteKV(path)
    assert path.read_bytes() == before


def test_a_newer_format_and_a_damaged_file_are_told_apart(kv: SQLiteKV, path: Path, tmp_path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(CorruptError) as newer:
        SQLiteKV(path)
    assert newer.value.kind is Kind.UNKNOWN_FORMAT
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"this is no database " * 100)
    with pytest.raises(CorruptError) as broken:
        SQLiteKV(damaged)
    assert broken.value.kind is Kind.DAMAGED_FILE


def test_a_file_deleted_before_the_first_write_is_not_made_anew(tmp_path: Path) -> None:
    store = SQLiteKV(tmp_path / "kv.db")
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(UnavailableError):
        store.put("p", b"k", b"v")
    store.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["n\x85l", "n\u2028l", "two\nlines", " spaces ", "per%20cent"])
def test_odd_paths_of_files_and_of_others_in_memory_do_no_harm(tmp_path: Path, name: str) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff"
    with open(odd, "wb+") as file:
        file.write(b"x" * mmap.PAGESIZE)
        file.flush()
        with mmap.mmap(file.fileno(), 0):
            store = SQLiteKV(tmp_path / name / "kv.db")
            store.put("p", b"k", b"v")
            assert value(store, "p", b"k") == value(store, "p", b"k") == b"v"
            store.close()
