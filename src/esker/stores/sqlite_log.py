"""Whether a SQLite database has changed, told without a call of SQLite: by the index of its write-ahead log, which all
processes that have the database open share in memory.

The index begins with a header in two equal copies: a counter of transactions, the number of the log's frames, the salts
and checksum of the last of them (https://www.sqlite.org/walformat.html, 2.2). A COMMIT is seen by others when, and only
when, it has written a new header; that is before it returns. So whoever finds the header as it was, and whole, would
read what they read then.
"""

import os
import sqlite3
from contextlib import suppress
from ctypes import Array, c_char
from pathlib import Path
from typing import Final

_COPY_BYTES: Final = 48
_HEADER: Final = c_char * (2 * _COPY_BYTES)
_FILE: Final = "-shm"


class LogIndex:
    """The header of a log's index. Shared by threads; `db` is its own, and keeps the index in memory as long as anybody
    holds this."""

    def __init__(self, db: sqlite3.Connection, address: int) -> None:
        self._db = db
        self._header: Array[c_char] = _HEADER.from_address(address)

    def __del__(self) -> None:
        self._db.close()

    def state(self) -> bytes:
        """What differs after every change; empty while one is being made."""
        header: bytes = self._header.raw
        return header if header[:_COPY_BYTES] == header[_COPY_BYTES:] else b""


def log_index(db: sqlite3.Connection, path: Path) -> LogIndex | None:
    """The index of `path`, which `db` has open and has read: `db` is given away. None, and `db` is closed, where this
    system does not tell what is where in memory."""
    file = os.fsencode(f"{path.resolve()}{_FILE}")
    with suppress(OSError):
        for line in Path("/proc/self/maps").read_bytes().split(b"\n"):
            fields = line.split(maxsplit=5)
            if fields[5:] == [file] and int(fields[2], 16) == 0:
                return LogIndex(db, int(fields[0].partition(b"-")[0], 16))
    db.close()
    return None
