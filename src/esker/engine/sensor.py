"""The Sensor: tells which branches have become slow to read, from what passes through this process anyway.

A record says what its tables hold; what a staging token holds is counted as it is written, here. Tokens of others, and
of a former life, are counted once, when the branch is first looked at. Commits and resets need not be told: what they
took off a branch is no longer in its record.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from esker.engine import metrics, policy
from esker.engine.lake import Lake
from esker.engine.policy import Compaction, Load
from esker.errors import EskerError
from esker.model import Layer, Repository, Token
from esker.refs.records import Branch
from esker.staging import tokens
from esker.stores.kv import SCAN_LIMIT_MAX

_LOOK_AFTER: Final = 1000
"""Writes to one branch by this process after which its record is looked at."""

_TOKENS_MAX: Final = 10_000
"""Whose counts are remembered. One that is forgotten is counted again."""

_BRANCHES_MAX: Final = 10_000
"""Whose writes are counted. One that is forgotten begins at nothing."""


class Due(NamedTuple):
    repo: Repository
    branch: str


def of(lake: Lake) -> "Sensor":
    """The Sensor of this process's lake."""
    found: Sensor | None = lake.sensors.get("")
    return found or lake.sensors.setdefault("", Sensor(lake))


class Sensor:
    """Shared by threads."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._tombstones: dict[Token, int] = {}
        self._writes: dict[tuple[str, str], int] = {}
        self._due: dict[tuple[str, str], Due] = {}
        self.noticed = lake.world.event()
        """Set when a branch may need compaction."""

    def opened(self, token: Token) -> None:
        """A fresh token, empty by construction, is about to be written to."""
        with self._lock:
            if len(self._tombstones) >= _TOKENS_MAX:
                self._tombstones.clear()
            self._tombstones[token] = 0

    def wrote(self, repo: Repository, branch: str, token: Token, *, deletes: int) -> None:
        """Single writes went into a staging token."""
        key = (repo.uid, branch)
        with self._lock:
            if token in self._tombstones:
                self._tombstones[token] += deletes
            if len(self._writes) >= _BRANCHES_MAX:
                self._writes.clear()
            writes = self._writes.get(key, 0) + 1
            self._writes[key] = writes % _LOOK_AFTER
            if writes == _LOOK_AFTER:
                self._notice(repo, branch)

    def changed(self, repo: Repository, branch: str, record: Branch) -> None:
        """Layers were laid on a branch, or taken off it. Nothing goes wrong here that anybody has to know."""
        self._measure(repo, branch, record)
        with suppress(EskerError):
            if policy.due(self._load_of(repo, record, ())):
                self.look_at(repo, branch)

    def look_at(self, repo: Repository, branch: str) -> None:
        """Somebody should: after a start, say."""
        with self._lock:
            self._notice(repo, branch)

    def look_at_later(self, due: Due) -> None:
        """As `look_at`, when there is something else to do, too."""
        with self._lock:
            self._due[due.repo.uid, due.branch] = due

    def take(self) -> list[Due]:
        """The branches that may need compaction, to be looked at by the caller."""
        with self._lock:
            found = list(self._due.values())
            self._due.clear()
            self.noticed.clear()
        return found

    def verdict(self, repo: Repository, branch: str, record: Branch) -> Compaction | None:
        """What the branch needs."""
        counted = [self._count(layer) for layer in record.layers if layer.token]
        self._measure(repo, branch, record)
        return policy.due(self._load_of(repo, record, counted))

    def _notice(self, repo: Repository, branch: str) -> None:
        self._due[repo.uid, branch] = Due(repo, branch)
        self.noticed.set()

    def _count(self, layer: Layer) -> int:
        """The tombstones in a token: as counted here, else as far as one scan tells."""
        assert layer.token is not None
        with self._lock:
            known = self._tombstones.get(layer.token)
        if known is not None:
            return known
        found = self._lake.kv.scan(tokens.partition(layer.token), limit=SCAN_LIMIT_MAX)
        count = sum(item.record.value == tokens.TOMBSTONE for item in found)
        with self._lock:
            if len(self._tombstones) >= _TOKENS_MAX:
                self._tombstones.clear()
            return self._tombstones.setdefault(layer.token, count)

    def _load_of(self, repo: Repository, record: Branch, counted: Sequence[int]) -> Load:
        if record.layers_only:
            return Load(len(record.sealed), 0, 0, 0)  # no tree will ever take in the rest
        lake = self._lake
        l2_rows = record.l2.count if record.l2 else 0
        tree_rows = 0
        if l2_rows:  # only then does it matter
            tree = record.compacted or lake.commits(repo).get(record.commit).tree
            tree_rows = lake.past(repo).size(tree)
        in_tables = sum(layer.tombstones for layer in record.layers)
        return Load(len(record.sealed), in_tables + sum(counted), l2_rows, tree_rows)

    def _measure(self, repo: Repository, branch: str, record: Branch) -> None:
        sealed_tokens = sum(layer.token is not None for layer in record.sealed)
        metrics.layers(
            repo.name,
            branch,
            tokens=sealed_tokens,
            l1=len(record.sealed) - sealed_tokens,
            l2=len(record.l2.tables) if record.l2 else 0,
            tombstones=sum(layer.tombstones for layer in record.layers),
        )
