"""Memory: for tests, the simulator and scratch lakes. Gone with the process."""

import threading
from bisect import bisect_left, insort
from collections.abc import Sequence

from esker.stores.kv import ANYTHING, Anything, Guard, Guarded, Item, KVStore, Put, Record, Version


class _Partition:
    def __init__(self) -> None:
        self.records: dict[bytes, Record] = {}
        self.keys: list[bytes] = []  # those of `records`, sorted


class MemoryKV(KVStore):
    """One lock around everything. Partitions that become empty are forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._partitions: dict[str, _Partition] = {}
        self._writes = 0  # as a version: one counter for the store, so that no version ever comes back

    def _get(self, partition: str, key: bytes) -> Record | None:
        with self._lock:
            return self._record(partition, key)

    def _scan(self, partition: str, start: bytes, limit: int) -> list[Item]:
        with self._lock:
            if (found := self._partitions.get(partition)) is None:
                return []
            first = bisect_left(found.keys, start)
            return [Item(key, found.records[key]) for key in found.keys[first : first + limit]]

    def _put(self, partition: str, key: bytes, value: bytes) -> None:
        with self._lock:
            self._store(partition, key, value)

    def _put_if(self, partition: str, key: bytes, value: bytes, expected: Version | None, also: Sequence[Put]) -> bool:
        with self._lock:
            if self._version(partition, key) != expected:
                return False
            self._store(partition, key, value)
            for put in also:
                self._store(*put)
            return True

    def _put_guarded(
        self, partition: str, key: bytes, value: bytes, guard: Guard, expected: Version | None | Anything
    ) -> Guarded:
        with self._lock:
            guarding = self._record(guard.partition, guard.key)
            if guarding is None or guarding.value != guard.value:
                return Guarded.REFUSED
            if expected is not ANYTHING and self._version(partition, key) != expected:
                return Guarded.TAKEN
            self._store(partition, key, value)
            return Guarded.STORED

    def _delete(self, partition: str, key: bytes) -> None:
        with self._lock:
            self._remove(partition, key)

    def _delete_if(self, partition: str, key: bytes, expected: Version) -> bool:
        with self._lock:
            if self._version(partition, key) != expected:
                return False
            self._remove(partition, key)
            return True

    def _put_many(self, partition: str, items: dict[bytes, bytes]) -> None:
        with self._lock:
            for key, value in items.items():
                self._store(partition, key, value)

    def _delete_many(self, partition: str, keys: list[bytes]) -> None:
        with self._lock:
            for key in keys:
                self._remove(partition, key)

    def _record(self, partition: str, key: bytes) -> Record | None:
        found = self._partitions.get(partition)
        return None if found is None else found.records.get(key)

    def _version(self, partition: str, key: bytes) -> Version | None:
        record = self._record(partition, key)
        return None if record is None else record.version

    def _store(self, partition: str, key: bytes, value: bytes) -> None:
        found = self._partitions.setdefault(partition, _Partition())
        if key not in found.records:
            insort(found.keys, key)
        self._writes += 1
        found.records[key] = Record(value, Version(self._writes.to_bytes(8)))

    def _remove(self, partition: str, key: bytes) -> None:
        found = self._partitions.get(partition)
        if found is None or found.records.pop(key, None) is None:
            return
        del found.keys[bisect_left(found.keys, key)]
        if not found.keys:
            del self._partitions[partition]
