"""Compaction: fold what is staged on a branch, so that reading it costs what reading a clean branch does.

    1. claim    one swap: the open token is sealed, and our id is on the branch      refs
    2. fold     minor: sealed layers into tables of level 2                          staging
                major: all of it into a tree, in which nothing is hidden or deleted  staging, tree
    3. swap     the result in, and what was folded off, if that still is what is lowest and the claim ours

Nobody can tell a compacted branch from one that is not. It may die after any step, and two may run at once: only work
is lost. A commit takes the claim, so it never waits for a compaction, nor folds again because of one.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import pyarrow as pa

from esker.activity import since, step
from esker.engine import cleaning, layers, metrics, sensor
from esker.engine.commit import drop, fold
from esker.engine.lake import Lake, kept
from esker.engine.policy import Compaction
from esker.engine.snapshots import folding
from esker.errors import EskerError
from esker.format.names import digest_of
from esker.model import Claim, Layer, Repository, Table
from esker.refs.records import Basis, Branch
from esker.staging.tables import ROWS, TABLES_MAX
from esker.streams.arrays import after_prefix, lower_bound, only_chunk
from esker.streams.entries import NO_CHANGES
from esker.streams.prefixes import minimal
from esker.streams.rows import Changes

CLAIM_STALE_S: Final = 300.0
"""How long the same claim is respected, by the clock of whoever would take it."""

_AHEAD_MAX_MS: Final = 60_000
"""A claim from further in the future than clocks differ is no claim."""

_ID_BYTES: Final = 8


def compact(lake: Lake, repo: Repository, branch: str, how: Compaction, *, force: bool = False) -> bool:
    """Compact `branch`, unless somebody is at it, or there is nothing to fold: whether it was. With `force`, whoever is
    at it will lose their work."""
    claim = Claim(id=lake.world.token(_ID_BYTES), started_ms=lake.world.now_ms())
    branches = lake.branches(repo)

    def claiming(record: Branch) -> Branch | None:
        if not (record.dirty or record.sealed or (record.l2 and how is Compaction.MAJOR)):
            return None
        if record.claim and not force and not _is_stale(lake, repo, branch, record.claim):
            return None
        return record.claimed(claim, branches.fresh_token())

    with metrics.compacting(repo.name, branch, how), since(claim.started_ms):
        with step("claim"):
            seen = branches.update(branch, claiming)
        if seen is None or seen.claim is None or seen.claim.id != claim.id:
            return False
        basis = seen.basis()
        minor = how is Compaction.MINOR or seen.layers_only
        try:
            with folding(lake, repo, branch, basis):
                return (_minor if minor else _major)(lake, repo, branch, basis, claim)
        except EskerError:
            with suppress(EskerError):  # then it grows stale
                branches.update(branch, partial(Branch.unclaimed, claim=claim))
            raise


def _minor(lake: Lake, repo: Repository, branch: str, basis: Basis, claim: Claim) -> bool:
    over = lake.stack_of(repo, basis.sealed).fold()
    l2 = levelled(lake, repo, f"{branch}/L2", over, basis.l2)
    return _landed(lake, repo, branch, partial(Branch.levelled, l2=l2, basis=basis, claim=claim))


def _major(lake: Lake, repo: Repository, branch: str, basis: Basis, claim: Claim) -> bool:
    committed = lake.commits(repo).get(basis.commit).tree
    tree = fold(lake, repo, committed, basis)
    if digest_of(tree) == digest_of(committed):
        return drop(lake, repo, branch, basis)
    return _landed(lake, repo, branch, partial(Branch.compacted_into, tree=tree, basis=basis, claim=claim))


@step("swap")
def _landed(lake: Lake, repo: Repository, branch: str, change: Callable[[Branch], Branch | None]) -> bool:
    landed = lake.branches(repo).update(branch, change)
    if landed:
        sensor.of(lake).changed(repo, branch, landed)
        cleaning.relieve(lake, repo, branch, landed)
    return landed is not None


@step("fold")
def levelled(lake: Lake, repo: Repository, where: str, over: Changes, l2: Layer | None) -> Layer:
    """Level 2 with changes over it. Tables that these do not touch are named again, not written again."""
    tables = lake.tables(repo)
    under = l2.tables if l2 else ()
    deletes = over.deletes if l2 is None else (*over.deletes, *tables.deletes(l2).between(b"", None))
    found: list[Table] = []
    with lake.past(repo).writing_behind():
        for run, rows in _runs(over, under):
            if not rows.num_rows and not any(_is_deleted(table, over.deletes) for table in run):
                found += run
                continue
            older = pa.concat_tables([NO_CHANGES, *(tables.rows(table) for table in run)]).combine_chunks()
            folded = Changes(rows, over.deletes).over(Changes(older)).rows
            found += tables.write(folded, where) if folded.num_rows else ()
        described = layers.write(lake, repo, where, Changes(NO_CHANGES, minimal(deletes)))
    return Layer(
        id=described.id,
        tables=tuple(found),
        deletes=described.deletes,
        more_deletes=described.more_deletes,
        made_ms=described.made_ms,
    )


def _runs(over: Changes, under: tuple[Table, ...]) -> Iterator[tuple[tuple[Table, ...], pa.Table]]:
    """Each table of a level with the rows that belong to it: up to its last path, behind the one before. Rows behind
    the last table belong to it while it is small, and else to none. A level of too many tables goes as one."""
    paths = only_chunk(over.rows["path"])
    ends = [lower_bound(paths, table.max + "\0") for table in under]  # no text lies between a path and it with NUL
    if len(under) > TABLES_MAX:
        yield under, over.rows
        return
    starts = [0, *ends]
    if under and under[-1].count < ROWS // 2:
        ends[-1] = len(paths)
        starts[-1] = len(paths)
    for table, start, end in zip(under, starts, ends, strict=False):
        yield (table,), over.rows.slice(start, end - start)
    if starts[-1] < len(paths):
        yield (), over.rows.slice(starts[-1])


def _is_deleted(table: Table, deletes: tuple[str, ...]) -> bool:
    """Whether some of its rows may begin with one of the prefixes."""
    for prefix in deletes:
        end = after_prefix(prefix)
        if table.max >= prefix and (end is None or table.min < end):
            return True
    return False


def _is_stale(lake: Lake, repo: Repository, branch: str, claim: Claim) -> bool:
    now_s = lake.world.monotonic_s()
    claim_id, since_s = kept(lake.claims, (repo.uid, branch), lambda: (claim.id, now_s))
    if claim_id != claim.id:
        lake.claims[repo.uid, branch] = (claim.id, now_s)
        since_s = now_s
    return now_s - since_s >= CLAIM_STALE_S or claim.started_ms > lake.world.now_ms() + _AHEAD_MAX_MS
