"""Stores that watch, and stores that fail: wrappers around any backend of either port, for tests.

`CountingBlobs` and `CountingKV` count calls. `FaultyBlobs` and `FaultyKV` ask `decide` about every call, and fail it as
told: before its effect, or after it, or in the middle. `on_call` runs first: a scheduler gives up the turn there.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from hashlib import blake2b
from typing import Final, NamedTuple, TypeVar

from esker.errors import Kind, OutcomeUnknownError, UnavailableError
from esker.stores.blob import BlobInfo, BlobStore
from esker.stores.kv import Anything, Guard, Guarded, Item, KVStore, Put, Record, Version

T = TypeVar("T")


class Fault(Enum):
    REFUSED = "refused"
    """Nothing happens, and the caller is told that."""
    LOST = "lost"
    """It happens, but the caller sees an error. Of a listing or a stream, the first item arrives."""
    HALF = "half"
    """Of a batch, the first half happens, and the caller sees an error. Anything else: as LOST."""


class Call(NamedTuple):
    method: str
    name: str
    """Of the blob (a listing's prefix, a batch's first name), or the partition."""
    key: bytes | None = None
    """In the key-value store: the record; None for a scan or a batch."""

    @property
    def writes(self) -> bool:
        return self.method not in _READS


_READS: Final = frozenset({"get", "get_range", "stream", "head", "list", "presign", "scan"})

Decide = Callable[[Call], Fault | None]
OnCall = Callable[[Call], None]


def at_random(seed: int, chance: float, faults: Sequence[Fault] = tuple(Fault)) -> Decide:
    """Any call may fail, by chance: a seed decides everything, given the order of the calls."""
    lock = threading.Lock()
    calls = 0

    def decide(_: Call) -> Fault | None:
        nonlocal calls
        with lock:
            calls += 1
            drawn = int.from_bytes(blake2b(f"{seed}/{calls}".encode(), digest_size=8).digest(), "big")
        if drawn % 2**32 >= chance * 2**32:
            return None
        return faults[(drawn >> 32) % len(faults)]

    return decide


class _Blobs(BlobStore):
    """Forwards every call through `_call`, or `_items` if it answers bit by bit."""

    def __init__(self, inner: BlobStore) -> None:
        self.inner = inner
        self.url = inner.url

    def _call(self, call: Call, action: Callable[[], T]) -> T:
        return action()

    def _items(self, call: Call, items: Iterator[T]) -> Iterator[T]:
        return items

    def get(self, name: str) -> bytes | None:
        return self._call(Call("get", name), lambda: self.inner.get(name))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        return self._call(Call("get_range", name), lambda: self.inner.get_range(name, start, length))

    def stream(self, name: str, start: int = 0, length: int | None = None) -> Iterator[bytes] | None:
        call = Call("stream", name)
        chunks = self._call(call, lambda: self.inner.stream(name, start, length))
        return None if chunks is None else self._items(call, chunks)

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._call(Call("put", name), lambda: self.inner.put(name, data))

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        return self._call(Call("put_stream", name), lambda: self.inner.put_stream(name, chunks))

    def head(self, name: str) -> BlobInfo | None:
        return self._call(Call("head", name), lambda: self.inner.head(name))

    def list(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        call = Call("list", prefix)
        return self._items(call, self._call(call, lambda: self.inner.list(prefix, after)))

    def delete(self, names: Iterable[str]) -> None:
        batch = [*names]
        self._call(Call("delete", batch[0] if batch else ""), lambda: self.inner.delete(batch))

    def copy(self, source: str, target: str) -> bool:
        return self._call(Call("copy", target), lambda: self.inner.copy(source, target))

    def presign(self, method: str, name: str, seconds: int) -> str | None:
        return self._call(Call("presign", name), lambda: self.inner.presign(method, name, seconds))

    def settle(self) -> None:
        self._call(Call("settle", ""), self.inner.settle)

    def drop_cached(self, name: str) -> bool:
        return self.inner.drop_cached(name)

    def close(self) -> None:
        self.inner.close()


class CountingBlobs(_Blobs):
    """Counts calls as they are made, and bytes as they pass."""

    def __init__(self, inner: BlobStore) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.names: Counter[tuple[str, str]] = Counter()
        """By method and name; a deleted batch by each of its names."""
        self.bytes_read = 0
        self.bytes_written = 0

    def reset(self) -> None:
        with self._lock:
            self.calls.clear()
            self.names.clear()
            self.bytes_read = self.bytes_written = 0

    def put(self, name: str, data: bytes | memoryview) -> None:
        super().put(name, data)
        self._passed(written=memoryview(data).nbytes)

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        size = super().put_stream(name, chunks)
        self._passed(written=size)
        return size

    def delete(self, names: Iterable[str]) -> None:
        batch = [*names]
        super().delete(batch)
        with self._lock:
            self.names.update(("delete", name) for name in batch[1:])  # the first was counted as the call's

    def _call(self, call: Call, action: Callable[[], T]) -> T:
        with self._lock:
            self.calls[call.method] += 1
            self.names[call.method, call.name] += 1
        answer = action()
        if isinstance(answer, bytes):
            self._passed(read=len(answer))
        return answer

    def _items(self, call: Call, items: Iterator[T]) -> Iterator[T]:
        for item in items:
            if isinstance(item, bytes):
                self._passed(read=len(item))
            yield item

    def _passed(self, read: int = 0, written: int = 0) -> None:
        with self._lock:
            self.bytes_read += read
            self.bytes_written += written


class FaultyBlobs(_Blobs):
    """Fails as `decide` says, always with `UnavailableError`: every write of this port may be repeated."""

    def __init__(self, inner: BlobStore, decide: Decide, on_call: OnCall | None = None) -> None:
        super().__init__(inner)
        self._decide = decide
        self._on_call = on_call

    def delete(self, names: Iterable[str]) -> None:
        batch = [*names]
        call = Call("delete", batch[0] if batch else "")
        fault = self._fault(call)
        if fault is not Fault.REFUSED:
            self.inner.delete(batch[: len(batch) // 2] if fault is Fault.HALF else batch)
        if fault is not None:
            raise _unavailable(call, fault)

    def stream(self, name: str, start: int = 0, length: int | None = None) -> Iterator[bytes] | None:
        call = Call("stream", name)
        fault = self._fault(call)
        if fault is Fault.REFUSED:
            raise _unavailable(call, fault)
        chunks = self.inner.stream(name, start, length)
        return None if chunks is None else self._cut(call, chunks, fault)

    def list(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        call = Call("list", prefix)
        fault = self._fault(call)
        if fault is Fault.REFUSED:
            raise _unavailable(call, fault)
        yield from self._cut(call, self.inner.list(prefix, after), fault)

    def _call(self, call: Call, action: Callable[[], T]) -> T:
        fault = self._fault(call)
        if fault is Fault.REFUSED:
            raise _unavailable(call, fault)
        answer = action()
        if fault is not None:
            raise _unavailable(call, fault)
        return answer

    def _cut(self, call: Call, items: Iterator[T], fault: Fault | None) -> Iterator[T]:
        """The items, or the first of them and an error. Others may act after each."""
        for item in items:
            yield item
            if fault is not None:
                break
            if self._on_call is not None:
                self._on_call(call)
        if fault is not None:
            raise _unavailable(call, fault)

    def _fault(self, call: Call) -> Fault | None:
        if self._on_call is not None:
            self._on_call(call)
        return self._decide(call)


class _KV(KVStore):
    """Forwards every call through `_call`. What passes is counted once, in the counts of the store within."""

    def __init__(self, inner: KVStore) -> None:
        super().__init__()
        self.inner = inner
        self.counts = inner.counts
        self.guards = inner.guards  # type: ignore[misc]  # a class says it for all its instances, this one cannot

    def _call(self, call: Call, action: Callable[[], T]) -> T:
        return action()

    def close(self) -> None:
        self.inner.close()

    def _get(self, partition: str, key: bytes) -> Record | None:
        return self._call(Call("get", partition, key), lambda: self.inner._get(partition, key))

    def _scan(self, partition: str, start: bytes, limit: int) -> list[Item]:
        return self._call(Call("scan", partition), lambda: self.inner._scan(partition, start, limit))

    def _put(self, partition: str, key: bytes, value: bytes) -> None:
        self._call(Call("put", partition, key), lambda: self.inner._put(partition, key, value))

    def _put_if(self, partition: str, key: bytes, value: bytes, expected: Version | None, also: Sequence[Put]) -> bool:
        return self._call(
            Call("put_if", partition, key), lambda: self.inner._put_if(partition, key, value, expected, also)
        )

    def _put_guarded(
        self, partition: str, key: bytes, value: bytes, guard: Guard, expected: Version | None | Anything
    ) -> Guarded:
        return self._call(
            Call("put_guarded", partition, key),
            lambda: self.inner._put_guarded(partition, key, value, guard, expected),
        )

    def _delete(self, partition: str, key: bytes) -> None:
        self._call(Call("delete", partition, key), lambda: self.inner._delete(partition, key))

    def _delete_if(self, partition: str, key: bytes, expected: Version) -> bool:
        return self._call(Call("delete_if", partition, key), lambda: self.inner._delete_if(partition, key, expected))

    def _put_many(self, partition: str, items: dict[bytes, bytes]) -> None:
        self._call(Call("put_many", partition), lambda: self.inner._put_many(partition, items))

    def _delete_many(self, partition: str, keys: list[bytes]) -> None:
        self._call(Call("delete_many", partition), lambda: self.inner._delete_many(partition, keys))


class CountingKV(_KV):
    """Counts calls exactly, by method and by full partition, where `counts` lumps kinds together."""

    def __init__(self, inner: KVStore) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.partitions: Counter[tuple[str, str]] = Counter()
        """By method and partition."""

    def reset(self) -> None:
        with self._lock:
            self.calls.clear()
            self.partitions.clear()

    def _call(self, call: Call, action: Callable[[], T]) -> T:
        with self._lock:
            self.calls[call.method] += 1
            self.partitions[call.method, call.name] += 1
        return action()


class FaultyKV(_KV):
    """Fails as `decide` says: a write that may have been applied with `OutcomeUnknownError`, all else with
    `UnavailableError`.
    """

    def __init__(self, inner: KVStore, decide: Decide, on_call: OnCall | None = None) -> None:
        super().__init__(inner)
        self._decide = decide
        self._on_call = on_call

    def _put_many(self, partition: str, items: dict[bytes, bytes]) -> None:
        half = dict([*items.items()][: len(items) // 2])
        self._batch(
            Call("put_many", partition),
            lambda: self.inner._put_many(partition, items),
            lambda: self.inner._put_many(partition, half),
        )

    def _delete_many(self, partition: str, keys: list[bytes]) -> None:
        half = keys[: len(keys) // 2]
        self._batch(
            Call("delete_many", partition),
            lambda: self.inner._delete_many(partition, keys),
            lambda: self.inner._delete_many(partition, half),
        )

    def _call(self, call: Call, action: Callable[[], T]) -> T:
        return self._batch(call, action, action)

    def _batch(self, call: Call, action: Callable[[], T], half: Callable[[], T]) -> T:
        if self._on_call is not None:
            self._on_call(call)
        fault = self._decide(call)
        if fault is Fault.REFUSED:
            raise _unavailable(call, fault)
        answer = half() if fault is Fault.HALF else action()
        if fault is not None:
            raise _outcome_unknown(call, fault) if call.writes else _unavailable(call, fault)
        return answer


def _unavailable(call: Call, fault: Fault) -> UnavailableError:
    return UnavailableError(Kind.STORE_UNAVAILABLE, f"{call.method} of {call.name!r}: {fault.value}, as injected")


def _outcome_unknown(call: Call, fault: Fault) -> OutcomeUnknownError:
    return OutcomeUnknownError(message=f"{call.method} of {call.name!r}: {fault.value}, as injected")
