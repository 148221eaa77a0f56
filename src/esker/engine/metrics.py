"""What the engine tells Prometheus: how often the dirty flag spares a look into staging, and what compaction does."""

from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

_BRANCH_READS: Final = Counter(
    "graveler_branch_reads",
    "Reads of a branch, by whether anything may have been staged on it.",
    ["repo", "branch", "dirty", "op"],
)
_STAGING_READS: Final = Counter(
    "graveler_staging_read_attempts",
    "Reads of a branch that looked into staging.",
    ["repo", "branch", "op"],
)

_COMPACTIONS: Final = Histogram(
    "esker_compaction_seconds",
    "How long compactions took, whether they landed or not.",
    ["repo", "kind"],
    buckets=(0.01, 0.05, 0.25, 1, 5, 25, 125),
)
_LAYERS: Final = Gauge("esker_layers", "Layers of a branch when it was last written to.", ["repo", "branch", "level"])
_STAGED: Final = Gauge("esker_tombstones", "Tombstones in the tables of a branch.", ["repo", "branch"])


def compacting(repo: str, kind: str) -> AbstractContextManager[object]:
    """Time one compaction."""
    return _COMPACTIONS.labels(repo, kind).time()


def layers(repo: str, branch: str, *, tokens: int, l1: int, l2: int, tombstones: int) -> None:
    """Tell how deep a branch is."""
    for level, count in (("token", tokens), ("L1", l1), ("L2", l2)):
        _LAYERS.labels(repo, branch, level).set(count)
    _STAGED.labels(repo, branch).set(tombstones)


def branch_read(repo: str, branch: str, *, dirty: bool, staging: bool, op: str) -> None:
    """Count one read of a branch."""
    for counter in _counters(repo, branch, dirty, staging, op):
        counter.inc()


@lru_cache(maxsize=10_000)
def _counters(repo: str, branch: str, dirty: bool, staging: bool, op: str) -> list[Counter]:
    reads = _BRANCH_READS.labels(repo, branch, "true" if dirty else "false", op)
    return [reads, _STAGING_READS.labels(repo, branch, op)] if staging else [reads]
