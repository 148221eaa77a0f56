"""Caches for what never changes: decoded ranges in memory, whole blobs of a remote store on local disk.

Nothing here checks freshness, so a name must stand for the same bytes for ever; and nothing here is trusted: a reader
verifies what it reads by its name, and after damage calls `drop` (`drop_cached` of a store) and reads once more.
"""

import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from typing import Final, Generic, TypeVar

from esker import activity
from esker.counting import Counter
from esker.stores.blob import BlobInfo, BlobStore, check_name, check_range
from esker.world import REAL, World

K = TypeVar("K")
V = TypeVar("V")

_READS: Final = Counter(
    "esker_cache_reads",
    "Looks into the caches in memory, by whether it was there; not, of what was just written, too.",
    ["cache", "hit"],
)

_FILE_PREFIX: Final = "esker-"
"""Of the disk cache's files: what is called otherwise is somebody else's, and not to be evicted."""

_FILE_BYTES_MAX: Final = 1 << 30
"""One call reads it, and whoever reads more than this at once should not."""

_DELETE_BATCH: Final = 1000


class MemoryCache(Generic[K, V]):
    """Values by key, least recently used out first once their sizes add up to more than `bytes_max`.

    Readers of one key at the same time load it once. Nothing is cached with `bytes_max` 0, but loads are still shared.
    """

    def __init__(self, bytes_max: int, *, name: str = "") -> None:
        """One with a name is counted for Prometheus."""
        self.bytes_max = bytes_max
        self._hit = _READS.labels(name, "true") if name else None
        self._miss = _READS.labels(name, "false") if name else None
        self.bytes_used = 0
        self.hits = 0
        self.misses = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._flights: dict[K, _Flight[V]] = {}

    def get_or_load(self, key: K, load: Callable[[], tuple[V, int]]) -> V:
        """The cached value, else what `load` returns: a value and its size in bytes, at least 1.

        A value above `bytes_max` passes through uncached. If `load` raises, so does every call that waited for it, and
        the next call loads again.
        """
        while True:
            with self._lock:
                entry = self._entries.get(key)
                if entry is not None:
                    self._entries.move_to_end(key)
                    self.hits += 1
                    break
                flight = self._flights.get(key)
                if flight is None:
                    self.misses += 1
                    flight = self._flights[key] = _Flight(threading.get_ident())
                    break
            if flight.thread == threading.get_ident():
                # Waiting for one's own thread would last for ever: another greenlet of it, in a simulation, is loading.
                return load()[0]
            try:
                return flight.outcome.result()
            except CancelledError:
                continue  # the loading thread was interrupted, which says nothing about the key
        if entry is not None:
            if self._hit:
                self._hit.inc()
            return entry[0]
        assert flight is not None
        if self._miss:
            self._miss.inc()
        activity.count("cache_misses")
        return self._load(key, flight, load)

    def get(self, key: K) -> V | None:
        """The cached value, if there is one. Neither loads it nor makes it more recently used."""
        with self._lock:
            entry = self._entries.get(key)
        if entry is None:
            return None
        if self._hit:
            self._hit.inc()
        return entry[0]

    def drop(self, key: K) -> None:
        """Forget the key. A load under way is finished for those who wait for it, but not cached."""
        with self._lock:
            self._flights.pop(key, None)
            entry = self._entries.pop(key, None)
            if entry is not None:
                self.bytes_used -= entry[1]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._flights.clear()
            self._entries, forgotten = OrderedDict(), self._entries
            self.bytes_used = 0
        del forgotten  # freed outside of the lock: it may be much

    def __len__(self) -> int:
        return len(self._entries)

    def _load(self, key: K, flight: "_Flight[V]", load: Callable[[], tuple[V, int]]) -> V:
        try:
            value, size = load()
            assert size > 0, "a value that costs nothing could be cached without bound"
        except BaseException as error:
            self._land(key, flight)
            if isinstance(error, Exception):
                flight.outcome.set_exception(error)
            else:
                flight.outcome.cancel()
            raise
        evicted = self._land(key, flight, (value, size))
        flight.outcome.set_result(value)
        del evicted  # freed outside of the lock, as in `clear`
        return value

    def _land(self, key: K, flight: "_Flight[V]", entry: tuple[V, int] | None = None) -> list[tuple[V, int]]:
        """End the flight and cache what it brought, unless it was dropped on the way. What had to go for it."""
        evicted: list[tuple[V, int]] = []
        with self._lock:
            if self._flights.get(key) is not flight:
                return evicted
            del self._flights[key]
            if entry is None or entry[1] > self.bytes_max:
                return evicted
            self._entries[key] = entry
            self.bytes_used += entry[1]
            while self.bytes_used > self.bytes_max:
                evicted.append(self._entries.popitem(last=False)[1])
                self.bytes_used -= evicted[-1][1]
        return evicted


