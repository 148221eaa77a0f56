"""Weaknesses to plant in the engine, one at a time: a simulator is worth what it catches.

Each takes one rule of the protocol away, as an edit might that looks harmless. One is caught by a schedule that fails
with it, and does not without it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import branches as branch_verbs
from esker.engine import cleaning, compaction, entries, landing, layers, memstore, merge, reset, snapshots, stashes
from esker.engine import commit as commit_verb
from esker.engine.cleaning import Cleaner
from esker.engine.lake import Lake
from esker.engine.snapshots import Snapshot, present
from esker.errors import ConflictError, EskerError, InvalidError, Kind, OutcomeUnknownError
from esker.model import Claim, CommitID, Entry, FileName, Layer, LayerID, Repository, Stash, Token, Waste
from esker.refs import branches as branch_records
from esker.refs.branches import Branches
from esker.refs.records import Basis, Branch, waste
from esker.staging import filters, tokens
from esker.staging.filters import Filters
from esker.staging.stack import Stack
from esker.staging.tables import Tables
from esker.stores.kv import ANYTHING, Guarded, Record, items
from esker.streams.entries import changes_of
from esker.streams.prefixes import Prefixes
from esker.streams.rows import Changes
from esker.testing.simulation.plans import Wishes, draw
from esker.testing.simulation.run import prepare
from esker.testing.simulation.shrink import Failure, failing
from esker.tree.merge import Memo, Strategy

replace = msgspec.structs.replace


class Mutant(NamedTuple):
    name: str
    what: str
    plant: Callable[[], AbstractContextManager[object]]
    wishes: Wishes
    """Where to look for it: what it weakens has to be used."""


class Catch(NamedTuple):
    """A schedule that fails with a mutant, and does not without it."""

    failure: Failure
    schedules: int
    """Looked at until then."""


def hunt(mutant: Mutant, *, schedules: int, first: int = 0, blind: bool = False) -> Catch | None:
    """Look for a schedule that catches the mutant; with `blind`, by the answers alone. RuntimeError if the mutant no
    longer fits the engine that it is planted in."""
    wishes = mutant.wishes._replace(blind=blind)
    prepare(wishes)
    for seed in range(first, first + schedules):
        plan = draw(seed, wishes)
        with mutant.plant():
            failure = failing(plan, seed)
        if failure is None or failing(plan, seed) is not None:
            continue
        if failure.violation.oracle == "exception":
            raise RuntimeError(f"{mutant.name} does not weaken the engine, but break it: {failure.violation}")
        return Catch(failure, seed - first + 1)
    return None


MUTANTS: Final[dict[str, Mutant]] = {}


def mutant(**wishes: Any) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    """Register: the name is the function's, what it does its docstring."""

    def register(plant: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        name = plant.__name__.strip("_").replace("_", "-")
        MUTANTS[name] = Mutant(name, plant.__doc__ or "", contextmanager(plant), Wishes(**wishes))
        return plant

    return register


@contextmanager
def _with(*patches: tuple[object, str, object]) -> Iterator[None]:
    with ExitStack() as stack_of_patches:
        for target, name, value in patches:
            stack_of_patches.enter_context(mock.patch.object(target, name, value))
        yield


# The dirty flag


@mutant(theme="commit", guards=True)
def _dirty_cleared_by_commit() -> Iterator[None]:
    """The seed's proposal: the commit's last swap says that the branch is clean."""
    advanced = Branch.advanced

    def clearing(self: Branch, commit: CommitID, basis: Basis) -> Branch | None:
        changed = advanced(self, commit, basis)
        return None if changed is None else replace(changed, dirty=False)

    with _with((Branch, "advanced", clearing)):
        yield


@mutant(theme="commit", guards=False, faults=0.0)
def _dirty_after_the_write() -> Iterator[None]:
    """The record is staged first, and the open token, whichever it is by then, marked dirty after it."""

    def stage(lake: Lake, repo: Repository, branch: str, path: str, value: bytes) -> None:
        record = lake.branches(repo).get(branch)
        lake.kv.put(tokens.partition(record.token), path.encode(), value)
        lake.branches(repo).update(branch, Branch.marked_dirty)

    with _with((entries, "_stage", stage)):
        yield


@mutant(theme="commit")
def _reads_stop_at_the_flag() -> Iterator[None]:
    """A reader takes a branch for clean whose token is clean, whatever is sealed."""
    with _with((Branch, "clean", property(lambda self: not self.dirty))):
        yield


@mutant(theme="commit")
def _reads_look_at_the_open_token_only() -> Iterator[None]:
    """A reader looks into the open token where it is dirty, and then no further."""

    def upper(self: Lake, repo: Repository, record: Branch) -> Stack:
        return Stack(self.kv, self.tables(repo), (record.open_layer,) if record.dirty else record.sealed)

    with _with((Lake, "stack", upper)):
        yield


# Guards and re-checks


@mutant(theme="commit", guards=True)
def _write_without_guard() -> Iterator[None]:
    """A plain put, and nothing looked at afterwards."""

    def put(lake: Lake, repo: Repository, record: Branch, path: str, value: bytes, expected: object = None) -> Guarded:
        lake.kv.put(tokens.partition(record.token), path.encode(), value)
        return Guarded.STORED

    with _with((entries, "_put", put)):
        yield


@mutant(theme="commit", guards=False)
def _write_without_recheck() -> Iterator[None]:
    """On a store without guards: written, and not looked again."""

    def stage(lake: Lake, repo: Repository, branch: str, path: str, value: bytes) -> None:
        record = entries.open_token(lake, repo, branch)
        lake.kv.put(tokens.partition(record.token), path.encode(), value)

    with _with((entries, "_stage", stage)):
        yield


@mutant(theme="commit", guards=False)
def _recheck_of_a_stale_record() -> Iterator[None]:
    """On a store without guards: the record that is looked at again was read before the write."""

    def stage(lake: Lake, repo: Repository, branch: str, path: str, value: bytes) -> None:
        while True:
            record = entries.open_token(lake, repo, branch)
            again = lake.branches(repo).get(branch)
            lake.kv.put(tokens.partition(record.token), path.encode(), value)
            if again.token == record.token:
                return

    with _with((entries, "_stage", stage)):
        yield


def _swapping(when: str) -> Callable[..., bool]:
    def swap(self: Any, name: str, record: Branch, changed: Branch, found: Record) -> bool:
        encoded = branch_records._ENCODER.encode(changed)
        opens = changed.dirty and (changed.token != record.token or not record.dirty)
        seals = record.dirty and changed.token != record.token
        if opens:
            self._kv.put(self._guards, changed.token.encode(), branch_records.OPEN)
        if not self._kv.put_if(self._partition, name.encode(), encoded, found.version):
            return False
        if seals and when == "after":
            self._kv.put(self._guards, record.token.encode(), branch_records.SEALED)
        return True

    return swap


@mutant(theme="commit", guards=True)
def _guard_sealed_after_the_swap() -> Iterator[None]:
    """The guard is a write of its own, behind the swap that seals."""
    with _with((Branches, "_swap", _swapping("after"))):
        yield


@mutant(theme="commit", guards=True)
def _guard_never_sealed() -> Iterator[None]:
    """The guard of a token stays open."""
    with _with((Branches, "_swap", _swapping("never"))):
        yield


# Lost answers


@mutant(theme="all", guards=True, faults=0.08)
def _swap_repeated_blindly() -> Iterator[None]:
    """A swap whose answer was lost is made again: nothing in the record tells that it was applied."""
    with _with((Branch, "stamped", lambda self, operation: replace(self, seq=self.seq + 1))):
        yield


@mutant(theme="prefix", guards=True, faults=0.08)
def _swap_repeated_unless_its_layer_is_there() -> Iterator[None]:
    """After a lost answer it is only looked whether the layer still lies on the branch: a commit may have taken it."""

    def lay(lake: Lake, repo: Repository, branch: str, layer: Layer) -> Branch | None:
        branches = lake.branches(repo)

        def on_top(record: Branch) -> Branch:
            there = any(other.id == layer.id for other in record.sealed)
            return record if there else record.appended([layer], branches.fresh_token())

        return branches.update(branch, on_top)

    with _with(
        (Branch, "stamped", lambda self, operation: replace(self, seq=self.seq + 1)),
        (layers, "lay", lay),
    ):
        yield


@mutant(theme="commit", guards=True, faults=0.08)
def _one_token_for_all_tries() -> Iterator[None]:
    """A swap that is tried again brings the token that its first try brought."""
    update = Branches.update

    def updating(self: Branches, name: str, change: Callable[[Branch], Branch | None]) -> Branch | None:
        drawn: list[Token] = []
        fresh_token = self.fresh_token

        def again(record: Branch) -> Branch | None:
            drawn[:] = drawn or [fresh_token()]
            with mock.patch.object(self, "fresh_token", return_value=drawn[0]):
                return change(record)

        return update(self, name, again)

    with _with(
        (Branch, "stamped", lambda self, operation: replace(self, seq=self.seq + 1)), (Branches, "update", updating)
    ):
        yield


@mutant(theme="commit", guards=True, faults=0.08)
def _put_repeated_blindly() -> Iterator[None]:
    """A staged put that got no answer is sent again."""
    put = entries._put

    def repeating(*args: Any) -> Guarded:
        try:
            return put(*args)
        except OutcomeUnknownError:
            return put(*args)

    with _with((entries, "_put", repeating)):
        yield


@mutant(theme="commit", guards=False, faults=0.08)
def _later_record_taken_for_ones_own() -> Iterator[None]:
    """After a lost answer the record that is there is taken for the one that was swapped in: its token may be another,
    and clean."""

    def open_token(lake: Lake, repo: Repository, branch: str) -> Branch:
        record = lake.branches(repo).get(branch)
        marked = record if record.dirty else lake.branches(repo).update(branch, Branch.marked_dirty)
        assert marked is not None
        return marked

    with _with((entries, "open_token", open_token)):
        yield


# What lies above what


@mutant(theme="prefix", guards=True)
def _append_over_a_dirty_token() -> Iterator[None]:
    """A layer is laid on the branch without sealing the open token: below what was acknowledged before."""
    with _with((Branch, "appended", lambda self, layers, fresh: replace(self, sealed=(*layers, *self.sealed)))):
        yield


@mutant(theme="reset", guards=True)
def _reset_prefix_unchecked() -> Iterator[None]:
    """What a reset of a prefix restores is laid on the branch, whatever was committed since it looked."""

    def restored(self: Branch, layer: Layer, fresh: Token, *, basis: Basis) -> Branch | None:
        return self.appended([layer], fresh)

    with _with((Branch, "restored", restored)):
        yield


@mutant(theme="layers", guards=True)
def _reset_prefix_below_the_open_token() -> Iterator[None]:
    """What a reset of a prefix restores is laid just above what it looked at: below a token that takes writes."""

    def restored(self: Branch, layer: Layer, fresh: Token, *, basis: Basis) -> Branch | None:
        if not self.holds(basis):
            return None
        at = len(self.sealed) - len(basis.sealed)
        return replace(self, sealed=(*self.sealed[:at], layer, *self.sealed[at:]))

    with _with((Branch, "restored", restored)):
        yield


# Commit and reset


def _is_suffix(record: Branch, basis: Basis) -> bool:
    return record.sealed[len(record.sealed) - len(basis.sealed) :] == basis.sealed


def _advancing(holds: Callable[[Branch, Basis], bool], *, by_set: bool) -> Callable[..., Any]:
    def advanced(self: Branch, commit: CommitID, basis: Basis) -> Branch | None:
        if not holds(self, basis):
            return None
        gone = {layer.id for layer in basis.sealed}
        kept = self.sealed[: max(0, len(self.sealed) - len(basis.sealed))]
        if by_set:
            kept = tuple(layer for layer in self.sealed if layer.id not in gone)
        fallen = [layer for layer in self.layers if layer not in (self.open_layer, *kept)]
        tree = self._compacted_waste(kept_commits=(commit,), kept_trees=())
        dropped = (*self.dropped, *(waste(layer) for layer in fallen if layer != self.open_layer), *tree)
        return replace(self, commit=commit, sealed=kept, l2=None, compacted=None, claim=None, dropped=dropped)

    return advanced


@mutant(theme="reset", guards=True)
def _commit_compares_the_base_only() -> Iterator[None]:
    """The commit lands if the branch still is at its parent; as many layers as it folded fall off."""
    with _with((Branch, "advanced", _advancing(lambda self, basis: self.commit == basis.commit, by_set=False))):
        yield


@mutant(theme="reset", guards=True)
def _commit_takes_a_set_difference() -> Iterator[None]:
    """The commit lands if the branch still is at its parent; those of its layers that are still there fall off."""
    with _with((Branch, "advanced", _advancing(lambda self, basis: self.commit == basis.commit, by_set=True))):
        yield


@mutant(theme="commit", guards=True)
def _commit_compares_layers_only() -> Iterator[None]:
    """The commit lands if its layers still are the oldest, wherever the branch is."""

    with _with((Branch, "advanced", _advancing(_is_suffix, by_set=False))):
        yield


def _holding(but: str) -> Callable[[Branch, Basis], bool]:
    """All that a fold's swap compares, but one thing."""

    def holds(record: Branch, basis: Basis) -> bool:
        n = len(basis.sealed)
        return (
            (but == "base" or record.commit == basis.commit)
            and (but == "compacted" or record.compacted == basis.compacted)
            and (but == "level 2" or record.l2 == basis.l2)
            and (but == "layers" or record.sealed[len(record.sealed) - n :] == basis.sealed)
        )

    return holds


@mutant(theme="merge", guards=True)
def _commit_ignores_the_base() -> Iterator[None]:
    """The commit lands on whatever commit the branch is at by then."""
    with _with((Branch, "advanced", _advancing(_holding("base"), by_set=False))):
        yield


@mutant(theme="compact", guards=True)
def _commit_ignores_level_2() -> Iterator[None]:
    """The commit lands though level 2 is another than the one that it folded."""
    with _with((Branch, "advanced", _advancing(_holding("level 2"), by_set=False))):
        yield


@mutant(theme="compact", guards=True)
def _commit_ignores_the_compacted_tree() -> Iterator[None]:
    """The commit lands though compaction has made another tree since, and clears that."""
    with _with((Branch, "advanced", _advancing(_holding("compacted"), by_set=False))):
        yield


@mutant(theme="reset", guards=True)
def _commit_ignores_the_layers() -> Iterator[None]:
    """The commit lands, and as many layers as it folded fall off, whichever they are."""
    with _with((Branch, "advanced", _advancing(_holding("layers"), by_set=False))):
        yield


@mutant(theme="layers", guards=True)
def _commit_takes_a_set_difference_of_layers() -> Iterator[None]:
    """The commit compares all but the layers; those of its own that are still there fall off."""
    with _with((Branch, "advanced", _advancing(_holding("layers"), by_set=True))):
        yield


@mutant(theme="commit", guards=True)
def _commit_does_not_seal() -> Iterator[None]:
    """The commit reads the open token, and takes it off the branch at the end, without having sealed it."""

    def rotated(self: Branch, fresh: Token) -> Branch:
        return self

    def folding(record: Branch, ours: set[LayerID]) -> Basis | None:
        return record.basis(record.layers) if record.layers else None

    def advanced(self: Branch, commit: CommitID, basis: Basis) -> Branch | None:
        if self.commit != basis.commit or self.layers != basis.sealed:
            return None
        fresh = Token(f"{commit[:24]}")
        dropped = self.dropped + tuple(waste(layer) for layer in self.layers)
        return replace(self, commit=commit, token=fresh, dirty=False, sealed=(), dropped=dropped)

    with _with((Branch, "rotated", rotated), (Branch, "advanced", advanced), (commit_verb, "basis_to_fold", folding)):
        yield


@mutant(theme="reset", guards=True)
def _reset_does_not_rotate() -> Iterator[None]:
    """Reset drops what is sealed, and leaves the open token."""
    with _with(
        (Branch, "reset", lambda self, fresh: self._without(self.basis())),
    ):
        yield


@mutant(theme="reset", guards=True)
def _reset_keeps_the_token() -> Iterator[None]:
    """Reset calls the branch clean, and goes on with the token that was written to."""
    with _with(
        (
            Branch,
            "reset",
            lambda self, fresh: replace(self._without(self.basis()), dirty=False),
        ),
    ):
        yield


# If-absent


@mutant(theme="if-absent", guards=True)
def _absence_seen_before_the_mark() -> Iterator[None]:
    """If-absent looks first, and marks the token dirty then: a clean token is not sealed by who lays a layer on it."""

    def stage(lake: Lake, repo: Repository, branch: str, path: str, value: bytes) -> None:
        while True:
            if present(lake, repo, lake.branches(repo).get(branch), path):
                raise layers.already_there(repo, branch, path)
            record = entries.open_token(lake, repo, branch)
            staged = lake.kv.get(tokens.partition(record.token), path.encode())
            if staged is not None and staged.value != tokens.TOMBSTONE:
                raise layers.already_there(repo, branch, path)
            expected = staged.version if staged else None
            if entries._put(lake, repo, record, path, value, expected) is Guarded.STORED:
                return

    with _with((entries, "_stage_if_absent", stage)):
        yield


@mutant(theme="if-absent", guards=True)
def _absent_put_without_version() -> Iterator[None]:
    """If-absent looks, and then writes whatever came between."""
    put = entries._put

    def unconditional(
        lake: Lake, repo: Repository, record: Branch, path: str, value: bytes, expected: object = None
    ) -> Guarded:
        return put(lake, repo, record, path, value, ANYTHING)

    with _with((entries, "_put", unconditional)):
        yield


@mutant(theme="slow", guards=True, faults=0.0)
def _absence_outlives_the_grace_time() -> Iterator[None]:
    """If-absent is looked up so slowly that what was looked into is cleaned away, and believed."""

    def stage(lake: Lake, repo: Repository, branch: str, path: str, value: bytes) -> None:
        while True:
            record = entries.open_token(lake, repo, branch)
            staged = lake.kv.get(tokens.partition(record.token), path.encode())
            gone = staged is not None and staged.value == tokens.TOMBSTONE
            if not gone and (staged or present(lake, repo, record, path)):
                if lake.branches(repo).get(branch).token != record.token:
                    continue
                raise layers.already_there(repo, branch, path)
            expected = staged.version if staged else None
            if entries._put(lake, repo, record, path, value, expected) is Guarded.STORED:
                return

    with _with((entries, "_stage_if_absent", stage)):
        yield


@mutant(theme="if-absent", guards=True)
def _tombstone_counts_as_there() -> Iterator[None]:
    """If-absent is refused where the open token says that the path is deleted."""

    def stage(lake: Lake, repo: Repository, branch: str, path: str, value: bytes) -> None:
        while True:
            record = entries.open_token(lake, repo, branch)
            if lake.kv.get(tokens.partition(record.token), path.encode()) or present(lake, repo, record, path):
                raise layers.already_there(repo, branch, path)
            if entries._put(lake, repo, record, path, value, None) is Guarded.STORED:
                return

    with _with((entries, "_stage_if_absent", stage)):
        yield


@mutant(theme="if-absent", guards=True)
def _absence_of_the_open_token_only() -> Iterator[None]:
    """If-absent looks into the open token, and not below."""
    with _with((entries, "present", lambda *_: False)):
        yield


@mutant(theme="if-absent", guards=False)
def _absent_layer_laid_unconditionally() -> Iterator[None]:
    """On a store without guards: looked under one record, laid on another."""

    def append(lake: Lake, repo: Repository, branch: str, entries: Sequence[Entry]) -> set[str]:
        record = lake.branches(repo).get(branch)
        there = {entry.path for entry in entries if present(lake, repo, record, entry.path)}
        absent = [entry for entry in entries if entry.path not in there]
        if absent:
            layers.append(lake, repo, branch, Changes(changes_of(absent)))
        return there

    with _with((layers, "append_if_absent", append)):
        yield


# Readers and the cleaner


@mutant(theme="late", guards=True)
def _reader_does_not_look_again() -> Iterator[None]:
    """A read that took longer than the grace time stands."""
    with _with((snapshots, "_still_there", lambda *_: True)):
        yield


@mutant(theme="clean", guards=True, faults=0.0)
def _cleaner_ignores_the_grace_time() -> Iterator[None]:
    """What fell off is deleted as soon as it is noted."""

    def run(self: Any) -> int:
        self._collect()
        for note in [*items(self._lake.kv, self._notes)]:
            self._delete(msgspec.msgpack.decode(note.record.value, type=Waste))
            self._lake.kv.delete(self._notes, note.key)
        return 0

    with _with((Cleaner, "run", run)):
        yield


@mutant(theme="clean", guards=True)
def _cleaner_takes_what_is_sealed() -> Iterator[None]:
    """The cleaner notes what is sealed, not what fell off."""
    collect = Cleaner._collect

    def collecting(self: Any) -> None:
        collect(self)
        for _, record in self._lake.branches(self.repo).page("", 100):
            notes = [(layer.id.encode(), msgspec.msgpack.encode(waste(layer))) for layer in record.sealed]
            self._lake.kv.put_many(self._notes, notes)

    with _with((Cleaner, "_collect", collecting)):
        yield


@mutant(theme="clean", guards=True, faults=0.08)
def _cleaner_forgets_before_it_notes() -> Iterator[None]:
    """What fell off is taken off the record first, and noted then: a crash between, and nobody knows of it."""

    def collecting(self: Any) -> None:
        branches = self._lake.branches(self.repo)
        for name, record in branches.page("", 100, deleted=True):
            branches.forget(name, [waste.id for waste in record.dropped])
            notes = [(waste.id.encode(), msgspec.msgpack.encode(waste)) for waste in record.dropped]
            self._lake.kv.put_many(self._notes, notes)

    with _with((Cleaner, "_collect", collecting)):
        yield


@mutant(theme="clean", guards=True)
def _dropped_layers_are_forgotten() -> Iterator[None]:
    """A commit takes its layers off the record, and nobody knows of them any more."""
    advanced = Branch.advanced

    def forgetting(self: Branch, commit: CommitID, basis: Basis) -> Branch | None:
        changed = advanced(self, commit, basis)
        return None if changed is None else replace(changed, dropped=self.dropped)

    with _with((Branch, "advanced", forgetting)):
        yield


# Deleting and creating branches


@mutant(theme="branch", guards=True)
def _branch_deleted_unconditionally() -> Iterator[None]:
    """A branch is deleted by a plain delete of its record."""

    def delete(lake: Lake, repo: Repository, name: str) -> None:
        lake.branches(repo).get(name)
        lake.kv.delete(f"branches/{repo.uid}", name.encode())

    with _with((branch_verbs, "delete", delete)):
        yield


@mutant(theme="branch", guards=True)
def _branch_created_with_its_old_token() -> Iterator[None]:
    """A branch that is created again goes on with the token that it had."""
    fresh_token = Branches.fresh_token
    create = Branches.create

    def removed(self: Branch, fresh: Token) -> Branch:
        return replace(self._without(self.basis()), deleted=True, dirty=False, l2=None, compacted=None)

    def creating(self: Any, name: str, commit: CommitID, *, hidden: bool = False) -> Branch:
        found = self._kv.get(self._partition, name.encode())
        if found is None:
            return create(self, name, commit, hidden=hidden)
        token = branch_records.decode(name, found).token
        with mock.patch.object(Branches, "fresh_token", return_value=token):
            record: Branch = create(self, name, commit, hidden=hidden)
        return record

    with _with((Branch, "removed", removed), (Branches, "create", creating), (Branches, "fresh_token", fresh_token)):
        yield


@mutant(theme="branch", guards=True)
def _created_branch_forgets_what_was_dropped() -> Iterator[None]:
    """A branch that is created again does not take over what the deleted one had dropped."""

    def create(self: Any, name: str, commit: CommitID, *, hidden: bool = False) -> Branch:
        found = self._kv.get(self._partition, name.encode())
        record = Branch(commit=commit, token=self.fresh_token(), dirty=False)
        if found is not None and not branch_records.decode(name, found).deleted:
            raise ConflictError(Kind.BRANCH_EXISTS, "it exists")
        version = found.version if found else None
        if not self._kv.put_if(self._partition, name.encode(), branch_records._ENCODER.encode(record), version):
            raise ConflictError(Kind.BRANCH_EXISTS, "it exists")
        return record

    with _with((Branches, "create", create)):
        yield


# Reading and folding layers


def _without_deletes(self: Stack) -> Stack:
    layers = tuple(replace(layer, deletes=(), more_deletes=None) for layer in self.layers)
    return Stack(self.kv, self.tables, layers)


@mutant(theme="prefix", guards=True)
def _get_skips_prefix_deletes() -> Iterator[None]:
    """A get looks for entries, and not at prefix deletes."""
    lookup = Stack.lookup
    with _with((Stack, "lookup", lambda self, path: lookup(_without_deletes(self), path))):
        yield


@mutant(theme="prefix", guards=True)
def _listing_skips_prefix_deletes() -> Iterator[None]:
    """A listing shows what prefix deletes hide."""
    window = Stack.window
    with _with((Stack, "window", lambda self, *at: window(_without_deletes(self), *at))):
        yield


@mutant(theme="prefix", guards=True)
def _fold_skips_prefix_deletes() -> Iterator[None]:
    """A commit folds the entries of layers, and not their prefix deletes."""
    fold = Stack.fold
    with _with((Stack, "fold", lambda self, *window: Changes(fold(self, *window).rows))):
        yield


@mutant(theme="commit", guards=True)
def _fold_drops_tombstones() -> Iterator[None]:
    """A commit folds the entries of layers, and not their tombstones."""
    fold = Stack.fold

    def dropping(self: Stack, *window: Any) -> Changes:
        folded = fold(self, *window)
        return Changes(folded.rows.filter(pc.invert(folded.rows["tombstone"])).combine_chunks(), folded.deletes)

    with _with((Stack, "fold", dropping)):
        yield


@mutant(theme="prefix", guards=True)
def _fold_oldest_wins() -> Iterator[None]:
    """Layers are folded in the wrong order."""
    fold = Stack.fold

    def backwards(self: Stack, *window: Any) -> Changes:
        return fold(Stack(self.kv, self.tables, self.layers[::-1]), *window)

    with _with((Stack, "fold", backwards)):
        yield


@mutant(theme="prefix", guards=True)
def _deletes_hide_their_own_layer_and_above() -> Iterator[None]:
    """Folding lets a layer's prefix deletes hide what lies above it."""

    def over(self: Changes, older: Changes) -> Changes:
        changes = upper(self, older)
        hidden = [path.startswith(changes.deletes) for path in changes.rows["path"].to_pylist()] or None
        return changes if hidden is None else Changes(changes.rows.filter(pc.invert(pa.array(hidden))), changes.deletes)

    upper = Changes.over
    with _with((Changes, "over", over)):
        yield


class _Dated:
    """A lake whose clock stands still for a while."""

    def __init__(self, lake: Lake, now_s: float) -> None:
        self.lake = lake
        self.world = mock.Mock(wraps=lake.world, monotonic_s=lambda: now_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lake, name)


_WASTE: Final = msgspec.msgpack.Decoder(Waste)


# Tables, filters, levels


@mutant(theme="layers", guards=True)
def _layers_skipped_by_their_paths() -> Iterator[None]:
    """A layer whose tables cannot hold a path is skipped, its prefix deletes with it."""
    hides = Tables.hides

    def skipping(self: Tables, layer: Layer, path: str) -> bool:
        inside = not layer.tables or layer.tables[0].min <= path <= layer.tables[-1].max
        return inside and hides(self, layer, path)

    with _with((Tables, "hides", skipping)):
        yield


@mutant(theme="memstore", guards=True)
def _layers_skipped_by_their_filters() -> Iterator[None]:
    """A layer whose filters exclude a path is skipped, its prefix deletes with it."""
    hides = Tables.hides

    def skipping(self: Tables, layer: Layer, path: str) -> bool:
        may = not layer.tables or any(self._filters.may_hold(table, path.encode()) for table in layer.tables)
        return may and hides(self, layer, path)

    with _with((Tables, "hides", skipping)):
        yield


@mutant(theme="layers", guards=True)
def _filter_leaves_a_path_out() -> Iterator[None]:
    """The last path of a table is not in its filter."""
    build = filters.build
    with _with((filters, "build", lambda paths: build(paths[:-1]))):
        yield


@mutant(theme="layers", guards=True)
def _many_deletes_forgotten() -> Iterator[None]:
    """Prefix deletes that are in a table of their own are not looked at."""

    def deletes(self: Tables, layer: Layer) -> Prefixes:
        return Prefixes(prefix.encode() for prefix in layer.deletes)

    with _with((Tables, "deletes", deletes)):
        yield


@mutant(theme="layers", guards=True)
def _deletes_looked_at_first() -> Iterator[None]:
    """A get lets a layer's prefix deletes hide the layer's own entries."""
    lookup = Tables.lookup

    def hiding(self: Tables, layer: Layer, path: str) -> Any:
        return None if self.hides(layer, path) else lookup(self, layer, path)

    with _with((Tables, "lookup", hiding)):
        yield


@mutant(theme="compact", guards=True)
def _level_2_folded_as_the_newest() -> Iterator[None]:
    """Level 2 is laid over what is sealed."""

    def layers_of(self: Basis) -> tuple[Layer, ...]:
        return self.sealed if self.l2 is None else (self.l2, *self.sealed)

    with _with((Basis, "layers", property(layers_of))):
        yield


@mutant(theme="layers", guards=True)
def _level_2_not_read() -> Iterator[None]:
    """Readers look into what is sealed, and then into the tree."""

    def layers_of(self: Branch) -> tuple[Layer, ...]:
        return (self.open_layer, *self.sealed) if self.dirty else self.sealed

    with _with((Branch, "layers", property(layers_of))):
        yield


@mutant(theme="layers", guards=True)
def _compacted_tree_not_read() -> Iterator[None]:
    """Readers look into the commit's tree below the layers."""
    snapshot_of = snapshots.snapshot_of

    def committed(*args: Any) -> Snapshot:
        snapshot = snapshot_of(*args)
        return snapshot._replace(tree=snapshot.committed)

    with _with((snapshots, "snapshot_of", committed)):
        yield


@mutant(theme="compact", guards=True)
def _compacted_tree_not_folded() -> Iterator[None]:
    """Commits and compactions lay what is staged over the commit's tree."""
    fold = commit_verb.fold

    def over_the_commit(lake: Lake, repo: Repository, tree: FileName, basis: Basis) -> FileName:
        return fold(lake, repo, tree, msgspec.structs.replace(basis, compacted=None))

    with _with((commit_verb, "fold", over_the_commit), (compaction, "fold", over_the_commit)):
        yield


@mutant(theme="layers", guards=True)
def _compacted_branch_is_clean() -> Iterator[None]:
    """A branch is called clean on which nothing but a compacted tree differs from the commit."""
    clean = property(lambda self: not self.dirty and not self.sealed and self.l2 is None)
    with _with((Branch, "clean", clean)):
        yield


# Compaction


def _levelling(holds: Callable[[Branch, Basis], bool]) -> Callable[..., Branch | None]:
    def levelled(self: Branch, l2: Layer, basis: Basis, claim: Claim) -> Branch | None:
        if self.claim is None or self.claim.id != claim.id or not holds(self, basis):
            return None
        kept = self.sealed[: max(0, len(self.sealed) - len(basis.sealed))]
        fallen = [layer for layer in (*self.sealed, *((self.l2,) if self.l2 else ())) if layer not in kept]
        dropped = tuple(waste(layer, kept=l2) for layer in fallen)
        return replace(self, sealed=kept, l2=l2, claim=None, dropped=self.dropped + dropped)

    return levelled


@mutant(theme="compact", guards=True)
def _minor_compares_level_2_only() -> Iterator[None]:
    """A minor compaction lands, whatever it was that it folded, if level 2 is as it was; and asks for no claim."""

    def levelled(self: Branch, l2: Layer, basis: Basis, claim: Claim) -> Branch | None:
        claimed = replace(self, claim=claim)
        return _levelling(lambda record, basis: record.l2 == basis.l2)(claimed, l2, basis, claim)

    with _with((Branch, "levelled", levelled)):
        yield


@mutant(theme="compact", guards=True)
def _major_compares_layers_only() -> Iterator[None]:
    """A major compaction lands if its layers are the oldest, whatever is below, and asks for no claim."""

    def compacted_into(self: Branch, tree: FileName, basis: Basis, claim: Claim) -> Branch | None:
        if not _is_suffix(self, basis):
            return None
        record = self._without(basis, kept_trees=(tree,))
        fallen = () if self.l2 is None or self.l2 == basis.l2 else (waste(self.l2),)
        return replace(record, l2=None, compacted=tree, claim=None, dropped=record.dropped + fallen)

    with _with((Branch, "compacted_into", compacted_into)):
        yield


@mutant(theme="layers", guards=True)
def _minor_skips_tokens() -> Iterator[None]:
    """A minor compaction folds tables, and leaves the sealed tokens between them."""
    levelled = Branch.levelled

    def minor(lake: Lake, repo: Repository, branch: str, basis: Basis, claim: Claim) -> bool:
        folded = tuple(layer for layer in basis.sealed if not layer.token)
        l2 = compaction.levelled(lake, repo, f"{branch}/L2", lake.stack_of(repo, folded).fold(), basis.l2)

        def without(record: Branch) -> Branch | None:
            changed = levelled(record, l2, basis, claim)
            kept = tuple(layer for layer in record.sealed if layer not in folded)
            ids = {layer.id for layer in kept}
            return changed and replace(
                changed, sealed=kept, dropped=tuple(waste for waste in changed.dropped if waste.id not in ids)
            )

        return lake.branches(repo).update(branch, without) is not None

    with _with((compaction, "_minor", minor)):
        yield


def _levelled_without(change: Callable[[Changes], Changes]) -> Callable[..., Layer]:
    levelled = compaction.levelled

    def forgetting(lake: Lake, repo: Repository, where: str, over: Changes, l2: Layer | None) -> Layer:
        return levelled(lake, repo, where, change(over), l2)

    return forgetting


@mutant(theme="layers", guards=True)
def _minor_drops_prefix_deletes() -> Iterator[None]:
    """Level 2 has the entries that were folded into it, and not their prefix deletes."""

    def folded(lake: Lake, repo: Repository, where: str, over: Changes, l2: Layer | None) -> Layer:
        return replace(levelled(lake, repo, where, over, l2), deletes=(), more_deletes=None)

    levelled = compaction.levelled
    with _with((compaction, "levelled", folded)):
        yield


@mutant(theme="layers", guards=True)
def _minor_drops_tombstones() -> Iterator[None]:
    """Level 2 is thought to be the lowest: tombstones are left out."""

    def dropping(over: Changes) -> Changes:
        return Changes(over.rows.filter(pc.invert(over.rows["tombstone"])).combine_chunks(), over.deletes)

    with _with((compaction, "levelled", _levelled_without(dropping))):
        yield


@mutant(theme="layers", guards=True)
def _minor_keeps_what_is_deleted() -> Iterator[None]:
    """A table of level 2 that new prefix deletes cover is kept as it is, where nothing is put into it."""
    with _with((compaction, "_is_deleted", lambda *_: False)):
        yield


@mutant(theme="waste", guards=True)
def _waste_of_level_2_includes_kept_tables() -> Iterator[None]:
    """What a minor compaction takes off the branch goes, tables included that the new level 2 has, too."""

    def levelled(self: Branch, l2: Layer, basis: Basis, claim: Claim) -> Branch | None:
        if self.claim is None or self.claim.id != claim.id or not self.holds(basis):
            return None
        kept = self.sealed[: len(self.sealed) - len(basis.sealed)]
        dropped = self.dropped + tuple(waste(layer) for layer in basis.layers)
        return replace(self, sealed=kept, l2=l2, claim=None, dropped=dropped)

    with _with((Branch, "levelled", levelled)):
        yield


def _wasting(**instead: object) -> Callable[..., tuple[Waste, ...]]:
    compacted_waste = Branch._compacted_waste

    def wasting(self: Branch, **kept: Any) -> tuple[Waste, ...]:
        return tuple(replace(waste, **instead) for waste in compacted_waste(self, **kept))

    return wasting


@mutant(theme="waste", guards=True)
def _compacted_tree_takes_the_commits_files_along() -> Iterator[None]:
    """All files of a compacted tree are deleted, those included that a commit's tree has, too."""
    with _with((Branch, "_compacted_waste", _wasting(kept_commits=()))):
        yield


@mutant(theme="waste", guards=True)
def _compacted_tree_takes_its_successors_files_along() -> Iterator[None]:
    """All files of a compacted tree are deleted, those included that the next one has, too."""
    with _with((Branch, "_compacted_waste", _wasting(kept_trees=()))):
        yield


@mutant(theme="waste", guards=True)
def _compacted_tree_forgotten() -> Iterator[None]:
    """A compacted tree falls off, and nobody knows of it."""
    with _with((Branch, "_compacted_waste", lambda self, **kept: ())):
        yield


@mutant(theme="waste", guards=True, faults=0.0)
def _filters_left_behind() -> Iterator[None]:
    """The cleaner takes tables away, and not their filters."""
    with _with((Filters, "delete", lambda self, file: None)):
        yield


@mutant(theme="waste", guards=True)
def _compacted_trees_cleaned_in_any_order() -> Iterator[None]:
    """A compacted tree is deleted before one that leaves files to it: which files, nobody knows any more."""
    decoder = mock.Mock(decode=lambda value: replace(_WASTE.decode(value), kept_trees=()))
    delete = Cleaner._delete

    def deleting(self: Cleaner, gone: Waste) -> None:
        notes = {item.key: item.record.value for item in items(self._lake.kv, self._notes)}
        delete(self, _WASTE.decode(notes[gone.id.encode()]) if gone.id.encode() in notes else gone)

    with _with((cleaning, "_DECODER", decoder), (Cleaner, "_delete", deleting)):
        yield


@mutant(theme="stall", guards=True)
def _notes_dated_before_they_were_seen() -> Iterator[None]:
    """The cleaner reads the clock, and then the notes: some may have been made since."""
    run = Cleaner.run

    def running(self: Cleaner) -> int:
        world = self._lake.world
        now_s = world.monotonic_s()
        with mock.patch.object(self, "_lake", _Dated(self._lake, now_s)):
            return run(self)

    with _with((Cleaner, "run", running)):
        yield


@mutant(theme="late", guards=True)
def _what_fell_off_told_as_damage() -> Iterator[None]:
    """Who folds too slowly what was cleaned away meanwhile is told that the lake is damaged."""

    @contextmanager
    def folding(*_: object) -> Iterator[None]:
        yield

    with _with(*((module, "folding", folding) for module in (commit_verb, compaction, landing, reset, stashes))):
        yield


@mutant(theme="late", guards=True)
def _reader_does_not_miss_the_compacted_tree() -> Iterator[None]:
    """A late read stands though the compacted tree that it read has fallen off since."""

    def has_layers(lake: Lake, repo: Repository, branch: str, record: Branch) -> bool:
        now = lake.branches(repo).find(branch)
        return now is not None and {layer.id for layer in record.layers} <= {
            layer.id for layer in (now.open_layer, *now.layers)
        }

    with _with((snapshots, "has_layers", has_layers), (entries, "has_layers", has_layers)):
        yield


# Reset over what is compacted


@mutant(theme="layers", guards=True)
def _reset_prefix_to_the_compacted_tree() -> Iterator[None]:
    """A reset of a prefix takes what is compacted for committed."""
    of_record = snapshots.of_record

    def compacted(*args: Any) -> Snapshot:
        snapshot = of_record(*args)
        return snapshot._replace(committed=snapshot.tree)

    with _with((reset, "of_record", compacted)):
        yield


@mutant(theme="layers", guards=True)
def _reset_path_overlooks_the_compacted_tree() -> Iterator[None]:
    """A reset of a path does nothing where no layer has the path, whatever is compacted."""
    staged = snapshots.staged

    def overlooking(lake: Lake, repo: Repository, snapshot: Snapshot, *window: Any) -> Changes:
        return staged(lake, repo, snapshot._replace(tree=snapshot.committed), *window)

    with _with((reset, "staged", overlooking)):
        yield


@mutant(theme="layers", guards=True)
def _reset_keeps_the_compacted_tree() -> Iterator[None]:
    """A reset drops all layers, and leaves what is compacted."""

    def kept(self: Branch, fresh: Token) -> Branch:
        record = replace(self.rotated(fresh), compacted=None)
        return replace(record._without(record.basis()), l2=None, claim=None, compacted=self.compacted)

    with _with((Branch, "reset", kept)):
        yield


# Stashes


@mutant(theme="stash", guards=True)
def _stash_keeps_the_compacted_tree() -> Iterator[None]:
    """Layers are set aside, and what is compacted stays on the branch."""
    stashed = Branch.stashed

    def keeping(self: Branch, name: str, stash: Stash, basis: Basis) -> Branch | None:
        changed = stashed(self, name, stash, basis)
        return changed and replace(changed, compacted=self.compacted, dropped=self.dropped)

    with _with((Branch, "stashed", keeping)):
        yield


@mutant(theme="stash", guards=True)
def _stash_forgets_the_compacted_tree() -> Iterator[None]:
    """Layers are set aside, and what is compacted is not among them."""
    with _with((stashes, "_layers", lambda lake, repo, branch, seen: seen.basis().layers)):
        yield


@mutant(theme="stash", guards=True)
def _stash_takes_what_it_did_not_see() -> Iterator[None]:
    """What was staged since a stash looked is set aside with the rest, and is not in it."""
    stashed = Branch.stashed

    def taking(self: Branch, name: str, stash: Stash, basis: Basis) -> Branch | None:
        return stashed(self, name, stash, self.basis())

    with _with((Branch, "stashed", taking)):
        yield


@mutant(theme="stash", guards=True)
def _stashed_layers_dropped() -> Iterator[None]:
    """The cleaner is told of what is in a stash."""
    stashed = Branch.stashed

    def dropping(self: Branch, name: str, stash: Stash, basis: Basis) -> Branch | None:
        changed = stashed(self, name, stash, basis)
        dropped = tuple(replace(waste(layer), id=f"stashed {layer.id}") for layer in stash.layers)
        return changed and replace(changed, dropped=changed.dropped + dropped)

    with _with((Branch, "stashed", dropping)):
        yield


@mutant(theme="stash", guards=True)
def _pop_laid_blindly() -> Iterator[None]:
    """A stash is laid on top of whatever the branch is at by then."""
    popped = Branch.popped

    def blindly(self: Branch, name: str, stash: Stash, layers: Sequence[Layer], fresh: Token) -> Branch | None:
        there = self.stashes.get(name)
        return None if there is None else popped(replace(self, commit=there.commit), name, there, layers, fresh)

    def pop(self: Branch, name: str, stash: Stash, layers: Sequence[Layer], fresh: Token) -> Branch | None:
        changed = blindly(self, name, stash, layers, fresh)
        return changed and replace(changed, commit=self.commit)

    with _with((Branch, "popped", pop)):
        yield


@mutant(theme="stash", guards=True)
def _pop_merged_over_what_it_did_not_see() -> Iterator[None]:
    """What merging a stash brought is laid on top, whatever was staged since it looked."""

    def pop_merged(
        self: Branch, name: str, stash: Stash, layers: Sequence[Layer], basis: Basis, fresh: Token
    ) -> Branch | None:
        if name not in self.stashes:
            return None
        return (self.appended(layers, fresh) if layers else self).stash_dropped(name)

    with _with((Branch, "pop_merged", pop_merged)):
        yield


@mutant(theme="stash", guards=True)
def _pop_keeps_the_stash() -> Iterator[None]:
    """A stash that was popped is still there."""
    popped = Branch.popped

    def keeping(self: Branch, name: str, stash: Stash, layers: Sequence[Layer], fresh: Token) -> Branch | None:
        changed = popped(self, name, stash, layers, fresh)
        return changed and replace(changed, stashes=self.stashes)

    with _with((Branch, "popped", keeping)):
        yield


@mutant(theme="stash", guards=True)
def _dropped_stash_forgotten() -> Iterator[None]:
    """A stash is dropped, and nobody knows of its layers."""

    def forgetting(self: Branch, name: str) -> Branch | None:
        return replace(self, stashes={other: found for other, found in self.stashes.items() if other != name})

    with _with((Branch, "stash_dropped", forgetting)):
        yield


@mutant(theme="gone", guards=True)
def _stashes_of_a_deleted_branch_forgotten() -> Iterator[None]:
    """A branch is deleted, and nobody knows of what is in its stashes."""

    def removed(self: Branch, fresh: Token) -> Branch:
        return replace(self.reset(fresh), deleted=True, token=fresh, dirty=False, stashes={})

    with _with((Branch, "removed", removed)):
        yield


# Landing


def _moving(self: Branch, commit: CommitID, *, base: CommitID) -> Branch | None:
    return replace(self, commit=commit) if self.commit == base else None


@mutant(theme="land", guards=True)
def _clean_not_looked_at_again() -> Iterator[None]:
    """A merge looks whether the branch is clean, and not again in its swap."""
    with _with((Branch, "moved", _moving)):
        yield


@mutant(theme="land", guards=True)
def _merge_into_a_dirty_branch() -> Iterator[None]:
    """A merge lands below what is staged."""

    def head(lake: Lake, repo: Repository, branch: str) -> CommitID:
        return lake.branches(repo).get(branch).commit

    with _with((Branch, "moved", _moving), (landing, "clean_head", head)):
        yield


@mutant(theme="land", guards=True)
def _merge_drops_what_is_staged() -> Iterator[None]:
    """Whatever is staged on the destination of a merge is taken off it."""

    def head(lake: Lake, repo: Repository, branch: str) -> CommitID:
        while not (record := lake.branches(repo).get(branch)).clean:
            lake.branches(repo).update(branch, lambda now: now.reset(lake.branches(repo).fresh_token()))
        return record.commit

    with _with((landing, "clean_head", head)):
        yield


@mutant(theme="merge", guards=True)
def _landing_ignores_the_head() -> Iterator[None]:
    """What a merge made is swapped in, whatever has landed since."""

    def moved(self: Branch, commit: CommitID, *, base: CommitID) -> Branch | None:
        return replace(self, commit=commit) if self.clean else None

    with _with((Branch, "moved", moved)):
        yield


@mutant(theme="merge", guards=True)
def _merge_tried_again_from_its_old_base() -> Iterator[None]:
    """A merge that was overtaken is made again from the base that it began with."""
    merged = merge._merged
    first: dict[int, tuple[Memo, FileName]] = {}

    def again(lake: Lake, repo: Repository, trees: Any, strategy: Strategy, memo: Memo, doing: str) -> FileName:
        _, before = first.setdefault(id(memo), (memo, trees.base))
        return merged(lake, repo, trees._replace(base=before), strategy, memo, doing)

    with _with((merge, "_merged", again)):
        yield


@mutant(theme="merge", guards=True)
def _merge_tried_again_as_it_was() -> Iterator[None]:
    """A merge that was overtaken lands the tree that it came to at first."""
    merged = merge._merged
    first: dict[int, tuple[Memo, FileName]] = {}

    def again(*args: Any) -> FileName:
        memo: Memo = args[4]
        if id(memo) not in first:
            first[id(memo)] = memo, merged(*args)
        return first[id(memo)][1]

    with _with((merge, "_merged", again)):
        yield


@mutant(theme="merge", guards=True, faults=0.08)
def _landing_repeated_after_a_lost_answer() -> Iterator[None]:
    """A landing whose answer was lost is made again: nothing in the record tells that it was applied."""
    with _with((Branch, "stamped", lambda self, operation: replace(self, seq=self.seq + 1))):
        yield


@mutant(theme="line", guards=True)
def _failures_told_before_the_swap() -> Iterator[None]:
    """Of those who land together, one that fails is told at once: because of a head that may never be there."""
    follow = landing._follow
    told: dict[int, tuple[object, EskerError]] = {}

    def once(repo: Repository, branch: str, request: Any, head: CommitID) -> Any:
        if id(request) in told:
            raise told[id(request)][1]
        try:
            return follow(repo, branch, request, head)
        except (ConflictError, InvalidError) as error:
            told[id(request)] = request, error
            raise

    with _with((landing, "_follow", once)):
        yield


@mutant(theme="merge", guards=True)
def _swapped_before_it_is_stored() -> Iterator[None]:
    """A branch is moved to commits whose records and trees are on their way to the store."""

    def land_all(lake: Lake, repo: Repository, branch: str, batch: Sequence[Any]) -> list[CommitID | EskerError]:
        while True:
            head = at = landing.clean_head(lake, repo, branch)
            outcomes: list[CommitID | EskerError] = []
            with lake.commits(repo).writing_behind(), lake.past(repo).writing_behind():
                for request in batch:
                    try:
                        made = landing._follow(repo, branch, request, at)
                        assert not isinstance(made, landing.Already)
                        outcomes.append(at := made)
                    except EskerError as error:
                        outcomes.append(error)
                if at == head or lake.branches(repo).update(branch, partial(Branch.moved, commit=at, base=head)):
                    return outcomes

    with _with((landing, "_land_all", land_all)):
        yield


@mutant(theme="merge", guards=True)
def _each_of_the_line_made_on_the_head() -> Iterator[None]:
    """Of those who land together, each is made on the head itself, not on the one before it."""
    follow = landing._follow
    land_all = landing._land_all
    heads: dict[str, CommitID] = {}

    def on_the_head(repo: Repository, branch: str, request: Any, head: CommitID) -> Any:
        return follow(repo, branch, request, heads.get(branch, head))

    def landing_all(lake: Lake, repo: Repository, branch: str, batch: Sequence[Any]) -> Any:
        heads[branch] = lake.branches(repo).get(branch).commit
        return land_all(lake, repo, branch, batch)

    with _with((landing, "_follow", on_the_head), (landing, "_land_all", landing_all)):
        yield


@mutant(theme="merge", guards=True)
def _leader_leaves_without_handing_over() -> Iterator[None]:
    """Whoever was landing for all goes, and nobody takes the place."""

    def hand_over(line: Any, request: Any) -> None:
        if request in line.waiting:
            line.waiting.remove(request)

    with _with((landing, "_hand_over", hand_over)):
        yield


# The memstore


@mutant(theme="memstore", guards=True)
def _memstore_acknowledges_before_the_swap() -> Iterator[None]:
    """A write is acknowledged once it is in a batch that another writer leads."""

    def share(lake: Lake, repo: Repository, branch: str, step: Any) -> Any:
        store = lake.memstores.setdefault((repo.uid, branch), memstore.Memstore())
        batch, leads = memstore._join(lake, store, branch, step)
        if leads:
            memstore._lead(lake, repo, branch, store, batch)
        return batch

    with _with((memstore, "_share", share)):
        yield


@mutant(theme="memstore", guards=True)
def _memstore_lays_if_absent_unconditionally() -> Iterator[None]:
    """Of a batch, the if-absent puts whose paths are absent are laid like others: others may have come between."""

    def append(lake: Lake, repo: Repository, branch: str, entries: Sequence[Entry]) -> set[str]:
        record = lake.branches(repo).get(branch)
        there = {entry.path for entry in entries if present(lake, repo, record, entry.path)}
        absent = [entry for entry in entries if entry.path not in there]
        if absent:
            layers.append(lake, repo, branch, Changes(changes_of(absent)))
        return there

    with _with((layers, "append_if_absent", append)):
        yield


@mutant(theme="memstore", guards=True)
def _all_of_a_batch_were_first() -> Iterator[None]:
    """Of several if-absent puts of a path in one batch, all are told that they were first."""

    def put_if_absent(lake: Lake, repo: Repository, branch: str, entry: Entry) -> bool:
        outcome = memstore._share(lake, repo, branch, entry).outcome_if_absent
        if isinstance(outcome, EskerError):
            raise outcome
        return entry.path not in outcome

    with _with((memstore, "put_if_absent", put_if_absent)):
        yield


@mutant(theme="memstore", guards=True, faults=0.08)
def _flush_repeated_blindly() -> Iterator[None]:
    """A batch whose swap got no answer is laid once more, in a swap of its own."""
    lay = layers.lay

    def repeating(*args: Any) -> Branch:
        try:
            return lay(*args)
        except OutcomeUnknownError:
            return lay(*args)

    stamped = Branch.stamped

    def forgetting(self: Branch, operation: str) -> Branch:
        return replace(stamped(self, operation), recent=())

    with _with((layers, "lay", repeating), (Branch, "stamped", forgetting)):
        yield


@mutant(theme="memstore", guards=True)
def _lost_batch_told_as_staged() -> Iterator[None]:
    """What goes wrong with a batch is not told to its writers."""
    flush = memstore._flush

    def silent(lake: Lake, repo: Repository, branch: str, batch: Any) -> None:
        flush(lake, repo, branch, batch)
        batch.outcome = None

    with _with((memstore, "_flush", silent)):
        yield
