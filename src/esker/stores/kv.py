"""The key-value port: small records with compare-and-swap, grouped in ordered partitions.

What every backend promises, and `esker.testing.kv_suite` checks:

- Reads are strong: a read begun after a write was acknowledged sees it, from every process.
- Acknowledged means durable.
- A version is drawn afresh for every write and never comes back, so compare-and-swap survives A-B-A, also across
  delete and re-create.
- A conditional write has three outcomes: True (applied), False (certainly not applied: the condition failed), or
  `OutcomeUnknownError` (the store did not say). A backend never retries a write whose outcome it does not know.
- Missing is None, a lost race is False, only a broken store raises: `UnavailableError` when nothing was changed,
  `OutcomeUnknownError` when a write may have been applied.
- Every call is its own transaction, finished when it returns; no cursor stays open behind it.
- Keys are ordered as bytes. Batches are neither atomic nor conditional.

A partition's name is `<kind>/<rest>` (or `<kind>` alone), and reads and writes are counted by kind: counts by full name
would grow with every staging token.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple, NewType

from esker import activity
from esker.counting import Counter as Metric
from esker.errors import InvalidError, Kind

_READS: Final = Metric("esker_kv_reads", "Records read from the key-value store, by kind of partition.", ["partition"])
_WRITES: Final = Metric("esker_kv_writes", "Records written to the key-value store, alike.", ["partition"])

Version = NewType("Version", bytes)
"""Opaque: equal only to itself. Compare for equality, store nowhere."""

KEY_BYTES_MAX: Final = 1024
"""DynamoDB's limit on a sort key; a path may be as long, so a key of a staged entry is the path and nothing else."""

VALUE_BYTES_MAX: Final = 380_000
"""Below DynamoDB's 400 KB an item, with room for the key, the partition and the version."""

PARTITION_CHARS_MAX: Final = 512

SCAN_LIMIT_MAX: Final = 10_000


class Record(NamedTuple):
    value: bytes
    version: Version


class Item(NamedTuple):
    key: bytes
    record: Record


class Guard(NamedTuple):
    """A condition on another record: it exists and holds exactly `value`."""

    partition: str
    key: bytes
    value: bytes


class Put(NamedTuple):
    partition: str
    key: bytes
    value: bytes


class Guarded(Enum):
    """What became of a guarded put. Only STORED changed anything."""

    STORED = "stored"
    REFUSED = "refused"
    """The guard did not hold (looked at first)."""
    TAKEN = "taken"
    """The guard held, but the record is not at the expected version."""


class Anything(Enum):
    ANYTHING = "anything"


ANYTHING: Final = Anything.ANYTHING
"""As an expected version: whatever is there, or nothing."""


class Counts:
    """Calls that read or wrote, by kind of partition. An item read by a scan, or written by a batch, counts as one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reads: Counter[str] = Counter()
        self.writes: Counter[str] = Counter()

    def read(self, partition: str, n: int = 1) -> None:
        kind = kind_of(partition)
        with self._lock:
            self.reads[kind] += n
        _metric(_READS, kind).inc(n)
        activity.count("kv_reads", n)

    def wrote(self, partition: str, n: int = 1) -> None:
        kind = kind_of(partition)
        with self._lock:
            self.writes[kind] += n
        _metric(_WRITES, kind).inc(n)
        activity.count("kv_writes", n)


@lru_cache(maxsize=256)
def _metric(of: Metric, kind: str) -> Metric:
    return of.labels(kind)


@lru_cache(maxsize=4096)
def kind_of(partition: str) -> str:
    """The part of a partition's name by which calls are counted. InvalidError if it is no name."""
    if not 0 < len(partition) <= PARTITION_CHARS_MAX or not partition.isascii() or not partition.isprintable():
        raise InvalidError(
            Kind.INVALID_ARGUMENT, f"a partition's name is 1 to {PARTITION_CHARS_MAX} printable ASCII characters"
        )
    return partition.partition("/")[0]


_TIMED: Final = activity.timed("kv")


