"""A lake, opened: the stores, and what the verbs share. Frozen; every verb is a function over it."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from esker.model import Layer, Repository
from esker.refs.branches import Branches
from esker.refs.commits import Commits
from esker.refs.records import Branch
from esker.settings import DEFAULTS, Settings
from esker.staging.filters import Filters
from esker.staging.stack import Stack
from esker.staging.tables import Tables
from esker.stores.blob import BlobStore
from esker.stores.kv import KVStore
from esker.stores.open_blobs import open_blobs, split_url
from esker.tree.past import Past
from esker.world import REAL, World

V = TypeVar("V")

BRANCHES_MAX: Final = 10_000
"""Of which a process keeps more than what its callers hold."""


@dataclass(frozen=True)
class Lake:
    """`open_past` opens the trees of a repository; what it returns is kept, and shared by threads."""

    kv: KVStore
    open_past: Callable[[Repository], Past]
    open_blobs: Callable[[str], BlobStore] = open_blobs
    """From a URL. What it returns is kept, too."""
    settings: Settings = DEFAULTS
    world: World = REAL
    pool: Executor | None = None
    """For work that nobody waits for. Nothing that runs in it may wait for it."""
    remembered: dict[tuple[str, bytes], tuple[float, Any]] = field(default_factory=dict)
    """Settings of repositories, and when they were read: for `engine.protection`."""
    open_tokens: dict[tuple[str, str], Branch] = field(default_factory=dict)
    """Of branches that were written to: for `engine.entries`."""
    lines: dict[tuple[str, str], Any] = field(default_factory=dict)
    """For `engine.landing`."""
    memstores: dict[tuple[str, str], Any] = field(default_factory=dict)
    """For `engine.memstore`."""
    claims: dict[tuple[str, str], tuple[str, float]] = field(default_factory=dict)
    """The claim last seen on a branch, and when first: for `engine.compaction`."""
    sensors: dict[str, Any] = field(default_factory=dict)
    """For `engine.sensor`: one."""
    readers: dict[str, Any] = field(default_factory=dict)
    """For `engine.readahead`: one."""
    cleaners: dict[str, Any] = field(default_factory=dict)
    """For `engine.cleaning`."""
    _stores: dict[str, BlobStore] = field(default_factory=dict)
    _pasts: dict[str, Past] = field(default_factory=dict)
    _tables: dict[str, Tables] = field(default_factory=dict)
    _branches: dict[str, Branches] = field(default_factory=dict)
    _commits: dict[str, Commits] = field(default_factory=dict)

    def past(self, repo: Repository) -> Past:
        """The repository's trees."""
        found = self._pasts.get(repo.uid)
        if found is None:
            found = self._pasts.setdefault(repo.uid, self.open_past(repo))
        return found

    def tables(self, repo: Repository) -> Tables:
        """The tables of its branches' layers."""
        found = self._tables.get(repo.uid)
        if found is None:
            found = self._tables.setdefault(repo.uid, Tables(self.past(repo), Filters(self.kv, repo.uid)))
        return found

    def blobs(self, repo: Repository) -> BlobStore:
        """The store of the repository's own blobs, rooted at its namespace."""
        return self.store(repo.namespace)

    def locate(self, repo: Repository, address: str) -> tuple[BlobStore, str]:
        """Where the bytes of an entry lie: a store, and a name in it. An address that is a URL lies elsewhere."""
        if "://" not in address:
            return self.blobs(repo), address
        root, name = split_url(address)
        return self.store(root), name

    def store(self, url: str) -> BlobStore:
        """The store at a URL."""
        found = self._stores.get(url)
        if found is None:
            found = self._stores.setdefault(url, self.open_blobs(url))
        return found

    def branches(self, repo: Repository) -> Branches:
        """The repository's branch records."""
        found = self._branches.get(repo.uid)
        if found is None:
            found = self._branches.setdefault(repo.uid, Branches(self.kv, self.world, repo.name, repo.uid))
        return found

    def commits(self, repo: Repository) -> Commits:
        """The repository's commits, through a cache."""
        found = self._commits.get(repo.uid)
        if found is None:
            found = self._commits.setdefault(repo.uid, Commits(self.kv, repo.uid))
        return found

    def stack(self, repo: Repository, record: Branch) -> Stack:
        """What is staged on a branch, as the record has it."""
        if self.settings.dirty_read_optimization or record.dirty:
            return self.stack_of(repo, record.layers)
        return self.stack_of(repo, (record.open_layer, *record.layers))

    def stack_of(self, repo: Repository, layers: tuple[Layer, ...]) -> Stack:
        """These layers, newest first, to read."""
        return Stack(self.kv, self.tables(repo), layers)


def kept(states: dict[tuple[str, str], V], key: tuple[str, str], make: Callable[[], V]) -> V:
    """What is kept of a branch, made if nothing is. When it is too many, all are forgotten: it may only make work
    cheaper, and whoever is at one goes on with it, as another process would."""
    found = states.get(key)
    if found is None:
        if len(states) >= BRANCHES_MAX:
            states.clear()
        found = states.setdefault(key, make())
    return found
