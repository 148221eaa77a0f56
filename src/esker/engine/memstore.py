"""The memstore: writes of many threads to one branch, gathered and staged as one table.

    1. gather   what comes while the flush before is under way, and for a moment more if those it told may come back
    2. write    one sorted table, to which nothing points yet     staging
    3. lay      it on the branch, in one swap                     refs
    4. tell     all of its writers

Who opens a batch leads it; there are no threads of its own. Batches are laid one after another, and within one the
order of arrival is the order. Nothing is acknowledged before the branch's record names it, so a process that dies loses
only what it has not acknowledged, and shows all of a batch or nothing.

If-absent puts are laid after the others of their batch, as a table of their own, by a swap that succeeds only on the
very record under which their paths were absent. All in a batch came at the same time, so this is an order, too.
"""

import threading
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Final

from esker.engine import layers, metrics, pressure
from esker.engine.lake import Lake, kept
from esker.errors import ContentionError, EskerError, Kind, OutcomeUnknownError
from esker.model import Entry, Repository, Staging
from esker.streams.entries import changes_of
from esker.streams.prefixes import minimal
from esker.streams.rows import Changes

ENTRIES_MAX: Final = 10_000
"""Of a batch: a fraction of a second to write. Another of them may gather meanwhile."""

BYTES_MAX: Final = 16 << 20

SHARE_MAX: Final = 2_500
"""Entries of one writer: it would wait for ever for a batch with room for more. A layer of its own costs it little."""

_FULL_WAIT_S: Final = 10.0
"""How long a writer waits for a batch with room for it."""

_ROW_BYTES: Final = 100
"""Of an entry, beside its texts."""

Writes = Mapping[str, Entry | None]
"""By path: what to put, or None to delete."""


class _Batch:
    """What one flush stages."""

    def __init__(self, lake: Lake) -> None:
        self.steps: list[Writes | str] = []
        """In order of arrival: writes, or a prefix to delete."""
        self.if_absent: dict[str, Entry] = {}
        """Of several with one path, the first."""
        self.writers = 0
        self.entries = 0
        self.bytes = 0
        self.is_full = False
        self.sent = False
        """Whether a swap may have been sent."""
        self.outcome: EskerError | None = None
        self.outcome_if_absent: Sequence[str] | EskerError = ()
        """The paths that were there."""
        self.woken = lake.world.event()
        """For the leader: it may be time."""
        self.taken = lake.world.event()
        """For who found it full: another takes its place."""
        self.done = lake.world.event()

    def has_room(self, entries: int, size: int) -> bool:
        return not self.entries or (self.entries + entries <= ENTRIES_MAX and self.bytes + size <= BYTES_MAX)

    def changes(self) -> Changes:
        """All steps as one. A prefix delete hides what came before it, and nothing that came after."""
        deletes = {step: at for at, step in enumerate(self.steps) if isinstance(step, str)}
        lengths = sorted({len(prefix) for prefix in deletes})
        rows: dict[str, Entry | None] = {}
        for at, step in enumerate(self.steps):
            if isinstance(step, str):
                continue
            if lengths:
                for path in step:
                    rows.pop(path, None)
                step = {
                    path: entry
                    for path, entry in step.items()
                    if all(deletes.get(path[:length], -1) < at for length in lengths)
                }
            rows.update(step)
        puts = [entry for entry in rows.values() if entry is not None]
        tombstones = [path for path, entry in rows.items() if entry is None]
        return Changes(changes_of(puts, tombstones), minimal(deletes))