class KVStore(ABC):
    """The port. Public methods check and count; a backend implements the ones with an underscore.

    An instance may be shared by threads. It must not be used across a fork: open another in the child.
    """

    guards: ClassVar[bool] = True
    """Whether `put_guarded` and `put_if(..., also=...)` are offered. Without, the engine re-checks after a write."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._pid = os.getpid()

    @_TIMED
    def get(self, partition: str, key: bytes) -> Record | None:
        _check(partition, key)
        self.counts.read(partition)
        return self._get(partition, key)

    @_TIMED
    def scan(self, partition: str, start: bytes = b"", limit: int = 1000) -> list[Item]:
        """Up to `limit` items with keys at or after `start`, in byte order of keys, from one moment where the backend
        can (memory, SQLite, PostgreSQL). Fewer than `limit` means that there are no more.
        """
        _check(partition)
        if not 0 < limit <= SCAN_LIMIT_MAX:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"a scan's limit is 1 to {SCAN_LIMIT_MAX}, not {limit}")
        items = self._scan(partition, start, limit)
        self.counts.read(partition, max(1, len(items)))
        return items

    @_TIMED
    def put(self, partition: str, key: bytes, value: bytes) -> None:
        """Store, whatever was there."""
        _check(partition, key, value)
        self.counts.wrote(partition)
        self._put(partition, key, value)

    @_TIMED
    def put_if(
        self, partition: str, key: bytes, value: bytes, expected: Version | None, also: Sequence[Put] = ()
    ) -> bool:
        """Store if the record is at version `expected` (None: there is no record); `also` in the same transaction.

        `also` is for backends with `guards`: plain puts of other records, each named once, applied exactly when the
        swap is.
        """
        _check(partition, key, value)
        for put in also:
            _check(*put)
        if also and len({(partition, key), *((put.partition, put.key) for put in also)}) <= len(also):
            raise InvalidError(Kind.INVALID_ARGUMENT, "a record is written twice by one put_if")
        if also and not self.guards:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"{type(self).__name__} cannot write several records at once")
        self.counts.wrote(partition)
        for put in also:
            self.counts.wrote(put.partition)
        return self._put_if(partition, key, value, expected, also)

    @_TIMED
    def put_guarded(
        self, partition: str, key: bytes, value: bytes, *, guard: Guard, expected: Version | None | Anything = ANYTHING
    ) -> Guarded:
        """Store if `guard` holds and the record is at `expected`: both looked at and acted on atomically."""
        _check(partition, key, value)
        _check(guard.partition, guard.key)
        if not self.guards:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"{type(self).__name__} has no guarded puts")
        self.counts.wrote(partition)
        return self._put_guarded(partition, key, value, guard, expected)

    @_TIMED
    def delete(self, partition: str, key: bytes) -> None:
        """Delete; deleting what is not there is no error."""
        _check(partition, key)
        self.counts.wrote(partition)
        self._delete(partition, key)

    @_TIMED
    def delete_if(self, partition: str, key: bytes, expected: Version) -> bool:
        """Delete if the record is at version `expected`."""
        _check(partition, key)
        self.counts.wrote(partition)
        return self._delete_if(partition, key, expected)

    @_TIMED
    def put_many(self, partition: str, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Many puts, in fewer round trips where the backend can. Not atomic; after an error, any of them may have been
        applied. Of two items with one key the later wins.
        """
        batch = dict(items)
        for key, value in batch.items():
            _check(partition, key, value)
        if batch:
            self.counts.wrote(partition, len(batch))
            self._put_many(partition, batch)

    @_TIMED
    def delete_many(self, partition: str, keys: Iterable[bytes]) -> None:
        """Many deletes, as `put_many`."""
        batch = list(dict.fromkeys(keys))
        for key in batch:
            _check(partition, key)
        if batch:
            self.counts.wrote(partition, len(batch))
            self._delete_many(partition, batch)

    def close(self) -> None:
        """Give back connections and files. The store is not used after."""

    def _check_process(self) -> None:
        """For backends with connections, before lending one: two processes on one connection garble it."""
        if os.getpid() != self._pid:
            raise InvalidError(
                Kind.INVALID_ARGUMENT,
                f"this {type(self).__name__} was opened before a fork, by process {self._pid}: open another here",
            )

    @abstractmethod
    def _get(self, partition: str, key: bytes) -> Record | None: ...
    @abstractmethod
    def _scan(self, partition: str, start: bytes, limit: int) -> list[Item]: ...
    @abstractmethod
    def _put(self, partition: str, key: bytes, value: bytes) -> None: ...
    @abstractmethod
    def _put_if(
        self, partition: str, key: bytes, value: bytes, expected: Version | None, also: Sequence[Put]
    ) -> bool: ...
    @abstractmethod
    def _put_guarded(
        self, partition: str, key: bytes, value: bytes, guard: Guard, expected: Version | None | Anything
    ) -> Guarded: ...
    @abstractmethod
    def _delete(self, partition: str, key: bytes) -> None: ...
    @abstractmethod
    def _delete_if(self, partition: str, key: bytes, expected: Version) -> bool: ...
    @abstractmethod
    def _put_many(self, partition: str, items: dict[bytes, bytes]) -> None: ...
    @abstractmethod
    def _delete_many(self, partition: str, keys: list[bytes]) -> None: ...


def items(store: KVStore, partition: str, start: bytes = b"", page: int = 1000) -> Iterator[Item]:
    """All items from `start` on, page by page: each page is from its own moment."""
    while True:
        found = store.scan(partition, start, page)
        yield from found
        if len(found) < page:
            return
        start = found[-1].key + b"\0"


def _check(partition: str, key: bytes | None = None, value: bytes | None = None) -> None:
    kind_of(partition)
    if key is not None and not 0 < len(key) <= KEY_BYTES_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"a key is 1 to {KEY_BYTES_MAX} bytes, not {len(key)}")
    if value is not None and len(value) > VALUE_BYTES_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"a value is at most {VALUE_BYTES_MAX} bytes, not {len(value)}")
