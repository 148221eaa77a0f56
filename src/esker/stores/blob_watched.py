"""A store that is counted: calls with their time, and bytes as they pass, for Prometheus and the activity at hand."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeVar

from esker import activity
from esker.counting import Counter, Histogram
from esker.stores.blob import BlobInfo, BlobStore, Multipart
from esker.world import REAL

T = TypeVar("T")

_SECONDS: Final = Histogram(
    "esker_blob_seconds",
    "Calls of the object store, and the time until they answered; of a stream or a listing, until it began.",
    ["operation"],
    buckets=(0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)
_READ: Final = Counter("esker_blob_read_bytes", "Bytes read from the object store.")
_WRITTEN: Final = Counter("esker_blob_written_bytes", "Bytes written to the object store.")


class WatchedBlobs(BlobStore):
    """Forwards every call."""

    def __init__(self, inner: BlobStore) -> None:
        self.url = inner.url
        self._inner = inner

    def get(self, name: str) -> bytes | None:
        return _read(_called("get", lambda: self._inner.get(name)))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        return _read(_called("get_range", lambda: self._inner.get_range(name, start, length)))

    def stream(self, name: str, start: int = 0, length: int | None = None) -> Iterator[bytes] | None:
        chunks = _called("stream", lambda: self._inner.stream(name, start, length))
        return None if chunks is None else _passing(chunks)

    def put(self, name: str, data: bytes | memoryview) -> None:
        _called("put", lambda: self._inner.put(name, data))
        _written(memoryview(data).nbytes)

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        size = _called("put_stream", lambda: self._inner.put_stream(name, chunks))
        _written(size)
        return size

    def head(self, name: str) -> BlobInfo | None:
        return _called("head", lambda: self._inner.head(name))

    def list(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        return _called("list", lambda: self._inner.list(prefix, after))

    def list_all(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        return _called("list", lambda: self._inner.list_all(prefix, after))

    def delete(self, names: Iterable[str]) -> None:
        _called("delete", lambda: self._inner.delete(names))

    def copy(self, source: str, target: str) -> bool:
        return _called("copy", lambda: self._inner.copy(source, target))

    def presign(self, method: str, name: str, seconds: int) -> str | None:
        return self._inner.presign(method, name, seconds)

    def multipart(self) -> Multipart | None:
        return self._inner.multipart()

    def settle(self) -> None:
        _called("settle", self._inner.settle)

    def drop_cached(self, name: str) -> bool:
        return self._inner.drop_cached(name)

    def close(self) -> None:
        self._inner.close()


@activity.timed("blob")
def _called(operation: str, call: Callable[[], T]) -> T:
    activity.count("blob_calls")
    begun_s = REAL.monotonic_s()
    try:
        return call()
    finally:
        _histogram(operation).observe(REAL.monotonic_s() - begun_s)


@lru_cache(maxsize=32)
def _histogram(operation: str) -> Histogram:
    return _SECONDS.labels(operation)


def _read(data: bytes | None) -> bytes | None:
    if data:
        _READ.inc(len(data))
        activity.count("blob_bytes_read", len(data))
    return data


def _written(size: int) -> None:
    _WRITTEN.inc(size)
    activity.count("blob_bytes_written", size)


def _passing(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """As they come: from a generator that gives back what it holds when this one is closed."""
    try:
        for chunk in chunks:
            _read(chunk)
            yield chunk
    finally:
        if close := getattr(chunks, "close", None):
            close()
