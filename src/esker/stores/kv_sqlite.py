"""SQLite: the embedded default. One file, for any number of threads and processes of one machine.

- Durable: write-ahead log, `synchronous=FULL`, acknowledged after COMMIT. A COMMIT that fails has an unknown outcome,
  because its frames may lie in the log, and the next process to open the file would find them there.
- Reads: each is one statement, read to its end before the call returns, so each sees the newest commit. A cursor left
  open would keep an old snapshot, and a re-read on its connection would acknowledge a lost write.
- Reads of one record, while nothing in the file has changed: what was read before. The index of its log tells whether
  anything has (`sqlite_log`), without a call of SQLite: each of those gives up the interpreter, and where many threads
  want it, one waits longer to get it back than all else takes.
- Writes take SQLite's one write lock at once (BEGIN IMMEDIATE). Waiting for it is no lost race: they wait for long.
- Group commit: what threads ask for while a transaction commits goes into the next one together, so that they share
  its fsync. Each write keeps its own outcome. Whoever comes to a quiet store commits at once, alone.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from esker.errors import (
    CorruptError,
    EskerError,
    ForbiddenError,
    InvalidError,
    Kind,
    OutcomeUnknownError,
    UnavailableError,
)
from esker.stores.kv import ANYTHING, Anything, Guard, Guarded, Item, KVStore, Put, Record, Version
from esker.stores.sqlite_log import LogIndex, log_index
from esker.world import REAL, World

FORMAT_VERSION: Final = 1
APPLICATION_ID: Final = 0x45534B52
"""`ESKR` in the file's header: tells our file from another program's."""

BUSY_TIMEOUT_S: Final = 60.0
"""How long to wait for other processes' writes. The lock is not fair, so long; a process that dies lets go of it."""

BUSY_PAUSE_S: Final = 0.002
"""The longest pause between two tries for the lock. SQLite's own pauses grow to 100 ms, and then a process that writes
without pause shuts the others out: 3 of 4 wrote one record in 3 s. With this, each gets its part."""

BATCH_MAX: Final = 1000
"""Records of a batch in one transaction: bounds how long a batch keeps others waiting."""

REMEMBERED_MAX: Final = 1000
REMEMBERED_BYTES_MAX: Final = 8 << 10
"""Of a record that is remembered until the file changes."""

NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
    | {"fuse.ceph", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"}
)
"""Where the log's shared memory does not work: processes of two machines would damage the file."""

_SCHEMA: Final = """
    CREATE TABLE kv (
        partition TEXT NOT NULL, key BLOB NOT NULL, version BLOB NOT NULL, value BLOB NOT NULL,
        PRIMARY KEY (partition, key)
    ) WITHOUT ROWID
"""
_GET: Final = "SELECT value, version FROM kv WHERE partition = ? AND key = ?"
_SCAN: Final = "SELECT key, value, version FROM kv WHERE partition = ? AND key >= ? ORDER BY key LIMIT ?"
_HOLDS: Final = "SELECT 1 FROM kv WHERE partition = ? AND key = ? AND value = ?"
_INSERT: Final = "INSERT INTO kv (partition, key, value, version) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_PUT: Final = (
    "INSERT INTO kv (partition, key, value, version) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET value = excluded.value, version = excluded.version"
)
_SWAP: Final = "UPDATE kv SET value = ?, version = ? WHERE partition = ? AND key = ? AND version = ?"
_DELETE: Final = "DELETE FROM kv WHERE partition = ? AND key = ?"
_DELETE_IF: Final = "DELETE FROM kv WHERE partition = ? AND key = ? AND version = ?"

T = TypeVar("T")


class _Write(Generic[T]):
    """A write on its way through a group: what to do within the transaction, then what came of it."""

    def __init__(self, apply: Callable[[sqlite3.Connection], T]) -> None:
        self.apply = apply
        self.result: T
        self.done = False
        self.error: EskerError | None = None
        self.wake = threading.Lock()  # released when it is done, or when its thread is to lead
        self.wake.acquire()


