"""What the tests of the engine share: lakes on any store, with any settings, and what a ref shows as a dict."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from esker.engine import changes, entries, repositories
from esker.engine.cleaning import Cleaner
from esker.engine.lake import Lake
from esker.errors import EskerError, Kind
from esker.model import CommitID, Entry, Repository
from esker.settings import Settings
from esker.stores.blob import BlobStore
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.cache import MemoryCache
from esker.stores.kv import SCAN_LIMIT_MAX, KVStore
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import entries_in
from esker.tree.cutting import Cutting
from esker.tree.past import Past, StoredPast
from esker.tree.trees import Cached, Trees
from esker.world import REAL, RealWorld, World

POOL: Final = ThreadPoolExecutor(4)

TINY: Final = Cutting(entries_mean=2, entries_max=3, bytes_max=1 << 20)

AT_ONCE: Final = Settings(grace_s=0.0)
"""What fell off a branch may be taken away at once, so a reader that relies on it is caught."""

Shown = dict[str, Entry]


class Inline(Executor):
    """A pool without threads: everything happens in one order."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result is told
            future.set_exception(error)
        return future


class NoGuardsKV(MemoryKV):
    """As DynamoDB: one record at a time, so the engine looks again after each write."""

    guards = False


class Clock(RealWorld):
    """Time that passes only when told to, and the same ids each time. Nobody waits."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.ms = 1_700_000_000_000
        self._drawn = itertools.count()

    def now_ms(self) -> int:
        self.ms += 1
        return self.ms

    def monotonic_s(self) -> float:
        return self.passed_s

    def sleep(self, seconds: float) -> None:
        pass

    def token(self, n_bytes: int) -> str:
        return blake2b(str(next(self._drawn)).encode(), digest_size=n_bytes).hexdigest()

    def chance(self) -> float:
        return 0.5


class Setup(NamedTuple):
    """A lake on its stores, and a repository in it."""

    lake: Lake
    repo: Repository
    kv: KVStore
    blobs: BlobStore

    def again(self, kv: KVStore | None = None, blobs: BlobStore | None = None, world: World | None = None) -> Lake:
        """Another lake on the same stores, as another process would have: nothing is cached. Or on wrappers of them."""
        return open_lake(kv or self.kv, blobs or self.blobs, self.lake.settings, world or self.lake.world)


def open_lake(
    kv: KVStore | None = None,
    blobs: BlobStore | None = None,
    settings: Settings = AT_ONCE,
    world: World = REAL,
    past: Past | None = None,
) -> Lake:
    """`past`: one that is open, to share what it has cached."""
    kv, blobs = kv or MemoryKV(), blobs or MemoryBlobs()

    def open_past(repo: Repository) -> Past:
        if past is not None:
            return past
        cache: MemoryCache[str, Cached] = MemoryCache(settings.cache_bytes)
        pool = Inline() if isinstance(world, Clock) else POOL  # who sets the clock wants the same ids each time
        return StoredPast(Trees(blobs, repositories.cutting_of(repo), cache=cache, pool=pool, world=world))

    return Lake(kv=kv, open_past=open_past, open_blobs=lambda _: blobs, settings=settings, world=world)


def new_setup(
    kv: KVStore | None = None,
    blobs: BlobStore | None = None,
    settings: Settings = AT_ONCE,
    world: World = REAL,
    cutting: Cutting = TINY,
) -> Setup:
    """With a repository whose branch `main` has nothing on it."""
    kv, blobs = kv or MemoryKV(), blobs or MemoryBlobs()
    lake = open_lake(kv, blobs, settings, world)
    name = f"repo-{world.token(6)}"
    return Setup(lake, repositories.create(lake, name, f"memory://{name}", cutting=cutting), kv, blobs)


def copy_of(setup: Setup) -> Setup:
    """The same in stores of their own. What never changes is shared."""
    assert isinstance(setup.kv, MemoryKV)
    assert isinstance(setup.blobs, MemoryBlobs)
    kv, blobs = type(setup.kv)(), MemoryBlobs()
    kv._writes = setup.kv._writes
    for name, partition in setup.kv._partitions.items():
        copied = kv._partitions[name] = type(partition)()
        copied.keys = [*partition.keys]
        copied.records = {**partition.records}
    blobs._blobs = {**setup.blobs._blobs}
    return Setup(open_lake(kv, blobs, setup.lake.settings, setup.lake.world), setup.repo, kv, blobs)


def entry(path: str, content: int | str = 0, place: int | str = 0) -> Entry:
    """An entry told apart by its content, or only by where its bytes are."""
    return Entry(path=path, address=f"data/{place}", size=1, checksum=str(content), mtime_ms=0)


def put(lake: Lake, repo: Repository, branch: str, *paths: str, content: int | str = 0) -> None:
    for path in paths:
        entries.put(lake, repo, branch, entry(path, content))


def shown(lake: Lake, repo: Repository, ref: str, amount: int = 1000) -> Shown:
    """All that a ref shows, page by page."""
    found: list[Entry] = []
    after: str | None = ""
    while after is not None:
        page = entries.listing(lake, repo, ref, after=after, amount=amount)
        found += [item for item in page.items if isinstance(item, Entry)]
        after = page.next
    assert [item.path for item in found] == sorted({item.path for item in found}), "a listing is in order"
    return {item.path: item for item in found}


def contents(lake: Lake, repo: Repository, ref: str) -> dict[str, str]:
    return {path: found.checksum for path, found in shown(lake, repo, ref).items()}


def committed(lake: Lake, repo: Repository, commit: CommitID) -> Shown:
    """The whole tree of a commit: every file of it is read."""
    tree = lake.commits(repo).get(commit).tree
    return {found.path: found for table in lake.past(repo).scan(tree) for found in entries_in(table)}


def head(lake: Lake, repo: Repository, branch: str = "main") -> CommitID:
    return lake.branches(repo).get(branch).commit


def uncommitted(lake: Lake, repo: Repository, branch: str = "main") -> list[str]:
    return [change.path for change in changes.uncommitted(lake, repo, branch).items]


def history_of(lake: Lake, repo: Repository, branch: str = "main") -> Iterator[CommitID]:
    """The branch's commits, newest first, along first parents."""
    commit: CommitID | None = head(lake, repo, branch)
    while commit is not None:
        yield commit
        parents = lake.commits(repo).get(commit).parents
        commit = parents[0] if parents else None