class _Flight(Generic[V]):
    """A load under way."""

    __slots__ = ("outcome", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.outcome: Future[V] = Future()


class DiskCache(BlobStore):
    """A store behind a directory of whole blobs, read last longest kept: for a remote store of blobs that never change.

    `get` keeps what it fetched; `get_range` uses what is kept, and keeps nothing, so the reader decides what is worth a
    place; all else goes to the store. The directory may be shared by processes and by caches of other stores, and may
    be damaged or deleted at any time. It holds about `bytes_max` bytes, an eighth more for each process beyond the
    first.
    """

    def __init__(
        self, store: BlobStore, directory: str | os.PathLike[str], bytes_max: int, world: World = REAL
    ) -> None:
        self.url = store.url
        self.bytes_max = bytes_max
        self._store = store
        self._directory = os.fspath(directory)
        self._world = world
        self._fetches = MemoryCache[str, bytes | None](0)
        self._lock = threading.Lock()
        self._room = 0  # how much may be kept before looking again at how full the directory is

    def get(self, name: str) -> bytes | None:
        data = self._kept(name)
        if data is not None:
            return data
        return self._fetches.get_or_load(name, lambda: (self._fetch(name), 1))

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        check_range(start, length)
        data = self._kept(name, start, length)
        return self._store.get_range(name, start, length) if data is None else data

    def drop_cached(self, name: str) -> bool:
        """Always True: another may have dropped the same damage a moment ago, and this reader must read again too."""
        self._fetches.drop(name)
        with suppress(OSError):
            os.unlink(self._path(name))
        self._store.drop_cached(name)
        return True

    def stream(self, name: str, start: int = 0, length: int | None = None) -> Iterator[bytes] | None:
        return self._store.stream(name, start, length)

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._store.put(name, data)
        self.drop_cached(name)

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        size = self._store.put_stream(name, chunks)
        self.drop_cached(name)
        return size

    def head(self, name: str) -> BlobInfo | None:
        return self._store.head(name)

    def list(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        return self._store.list(prefix, after)

    def list_all(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        return self._store.list_all(prefix, after)

    def delete(self, names: Iterable[str]) -> None:
        remaining = iter(names)
        while batch := [*islice(remaining, _DELETE_BATCH)]:
            self._store.delete(batch)
            for name in batch:
                self.drop_cached(name)

    def copy(self, source: str, target: str) -> bool:
        copied = self._store.copy(source, target)
        self.drop_cached(target)
        return copied

    def presign(self, method: str, name: str, seconds: int) -> str | None:
        return self._store.presign(method, name, seconds)

    def settle(self) -> None:
        self._store.settle()

    def close(self) -> None:
        self._store.close()

    def _path(self, name: str) -> str:
        return f"{self._directory}/{_FILE_PREFIX}{sha256(f'{self.url}/{name}'.encode()).hexdigest()}"

    def _kept(self, name: str, start: int = 0, length: int | None = None) -> bytes | None:
        """What the directory has of the blob. Whatever goes wrong there, the store has it too."""
        try:
            fd = os.open(self._path(check_name(name)), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return None
            with suppress(OSError):  # another user's file may be read, but not touched
                os.utime(fd)
            rest = max(0, found.st_size - start)
            length = rest if length is None else min(length, rest)
            data = os.pread(fd, length, start) if length else b""
            return data if len(data) == length else None
        except OSError:
            return None
        finally:
            os.close(fd)

    def _fetch(self, name: str) -> bytes | None:
        data = self._kept(name)
        if data is not None:
            return data  # another's fetch ended between this reader's look and its own fetch
        data = self._store.get(name)
        if data is not None and len(data) <= min(self.bytes_max, _FILE_BYTES_MAX):
            with suppress(OSError):  # a full or read-only disk only means that nothing is kept
                self._keep(self._path(name), data)
        return data

    def _keep(self, path: str, data: bytes) -> None:
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        self._make_room(len(data))
        temporary = f"{path}.{self._world.token(8)}"  # if it is left over, it ages and is evicted like the others
        try:
            with open(temporary, "xb") as file:
                file.write(data)
            os.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _make_room(self, size: int) -> None:
        """Evict so that a file of this size fits, and the next few need not look."""
        step = self.bytes_max // 8
        with self._lock:
            self._room -= size
            if self._room >= 0:
                return
            files = sorted(self._files())
            excess = sum(size for _, size, _ in files) + max(size, step) - self.bytes_max
            for _, freed, path in files:
                if excess <= 0:
                    break
                with suppress(FileNotFoundError):
                    os.unlink(path)
                excess -= freed
            self._room = max(0, step - size)

    def _files(self) -> Iterator[tuple[int, int, str]]:
        """When last read, size and path of all that is kept."""
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if entry.name.startswith(_FILE_PREFIX):
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        yield found.st_mtime_ns, found.st_size, entry.path
