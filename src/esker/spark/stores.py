"""A repository's stores, as executors open them: once in each of Spark's Python processes.

What travels to an executor is a `Place`, which names the store; nothing that is open does, and no credentials: each
machine has its own in its environment (`spark.executorEnv.AWS_...` sets it), or its own identity. Executors read and
write files. Refs are the driver's alone.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Final, Self

from esker.engine import repositories
from esker.errors import InvalidError, Kind
from esker.model import Repository
from esker.stores.blob import BlobStore
from esker.stores.cache import MemoryCache
from esker.stores.open_blobs import open_blobs, split_url
from esker.tree.cutting import Cutting
from esker.tree.trees import Cached, Trees

_CACHE_BYTES: Final = 64 << 20
_THREADS: Final = 4
"""Of one executor's process. There is one for each core."""


@dataclass(frozen=True)
class Place:
    """Where a repository keeps its files, and how its trees are cut. Small, and picklable."""

    url: str
    cutting: Cutting

    @classmethod
    def of(cls, repo: Repository) -> Self:
        """InvalidError if no other process could open it."""
        if repo.namespace.startswith("memory:"):
            raise InvalidError(
                Kind.INVALID_ARGUMENT,
                f"repository {repo.name!r} is in the memory of one process, where Spark's executors cannot see it",
            )
        return cls(repo.namespace, repositories.cutting_of(repo))

    def blobs(self) -> BlobStore:
        """The store of the repository's own blobs, rooted at its namespace. Not to be closed."""
        return _store(self.url)

    def locate(self, address: str) -> tuple[BlobStore, str]:
        """Where the bytes of an entry lie: a store, and a name in it. An address that is a URL lies elsewhere."""
        if "://" not in address:
            return self.blobs(), address
        root, name = split_url(address)
        return _store(root), name

    def store(self, url: str) -> BlobStore:
        """The store at a URL. Not to be closed."""
        return _store(url)

    def open(self, url: str) -> BlobStore:
        """A store of the caller's own, to be closed: of URLs that come and go."""
        return open_blobs(url)

    def trees(self) -> Trees:
        """The repository's trees."""
        return _trees(self)


@cache
def _store(url: str) -> BlobStore:
    return open_blobs(url)


@cache
def _trees(place: Place) -> Trees:
    cached: MemoryCache[str, Cached] = MemoryCache(_CACHE_BYTES)
    pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="esker")
    return Trees(place.blobs(), place.cutting, cache=cached, pool=pool)