def kind_of(call: Callable[[], object]) -> Kind | None:
    """The kind of error that a call raises; None if it succeeds."""
    try:
        call()
    except EskerError as error:
        return error.kind
    return None


def staged_partitions(kv: KVStore) -> set[str]:
    """The staging partitions of a store in memory that hold anything."""
    assert isinstance(kv, MemoryKV)
    return {name for name in kv._partitions if name.startswith("staging/")}


def assert_nothing_leaked(setup: Setup) -> None:
    """After rounds of a cleaner with no grace, until it finds nothing, staging holds what the branches' records name,
    and nothing else."""
    lake, repo, kv, blobs = setup
    cleaner = Cleaner(lake, repo)
    while cleaner.run():
        pass
    records = [record for _, record in lake.branches(repo).page("", 1000, deleted=True)]
    layers = [layer for record in records for layer in (*record.layers, record.open_layer)]
    layers += [layer for record in records for stash in record.stashes.values() for layer in stash.layers]
    assert staged_partitions(kv) <= {f"staging/{layer.token}" for layer in layers if layer.token}
    files = {file for layer in layers for file in layer.files}
    found = {info.name for info in blobs.list("_esker/staging/")}
    assert found == {f"_esker/staging/{file}.sst" for file in files}, (found, files)
    assert {item.key.decode() for item in kv.scan(f"filters/{repo.uid}", limit=SCAN_LIMIT_MAX)} <= files
    assert not any(record.deleted for record in records), "a tombstone goes when nothing is left of it"
    assert all(not record.dropped for record in records)
    assert not kv.scan(f"cleanup/{repo.uid}")
