"""What the engine tells Prometheus: what verbs take and how they end, how often the dirty flag spares a look into
staging, what compaction does, and what the memstore. `docs/observability.md` has all metrics."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import Final, ParamSpec, TypeVar

from esker.activity import since, verb
from esker.counting import Counter, Gauge, Histogram
from esker.engine.lake import Lake
from esker.errors import EskerError
from esker.model import Repository
from esker.world import REAL

P = ParamSpec("P")
T = TypeVar("T")

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

_VERBS: Final = Histogram(
    "esker_verb_seconds",
    "What was done, and how long it took, by how it ended: `done`, or the kind of the error.",
    ["repo", "verb", "outcome"],
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
)
_LANDINGS: Final = Counter(
    "esker_landings",
    "Swaps that were to move a branch: landed, or lost to another process, and then made again.",
    ["repo", "outcome"],
)
_COLLECTED: Final = Counter("esker_gc_deleted_files", "Files that were garbage, and deleted.")
_COLLECTED_BYTES: Final = Counter("esker_gc_deleted_bytes", "Their bytes.")
_EXPORTED: Final = Counter("esker_export_objects", "Objects that exports copied.")
_IMPORTED: Final = Counter("esker_import_objects", "Objects that imports took in.")

POOL_QUEUED: Final = Gauge(
    "esker_pool_queued",
    "Reads and writes of metadata in the pools, waiting or being done.",
    multiprocess_mode="livesum",
)
POOL_BUSY: Final = Gauge("esker_pool_busy", "Those that are being done.", multiprocess_mode="livesum")

_COMPACTIONS: Final = Histogram(
    "esker_compaction_seconds",
    "How long compactions took, whether they landed or not.",
    ["repo", "kind"],
    buckets=(0.01, 0.05, 0.25, 1, 5, 25, 125),
)
_LAYERS: Final = Gauge(
    "esker_layers",
    "Layers of a branch when it was last written to.",
    ["repo", "branch", "level"],
    multiprocess_mode="mostrecent",
)
_STAGED: Final = Gauge(
    "esker_tombstones", "Tombstones in the tables of a branch.", ["repo", "branch"], multiprocess_mode="mostrecent"
)

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

BRANCHES_MAX: Final = 1000
"""That this process tells apart: the others are one. Each takes memory, here and in whoever keeps the metrics."""

OTHERS: Final = "(others)"
"""No branch can be called so."""

_told_apart: Final[set[tuple[str, str]]] = set()


def _branch(repo: str, branch: str) -> str:
    """The label of a branch."""
    if (repo, branch) not in _told_apart:
        if len(_told_apart) >= BRANCHES_MAX:
            return OTHERS
        _told_apart.add((repo, branch))
    return branch


@contextmanager
def flushing(repo: str, branch: str, *, writers: int, entries: int, size: int) -> Iterator[None]:
    """Time one flush, and tell how much it is."""
    seconds, counts, sizes, waiting = _of_flushes(repo, branch)
    counts.observe(entries)
    sizes.observe(size)
    waiting.inc(writers)
    try:
        with verb("flush", repo=repo, branch=branch, writers=writers, entries=entries), seconds.time():
            yield
    finally:
        waiting.dec(writers)


@lru_cache(maxsize=10_000)
def _of_flushes(repo: str, branch: str) -> tuple[Histogram, Histogram, Histogram, Gauge]:
    branch = _branch(repo, branch)
    return (
        _FLUSHES.labels(repo, branch),
        _FLUSHED_ENTRIES.labels(repo, branch),
        _FLUSHED_BYTES.labels(repo, branch),
        _WRITERS.labels(repo, branch),
    )


@contextmanager
def compacting(repo: str, branch: str, kind: str) -> Iterator[None]:
    """Time one compaction."""
    with verb("compaction", repo=repo, branch=branch, kind=kind), _COMPACTIONS.labels(repo, kind).time():
        yield


def measured(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """For verbs: functions whose first arguments are a lake and a repository. Timed and counted, and an activity."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def run(*given: P.args, **named: P.kwargs) -> T:
            lake, repo = given[:2]
            assert isinstance(lake, Lake)
            assert isinstance(repo, Repository)
            begun_s, outcome = REAL.monotonic_s(), "error"
            try:
                with verb(name, repo=repo.name), since(lake.world.now_ms()):
                    answer = function(*given, **named)
                outcome = "done"
            except EskerError as error:
                outcome = error.kind
                raise
            finally:
                _verb(repo.name, name, outcome).observe(REAL.monotonic_s() - begun_s)
            return answer

        return run

    return decorate


@lru_cache(maxsize=10_000)
def _verb(repo: str, name: str, outcome: str) -> Histogram:
    return _VERBS.labels(repo, name, outcome)


def landing(repo: str, *, landed: bool) -> None:
    """Count a swap."""
    _LANDINGS.labels(repo, "landed" if landed else "lost").inc()


def collected(*, files: int, size: int) -> None:
    """Tell what a garbage collection deleted."""
    _COLLECTED.inc(files)
    _COLLECTED_BYTES.inc(size)


def exported(objects: int) -> None:
    """Tell what an export copied."""
    _EXPORTED.inc(objects)


def imported(objects: int) -> None:
    """Tell what an import took in."""
    _IMPORTED.inc(objects)


def layers(repo: str, branch: str, *, tokens: int, l1: int, l2: int, tombstones: int) -> None:
    """Tell how deep a branch is."""
    branch = _branch(repo, branch)
    for level, count in (("token", tokens), ("L1", l1), ("L2", l2)):
        _LAYERS.labels(repo, branch, level).set(count)
    _STAGED.labels(repo, branch).set(tombstones)


def branch_read(repo: str, branch: str, *, dirty: bool, staging: bool, op: str) -> None:
    """Count one read of a branch."""
    for counter in _counters(repo, branch, dirty, staging, op):
        counter.inc()


@lru_cache(maxsize=10_000)
def _counters(repo: str, branch: str, dirty: bool, staging: bool, op: str) -> list[Counter]:
    branch = _branch(repo, branch)
    reads = _BRANCH_READS.labels(repo, branch, "true" if dirty else "false", op)
    return [reads, _STAGING_READS.labels(repo, branch, op)] if staging else [reads]
