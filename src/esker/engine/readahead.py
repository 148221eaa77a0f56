"""Read-ahead: tables that appear on a branch which this process reads often are fetched before anybody asks for them.

Nothing relies on it, and nothing waits for it: what cannot be fetched now, or ever, is left to whoever reads it.
"""

import threading
from typing import Final

from esker.engine.lake import Lake
from esker.model import Repository, Table
from esker.refs.records import Branch

_OFTEN: Final = 20
"""So many reads of a branch..."""
_WITHIN_S: Final = 10.0
"""... in so long are often."""

_FETCHES_MAX: Final = 16
"""Under way, for all branches: what is too much for the pool is left out."""

_BYTES_MAX: Final = 8 << 20
"""Of a table. Larger ones are worth their room only if they are needed."""

_BRANCHES_MAX: Final = 1000


def of(lake: Lake) -> "ReadAhead":
    """The read-ahead of this process's lake."""
    found: ReadAhead | None = lake.readers.get("")
    return found or lake.readers.setdefault("", ReadAhead(lake))


class _Reads:
    """Of one branch."""

    __slots__ = ("count", "files", "often", "seq", "since_s")

    def __init__(self, now_s: float) -> None:
        self.count = 0
        self.since_s = now_s
        self.often = False
        self.seq = -1
        self.files: frozenset[str] = frozenset()


class ReadAhead:
    """Shared by threads, which may count a read too few."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._branches: dict[tuple[str, str], _Reads] = {}
        self._room = threading.BoundedSemaphore(_FETCHES_MAX)

    def was_read(self, repo: Repository, branch: str, record: Branch) -> None:
        """A branch is being read, as its record has it."""
        if self._lake.pool is None:
            return
        key = (repo.uid, branch)
        reads = self._branches.get(key)
        if reads is None:
            if len(self._branches) >= _BRANCHES_MAX:
                self._branches.clear()
            reads = self._branches[key] = _Reads(self._lake.world.monotonic_s())
        reads.count += 1
        if reads.count >= _OFTEN:
            now_s = self._lake.world.monotonic_s()
            reads.often = now_s - reads.since_s <= _WITHIN_S
            reads.count, reads.since_s = 0, now_s
        if reads.often and record.seq != reads.seq:
            tables = [table for layer in record.layers for table in layer.tables]
            known, reads.seq, reads.files = reads.files, record.seq, frozenset(table.file for table in tables)
            for table in tables:
                if table.file not in known and table.bytes <= _BYTES_MAX:
                    self._fetch(repo, table)

    def _fetch(self, repo: Repository, table: Table) -> None:
        assert self._lake.pool is not None
        if self._room.acquire(blocking=False):
            future = self._lake.pool.submit(self._lake.tables(repo).fetch, table)
            future.add_done_callback(lambda _: self._room.release())
