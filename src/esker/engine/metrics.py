"""Prometheus counters of the engine: how often the dirty flag spares a look into staging."""

from functools import lru_cache
from typing import Final

from prometheus_client import Counter

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


def branch_read(repo: str, branch: str, *, dirty: bool, staging: bool, op: str) -> None:
    """Count one read of a branch."""
    for counter in _counters(repo, branch, dirty, staging, op):
        counter.inc()


@lru_cache(maxsize=10_000)
def _counters(repo: str, branch: str, dirty: bool, staging: bool, op: str) -> list[Counter]:
    reads = _BRANCH_READS.labels(repo, branch, "true" if dirty else "false", op)
    return [reads, _STAGING_READS.labels(repo, branch, op)] if staging else [reads]
