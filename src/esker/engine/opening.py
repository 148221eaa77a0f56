"""Opening a lake by URL: the stores, what its processes share of them, and giving all of it back."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from esker.activity import Pool
from esker.engine import metrics, repositories
from esker.engine.lake import Lake
from esker.errors import InvalidError, Kind
from esker.model import Entry, FileName, Repository
from esker.settings import DEFAULTS, Settings
from esker.stores.blob import BlobStore
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.blob_watched import WatchedBlobs
from esker.stores.cache import MemoryCache
from esker.stores.open_blobs import open_blobs
from esker.stores.open_kv import open_kv, sqlite_url
from esker.tree.past import StoredPast
from esker.tree.trees import Cached, Trees
from esker.world import REAL, World

_DATABASE: Final = "esker.db"

_PUTS: Final = 32
"""Files that are stored at once, each by a thread that waits: a disk flushes for so many about as fast as for one."""


class Opened(NamedTuple):
    lake: Lake
    close: Callable[[], None]
    """Gives back connections and threads. The lake is not used after."""


def directory_of(url: str) -> Path | None:
    """Where the lake lies, if it is in a directory of this machine."""
    scheme, separator, rest = url.partition("://")
    if not separator or (scheme == "file" and not rest.startswith("/")):
        raise InvalidError(
            Kind.INVALID_URL,
            f"{url!r} is no URL of a lake: write file:///absolute/directory, s3://bucket/prefix or memory://",
        )
    return Path(unquote(urlsplit(url).path)) if scheme == "file" else None


def database_of(url: str) -> str:
    """The URL of the key-value store that a lake keeps by itself. InvalidError if it has no place for one."""
    directory = directory_of(url)
    if directory is not None:
        return sqlite_url(directory / _DATABASE)
    if url.startswith("memory:"):
        return "memory://"
    raise InvalidError(
        Kind.INVALID_ARGUMENT,
        f"{url} has no place for refs: name a key-value store, such as kv='postgresql://...' or "
        "kv='sqlite:///path/refs.db'",
    )


def lacks_database(url: str) -> bool:
    """Whether the lake would keep its refs in a directory of this machine, and there are none: nobody made it yet."""
    return directory_of(url) is not None and not Path(unquote(database_of(url).removeprefix("sqlite://"))).exists()


def open_stores(url: str, *, kv: str | None = None, settings: Settings = DEFAULTS, world: World = REAL) -> Opened:
    """The lake whose repositories lie below `url`, with its refs in the store at `kv`, or in its own."""
    directory_of(url)
    store = open_kv(kv or database_of(url), world)
    pool, puts = (
        Pool(threads, on_queued=metrics.POOL_QUEUED.inc, on_busy=metrics.POOL_BUSY.inc, name=name)
        for name, threads in (("esker", settings.threads), ("esker-puts", max(_PUTS, settings.threads)))
    )
    cache: MemoryCache[str, Cached] = MemoryCache(settings.cache_bytes, name="trees")
    found: dict[tuple[FileName, str], Entry] | None = {} if settings.cache_bytes else None

    def open_past(repo: Repository) -> StoredPast:
        blobs = lake.blobs(repo)
        cutting = repositories.cutting_of(repo)
        trees = Trees(blobs, cutting, cache=cache, pool=pool, puts=puts, world=world)
        return StoredPast(trees, found)

    def close() -> None:
        pool.shutdown()
        puts.shutdown()
        store.close()

    lake = Lake(kv=store, open_past=open_past, open_blobs=_open_blobs, settings=settings, world=world, pool=pool)
    return Opened(lake, close)


def _open_blobs(url: str) -> BlobStore:
    return WatchedBlobs(MemoryBlobs() if url.startswith("memory://") else open_blobs(url))