class SQLiteKV(KVStore):
    """Threads may share an instance; each process opens its own."""

    def __init__(self, path: str | os.PathLike[str], world: World = REAL) -> None:
        super().__init__()
        self._world = world
        self.path = _local(path)
        self._idle: list[sqlite3.Connection] = []  # lent to one thread at a time; append and pop are atomic
        self._mutex = threading.Lock()  # over the next two
        self._waiting: list[_Write[Any]] = []  # at most one a thread
        self._leader: _Write[Any] | None = None  # whose thread commits for all; somebody, while any are waiting
        self._writer: sqlite3.Connection | None = None  # the leader's
        self.transactions = 0
        self._remembered: dict[tuple[str, bytes], tuple[bytes, Record | None]] = {}
        """With the state of the file that it was read from."""
        self._create()
        self._index = self._find_index()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        while self._idle:
            self._idle.pop().close()
        self._index = None

    def _get(self, partition: str, key: bytes) -> Record | None:
        self._check_process()
        index = self._index
        before = index.state() if index else b""
        known = self._remembered.get((partition, key))
        if known is not None and known[0] == before:
            return known[1]
        found = self._get_now(partition, key)
        if index and before == index.state() != b"" and (found is None or len(found.value) <= REMEMBERED_BYTES_MAX):
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[partition, key] = before, found
        return found

    def _get_now(self, partition: str, key: bytes) -> Record | None:
        rows = self._read(_GET, (partition, key))
        return Record(*rows[0]) if rows else None

    def _scan(self, partition: str, start: bytes, limit: int) -> list[Item]:
        rows = self._read(_SCAN, (partition, start, limit))
        return [Item(key, Record(value, version)) for key, value, version in rows]

    def _put(self, partition: str, key: bytes, value: bytes) -> None:
        row = (partition, key, value, self._version())
        self._write(lambda db: db.execute(_PUT, row))

    def _put_if(self, partition: str, key: bytes, value: bytes, expected: Version | None, also: Sequence[Put]) -> bool:
        version = self._version()

        def apply(db: sqlite3.Connection) -> bool:
            swapped = _store(db, partition, key, value, version, expected)
            if swapped and also:
                db.executemany(_PUT, [(*put, version) for put in also])
            return swapped

        return self._write(apply)

    def _put_guarded(
        self, partition: str, key: bytes, value: bytes, guard: Guard, expected: Version | None | Anything
    ) -> Guarded:
        version = self._version()

        def apply(db: sqlite3.Connection) -> Guarded:
            if not db.execute(_HOLDS, guard).fetchall():
                return Guarded.REFUSED
            return Guarded.STORED if _store(db, partition, key, value, version, expected) else Guarded.TAKEN

        return self._write(apply)

    def _delete(self, partition: str, key: bytes) -> None:
        self._write(lambda db: db.execute(_DELETE, (partition, key)))

    def _delete_if(self, partition: str, key: bytes, expected: Version) -> bool:
        return self._write(lambda db: db.execute(_DELETE_IF, (partition, key, expected)).rowcount == 1)

    def _put_many(self, partition: str, items: dict[bytes, bytes]) -> None:
        version = self._version()
        self._write_many(_PUT, [(partition, key, value, version) for key, value in items.items()])

    def _delete_many(self, partition: str, keys: list[bytes]) -> None:
        self._write_many(_DELETE, [(partition, key) for key in keys])

    def _write_many(self, sql: str, rows: list[tuple[str | bytes, ...]]) -> None:
        for first in range(0, len(rows), BATCH_MAX):
            part = rows[first : first + BATCH_MAX]
            try:
                self._write(lambda db, part=part: db.executemany(sql, part))  # type: ignore[misc]
            except UnavailableError as error:
                if first == 0:
                    raise
                raise OutcomeUnknownError(message=f"a batch was cut short: {error.message}") from error

    def _version(self) -> Version:
        return Version(bytes.fromhex(self._world.token(16)))

    def _read(self, sql: str, arguments: tuple[object, ...]) -> list[Any]:
        self._check_process()
        try:
            db = self._idle.pop()
        except IndexError:
            db = self._connect()
        try:
            return db.execute(sql, arguments).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        finally:
            self._idle.append(db)

    def _write(self, apply: Callable[[sqlite3.Connection], T]) -> T:
        self._check_process()
        write = _Write(apply)
        try:
            with self._mutex:
                self._waiting.append(write)
                if self._leader is None:
                    self._leader = write
            if self._leader is not write:
                write.wake.acquire()
            if not write.done:
                self._commit()
        finally:
            self._leave(write)
        if write.error is not None:
            raise type(write.error)(write.error.kind, write.error.message) from write.error
        return write.result

    def _leave(self, write: _Write[Any]) -> None:
        """Name the next leader, if `write` led. Holds also where an interrupt cut its waiting short."""
        with self._mutex:
            if not write.done and write in self._waiting:
                self._waiting.remove(write)
            if self._leader is write:
                self._leader = self._waiting[0] if self._waiting else None
                if self._leader is not None:
                    self._leader.wake.release()

    def _commit(self) -> None:
        """One transaction for all that wait. Each of them is answered, whatever is raised here: an exception that is
        not the store's (a keyboard interrupt) goes on to the leader's caller.
        """
        group: list[_Write[Any]] = []
        error: EskerError | None = UnavailableError(Kind.STORE_UNAVAILABLE, f"a write to {self.path} was interrupted")
        db = None
        try:
            with self._mutex:
                group, self._waiting = self._waiting, []
            db = self._writer = self._writer or self._connect_writer()
            self._begin(db)
            for write in group:
                write.result = write.apply(db)
            error = OutcomeUnknownError(message=f"{self.path} did not answer COMMIT")
            db.execute("COMMIT")
            self.transactions += 1
            error = None
        except sqlite3.Error as cause:
            failed = self._failed(cause)
            unknown = isinstance(error, OutcomeUnknownError)
            error = OutcomeUnknownError(message=f"COMMIT failed: {failed.message}") if unknown else failed
        except EskerError as cause:
            error = cause
        finally:
            if error is not None and db is not None:
                db.close()  # rolls back what is open; the next group starts from a fresh connection
                self._writer = None
            for write in group:
                write.error, write.done = error, True
                if write is not self._leader:
                    write.wake.release()

    def _connect_writer(self) -> sqlite3.Connection:
        """Pauses are ours, not SQLite's; but only now, for the first statement reads the file and may have to wait."""
        db = self._connect()
        db.execute("PRAGMA busy_timeout = 0")
        return db

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        """Without `rwc`, a file deleted under us is an error and not a new, empty store."""
        try:
            db = sqlite3.connect(
                f"file:{quote(str(self.path))}?mode={mode}",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,  # transactions are begun and ended by us alone
                check_same_thread=False,  # a connection serves several threads, one after the other
            )
            db.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return db

    def _create(self) -> None:
        """Make the file, unless it is there. Several processes may be at it at once."""
        db = self._connect("rwc")
        try:
            if not self._is_ours(db):
                self._switch_to_log(db)
                self._begin(db)
                if not self._is_ours(db):
                    db.execute(_SCHEMA)
                    db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
                    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute("COMMIT")
            self._switch_to_log(db)
        except sqlite3.Error as error:
            db.close()
            raise self._failed(error) from error
        except BaseException:
            db.close()
            raise
        self._idle.append(db)

    def _find_index(self) -> LogIndex | None:
        db = self._connect()
        with suppress(sqlite3.Error):
            db.execute("SELECT 1 FROM kv LIMIT 1").fetchall()  # only now is the index in memory
        return log_index(db, self.path)

    def _is_ours(self, db: sqlite3.Connection) -> bool:
        """False for an empty file. Anything else that is not ours is refused, untouched."""
        [(application,)] = db.execute("PRAGMA application_id").fetchall()
        [(version,)] = db.execute("PRAGMA user_version").fetchall()
        if application == APPLICATION_ID:
            if version != FORMAT_VERSION:
                raise CorruptError(
                    Kind.UNKNOWN_FORMAT, f"{self.path} has format {version}; this esker knows {FORMAT_VERSION}: upgrade"
                )
            return True
        if db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall():
            raise InvalidError(Kind.INVALID_URL, f"{self.path} is another program's database")
        return False

    def _begin(self, db: sqlite3.Connection) -> None:
        self._patiently(lambda: db.execute("BEGIN IMMEDIATE"))

    def _switch_to_log(self, db: sqlite3.Connection) -> None:
        """Kept in the file, so usually done already."""
        [(mode,)] = self._patiently(lambda: db.execute("PRAGMA journal_mode = WAL").fetchall())
        if mode != "wal":
            raise InvalidError(Kind.INVALID_URL, f"the file system of {self.path} cannot hold a write-ahead log")

    def _patiently(self, take: Callable[[], T]) -> T:
        """What `take` returns, once others have let go of its lock."""
        deadline = self._world.monotonic_s() + BUSY_TIMEOUT_S
        while True:
            try:
                return take()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or self._world.monotonic_s() > deadline:
                    raise
            self._world.sleep(BUSY_PAUSE_S * self._world.chance())

    def _failed(self, error: sqlite3.Error) -> EskerError:
        """As an error of ours, for calls that changed nothing."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return CorruptError(Kind.DAMAGED_FILE, f"{self.path}: {error}")
        if code == sqlite3.SQLITE_READONLY:
            return ForbiddenError(
                Kind.NOT_ALLOWED,
                f"{self.path} may only be read, and even readers write there: ask for the right to, or ask a server",
            )
        return UnavailableError(Kind.STORE_UNAVAILABLE, f"{self.path}: {error}")


def _store(
    db: sqlite3.Connection,
    partition: str,
    key: bytes,
    value: bytes,
    version: Version,
    expected: Version | None | Anything,
) -> bool:
    if expected is ANYTHING:
        return db.execute(_PUT, (partition, key, value, version)).rowcount == 1
    if expected is None:
        return db.execute(_INSERT, (partition, key, value, version)).rowcount == 1
    return db.execute(_SWAP, (value, version, partition, key, expected)).rowcount == 1


def _local(path: str | os.PathLike[str]) -> Path:
    """The absolute path, its directory made; refused where SQLite cannot keep its promises."""
    text = os.fspath(path)
    if not text or text == ":memory:" or "://" in text or text.startswith("file:") or "\0" in text:
        raise InvalidError(Kind.INVALID_URL, f"SQLite takes a file's path, not {text!r}")
    absolute = Path(text).absolute()
    if absolute.is_dir():
        raise InvalidError(Kind.INVALID_URL, f"SQLite takes a file's path; {absolute} is a directory")
    try:
        _make_directory(absolute.parent)
    except OSError as error:
        raise InvalidError(Kind.INVALID_URL, f"there is no directory for {absolute}: {error}") from error
    file_system = _file_system(absolute.parent)
    if file_system in NETWORK_FILE_SYSTEMS:
        raise InvalidError(
            Kind.INVALID_URL, f"{absolute} is on a network file system ({file_system}), where SQLite is not safe"
        )
    return absolute


def _make_directory(directory: Path) -> None:
    """Durably: else a power cut would take the directory, and acknowledged writes with it."""
    if directory.is_dir():
        return
    _make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    fd = os.open(directory.parent, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _file_system(directory: Path) -> str | None:
    """The type of the file system that holds `directory`, where the system tells (Linux does)."""
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return None
    best: tuple[int, str] | None = None
    real = directory.resolve()
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        mount = Path(point.replace("\\040", " "))
        if real.is_relative_to(mount) and (best is None or len(mount.parts) >= best[0]):
            best = len(mount.parts), kind
    return None if best is None else best[1]