class Memstore:
    """Of one branch."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.gathering: _Batch | None = None
        self.is_flushing = False
        self.told = 0
        """Writers that the last flush told."""
        self.told_s = float("-inf")
        self.came = 0
        """Writers that have come since."""


def is_on(lake: Lake, repo: Repository) -> bool:
    """Whether single writes go through the memstore."""
    return (lake.settings.staging or repo.staging) is Staging.LSM


def write(lake: Lake, repo: Repository, branch: str, writes: Writes) -> None:
    """Stage puts and deletes, at most `SHARE_MAX` of them. They are seen together, or not at all."""
    batch = _share(lake, repo, branch, writes)
    if batch.outcome:
        raise copy(batch.outcome) from batch.outcome


def delete_prefix(lake: Lake, repo: Repository, branch: str, prefix: str) -> None:
    """Stage that all under the prefix is deleted."""
    batch = _share(lake, repo, branch, prefix)
    if batch.outcome:
        raise copy(batch.outcome) from batch.outcome


def put_if_absent(lake: Lake, repo: Repository, branch: str, entry: Entry) -> bool:
    """Stage an entry unless there is one at its path: whether it was."""
    batch = _share(lake, repo, branch, entry)
    outcome = batch.outcome_if_absent
    if isinstance(outcome, EskerError):
        raise copy(outcome) from outcome
    return batch.if_absent[entry.path] is entry and entry.path not in outcome


def _share(lake: Lake, repo: Repository, branch: str, step: Writes | str | Entry) -> _Batch:
    """Take part in a batch, until it is done."""
    store: Memstore = kept(lake.memstores, (repo.uid, branch), Memstore)
    batch, leads = _join(lake, store, branch, step)
    if leads:
        _lead(lake, repo, branch, store, batch)
    else:
        batch.done.wait()
    return batch


def _join(lake: Lake, store: Memstore, branch: str, step: Writes | str | Entry) -> tuple[_Batch, bool]:
    """Enter the batch that gathers: that, and whether we are to lead it."""
    entries = len(step) if isinstance(step, Mapping) else 1
    size = _bytes(step)
    start_s: float | None = None
    while True:
        with store.lock:
            batch = store.gathering
            if batch is None or batch.has_room(entries, size):
                leads = batch is None
                batch = store.gathering = batch or _Batch(lake)
                if isinstance(step, Entry):
                    batch.if_absent.setdefault(step.path, step)
                else:
                    batch.steps.append(step)
                batch.writers += 1
                batch.entries += entries
                batch.bytes += size
                store.came += 1
                if store.came >= store.told:
                    batch.woken.set()
                return batch, leads
            batch.is_full = True
            batch.woken.set()
        now_s = lake.world.monotonic_s()
        start_s = now_s if start_s is None else start_s
        if now_s - start_s >= _FULL_WAIT_S:
            raise ContentionError(Kind.CONTENTION, f"more is written to {branch!r} than can be staged: try again later")
        batch.taken.wait(start_s + _FULL_WAIT_S - now_s)


def _lead(lake: Lake, repo: Repository, branch: str, store: Memstore, batch: _Batch) -> None:
    finished = False
    try:
        _gather(lake, store, batch)
        _flush(lake, repo, branch, batch)
        finished = True
    finally:
        if not finished:  # by an interruption, or a mistake of ours
            batch.outcome = batch.outcome_if_absent = _interrupted(branch, sent=batch.sent)
        with store.lock:
            if store.gathering is batch:
                store.gathering = None
            else:
                store.is_flushing = False
                store.told, store.told_s, store.came = batch.writers, lake.world.monotonic_s(), 0
            following = store.gathering
        batch.taken.set()
        batch.done.set()
        if following:
            following.woken.set()


def _gather(lake: Lake, store: Memstore, batch: _Batch) -> None:
    """Wait until it is time to flush the batch, and close it: no earlier than the flush before is done, and then until
    as many have come as that one told, or the time for that is over."""
    while True:
        with store.lock:
            left_s: float | None = None
            if not store.is_flushing:
                left_s = store.told_s + lake.settings.memstore_wait_ms / 1000 - lake.world.monotonic_s()
                if left_s <= 0 or store.came >= store.told or batch.is_full:
                    store.is_flushing = True
                    store.gathering = None
                    break
            batch.woken.clear()
        batch.woken.wait(left_s)
    batch.taken.set()


def _flush(lake: Lake, repo: Repository, branch: str, batch: _Batch) -> None:
    """Stage the batch. What goes wrong is told to the writers that it concerns."""
    with metrics.flushing(repo.name, branch, writers=batch.writers, entries=batch.entries, size=batch.bytes):
        try:
            pressure.make_room(lake, repo, branch)
        except EskerError as error:
            batch.outcome = batch.outcome_if_absent = error
            return
        try:
            if batch.steps:
                layer = layers.write(lake, repo, f"{branch}/L1", batch.changes())
                batch.sent = True
                layers.lay(lake, repo, branch, layer)
        except EskerError as error:
            batch.outcome = error
        try:
            if batch.if_absent:
                batch.sent = True
                entries = [*batch.if_absent.values()]
                batch.outcome_if_absent = sorted(layers.append_if_absent(lake, repo, branch, entries))
        except EskerError as error:
            batch.outcome_if_absent = error


def _interrupted(branch: str, *, sent: bool) -> EskerError:
    message = f"whoever was staging this on {branch!r} was interrupted"
    return OutcomeUnknownError(message=message) if sent else ContentionError(Kind.CONTENTION, f"{message}: try again")


def _bytes(step: Writes | str | Entry) -> int:
    """About what it takes in memory."""
    if isinstance(step, str):
        return len(step)
    if isinstance(step, Entry):
        return _entry_bytes(step)
    return sum(len(path) if entry is None else _entry_bytes(entry) for path, entry in step.items())


def _entry_bytes(entry: Entry) -> int:
    texts = len(entry.path) + len(entry.address) + len(entry.checksum) + len(entry.content_type)
    return _ROW_BYTES + texts + sum(len(key) + len(value) for key, value in entry.metadata.items())
