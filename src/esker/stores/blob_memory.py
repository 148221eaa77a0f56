"""Blobs in a dict: for tests, and for lakes that need not outlive the process."""

import threading
from collections.abc import Iterable, Iterator

from esker.stores.blob import CHUNK_BYTES, BlobInfo, BlobStore, check_name, check_range
from esker.world import REAL, World


class MemoryBlobs(BlobStore):
    """Each instance is a store of its own."""

    def __init__(self, world: World = REAL) -> None:
        self.url = "memory://"
        self._world = world
        self._lock = threading.Lock()
        self._blobs: dict[str, tuple[bytes, int]] = {}

    def get(self, name: str) -> bytes | None:
        blob = self._blobs.get(check_name(name))
        return None if blob is None else blob[0]

    def get_range(self, name: str, start: int, length: int) -> bytes | None:
        check_range(start, length)
        data = self.get(name)
        return None if data is None else data[start : start + length]

    def stream(self, name: str, start: int = 0, length: int | None = None) -> Iterator[bytes] | None:
        check_range(start, length)
        data = self.get(name)
        if data is None:
            return None
        end = len(data) if length is None else min(len(data), start + length)
        return (data[at : min(at + CHUNK_BYTES, end)] for at in range(start, end, CHUNK_BYTES))

    def put(self, name: str, data: bytes | memoryview) -> None:
        check_name(name)
        blob = (bytes(data), self._world.now_ms())
        with self._lock:
            self._blobs[name] = blob

    def put_stream(self, name: str, chunks: Iterable[bytes]) -> int:
        check_name(name)
        data = b"".join(chunks)
        self.put(name, data)
        return len(data)

    def head(self, name: str) -> BlobInfo | None:
        blob = self._blobs.get(check_name(name))
        return None if blob is None else BlobInfo(name, len(blob[0]), blob[1])

    def list(self, prefix: str = "", after: str = "") -> Iterator[BlobInfo]:
        with self._lock:
            # Text sorts by code point, which is the byte order of its UTF-8.
            names = sorted(name for name in self._blobs if name.startswith(prefix) and name > after)
        for name in names:
            info = self.head(name)
            if info is not None:
                yield info

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            check_name(name)
            with self._lock:
                self._blobs.pop(name, None)

    def copy(self, source: str, target: str) -> bool:
        check_name(target)
        data = self.get(source)
        if data is None:
            return False
        self.put(target, data)
        return True
