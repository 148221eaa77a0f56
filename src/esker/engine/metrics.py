"""What the engine tells Prometheus: how often the dirty flag spares a look into staging, what compaction does, and
what the memstore."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
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

_FLUSHES: Final = Histogram(
    "esker_flush_seconds",
    "How long flushes of the memstore took, whether they landed or not.",
    ["repo", "branch"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 25),
)
_FLUSHED_ENTRIES: Final = Histogram(
    "esker_flush_entries", "Writes in a flush.", ["repo", "branch"], buckets=(1, 4, 16, 64, 256, 1024, 4096, 16384)
)
_FLUSHED_BYTES: Final = Histogram(
    "esker_flush_bytes",
    "What a flush held in memory.",
    ["repo", "branch"],
    buckets=(1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 25),
)
_WRITERS: Final = Gauge(
    "esker_flush_writers", "Writers that wait for the flush under way.", ["repo", "branch"], multiprocess_mode="livesum"
)


@contextmanager
def flushing(repo: str, branch: str, *, writers: int, entries: int, size: int) -> Iterator[None]:
    """Time one flush, and tell how much it is."""
    seconds, counts, sizes, waiting = _of_flushes(repo, branch)
    counts.observe(entries)
    sizes.observe(size)
    waiting.inc(writers)
    try:
        with seconds.time():
            yield
    finally:
        waiting.dec(writers)


@lru_cache(maxsize=10_000)
def _of_flushes(repo: str, branch: str) -> tuple[Histogram, Histogram, Histogram, Gauge]:
    return (
        _FLUSHES.labels(repo, branch),
        _FLUSHED_ENTRIES.labels(repo, branch),
        _FLUSHED_BYTES.labels(repo, branch),
        _WRITERS.labels(repo, branch),
    )


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
