"""Weaknesses to plant in the engine, one at a time: a simulator is worth what it catches.

Each takes one rule of the protocol away, as an edit might that looks harmless. One is caught by a schedule that fails
with it, and does not without it.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final, NamedTuple
from unittest import mock

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import branches as branch_verbs
from esker.engine import commit as commit_verb
from esker.engine import entries, layers, snapshots
from esker.engine.cleaning import Cleaner
from esker.engine.lake import Lake
from esker.engine.snapshots import present
from esker.errors import ConflictError, Kind, OutcomeUnknownError
from esker.model import CommitID, Layer, LayerID, Repository, Token
from esker.refs import branches as branch_records
from esker.refs.branches import Branches
from esker.refs.records import Branch
from esker.staging import tokens
from esker.staging.stack import Stack
from esker.stores.kv import ANYTHING, Guarded, Record, items
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from esker.testing.simulation.plans import Wishes, draw
from esker.testing.simulation.run import prepare
from esker.testing.simulation.shrink import Failure, failing

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

    def clearing(self: Branch, commit: CommitID, *, base: CommitID, folded: tuple[Layer, ...]) -> Branch | None:
        changed = advanced(self, commit, base=base, folded=folded)
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
        return Stack(self.kv, self.past(repo).read_layer, (record.open_layer,) if record.dirty else record.sealed)

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

    def append(
        lake: Lake, repo: Repository, branch: str, *, changes: pa.Table | None = None, deletes: tuple[str, ...] = ()
    ) -> None:
        branches = lake.branches(repo)
        layer = Layer(id=LayerID(lake.world.token(12)), deletes=deletes)

        def on_top(record: Branch) -> Branch:
            there = any(other.id == layer.id for other in record.sealed)
            return record if there else record.appended(layer, branches.fresh_token())

        branches.update(branch, on_top)

    with _with(
        (Branch, "stamped", lambda self, operation: replace(self, seq=self.seq + 1)),
        (layers, "append", append),
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
    with _with((Branch, "appended", lambda self, layer, fresh: replace(self, sealed=(layer, *self.sealed)))):
        yield


@mutant(theme="reset", guards=True)
def _reset_prefix_unchecked() -> Iterator[None]:
    """What a reset of a prefix restores is laid on the branch, whatever was committed since it looked."""

    def restored(
        self: Branch, layer: Layer, fresh: Token, *, base: CommitID, folded: tuple[Layer, ...]
    ) -> Branch | None:
        return self.appended(layer, fresh)

    with _with((Branch, "restored", restored)):
        yield


@mutant(theme="slow", guards=True)
def _reset_prefix_below_the_open_token() -> Iterator[None]:
    """What a reset of a prefix restores is laid just above what it looked at: below a token that takes writes."""

    def restored(
        self: Branch, layer: Layer, fresh: Token, *, base: CommitID, folded: tuple[Layer, ...]
    ) -> Branch | None:
        if not self.holds(base, folded):
            return None
        at = len(self.sealed) - len(folded)
        return replace(self, sealed=(*self.sealed[:at], layer, *self.sealed[at:]))

    with _with((Branch, "restored", restored)):
        yield


# Commit and reset


def _advancing(holds: Callable[[Branch, CommitID, tuple[Layer, ...]], bool], *, by_set: bool) -> Callable[..., Any]:
    def advanced(self: Branch, commit: CommitID, *, base: CommitID, folded: tuple[Layer, ...]) -> Branch | None:
        if not holds(self, base, folded):
            return None
        gone = {layer.id for layer in folded}
        kept = self.sealed[: max(0, len(self.sealed) - len(folded))]
        if by_set:
            kept = tuple(layer for layer in self.sealed if layer.id not in gone)
        dropped = tuple(layer for layer in self.sealed if layer not in kept)
        return replace(self, commit=commit, sealed=kept, dropped=self.dropped + dropped)

    return advanced


@mutant(theme="reset", guards=True)
def _commit_compares_the_base_only() -> Iterator[None]:
    """The commit lands if the branch still is at its parent; as many layers as it folded fall off."""
    with _with((Branch, "advanced", _advancing(lambda self, base, folded: self.commit == base, by_set=False))):
        yield


@mutant(theme="reset", guards=True)
def _commit_takes_a_set_difference() -> Iterator[None]:
    """The commit lands if the branch still is at its parent; those of its layers that are still there fall off."""
    with _with((Branch, "advanced", _advancing(lambda self, base, folded: self.commit == base, by_set=True))):
        yield


@mutant(theme="commit", guards=True)
def _commit_compares_layers_only() -> Iterator[None]:
    """The commit lands if its layers still are the oldest, wherever the branch is."""

    def holds(self: Branch, base: CommitID, folded: tuple[Layer, ...]) -> bool:
        return self.sealed[len(self.sealed) - len(folded) :] == folded

    with _with((Branch, "advanced", _advancing(holds, by_set=False))):
        yield


@mutant(theme="commit", guards=True)
def _commit_does_not_seal() -> Iterator[None]:
    """The commit reads the open token, and takes it off the branch at the end, without having sealed it."""

    def rotated(self: Branch, fresh: Token) -> Branch:
        return self

    def folding(record: Branch, ours: set[LayerID]) -> tuple[Layer, ...]:
        return record.layers

    def advanced(self: Branch, commit: CommitID, *, base: CommitID, folded: tuple[Layer, ...]) -> Branch | None:
        if self.commit != base or self.layers != folded:
            return None
        fresh = Token(f"{commit[:24]}")
        return replace(self, commit=commit, token=fresh, dirty=False, sealed=(), dropped=self.dropped + folded)

    with _with((Branch, "rotated", rotated), (Branch, "advanced", advanced), (commit_verb, "layers_to_fold", folding)):
        yield


@mutant(theme="reset", guards=True)
def _reset_does_not_rotate() -> Iterator[None]:
    """Reset drops what is sealed, and leaves the open token."""
    with _with(
        (Branch, "reset", lambda self, fresh: replace(self, sealed=(), dropped=self.dropped + self.sealed)),
    ):
        yield


@mutant(theme="reset", guards=True)
def _reset_keeps_the_token() -> Iterator[None]:
    """Reset calls the branch clean, and goes on with the token that was written to."""
    with _with(
        (
            Branch,
            "reset",
            lambda self, fresh: replace(self, dirty=False, sealed=(), dropped=self.dropped + self.sealed),
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

    def append(lake: Lake, repo: Repository, branch: str, entry: Any) -> None:
        record = lake.branches(repo).get(branch)
        if present(lake, repo, record, entry.path):
            raise layers.already_there(repo, branch, entry.path)
        layers.append(lake, repo, branch, changes=changes_of([entry]))

    with _with((layers, "append_if_absent", append)):
        yield


# Readers and the cleaner


@mutant(theme="clean", guards=True)
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
            self._delete(msgspec.msgpack.decode(note.record.value, type=Layer))
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
        for _, record in self._lake.branches(self._repo).page("", 100):
            notes = [(layer.id.encode(), msgspec.msgpack.encode(layer)) for layer in record.sealed]
            self._lake.kv.put_many(self._notes, notes)

    with _with((Cleaner, "_collect", collecting)):
        yield


@mutant(theme="clean", guards=True, faults=0.08)
def _cleaner_forgets_before_it_notes() -> Iterator[None]:
    """What fell off is taken off the record first, and noted then: a crash between, and nobody knows of it."""

    def collecting(self: Any) -> None:
        branches = self._lake.branches(self._repo)
        for name, record in branches.page("", 100, deleted=True):
            branches.forget(name, [layer.id for layer in record.dropped])
            notes = [(layer.id.encode(), msgspec.msgpack.encode(layer)) for layer in record.dropped]
            self._lake.kv.put_many(self._notes, notes)

    with _with((Cleaner, "_collect", collecting)):
        yield


@mutant(theme="clean", guards=True)
def _dropped_layers_are_forgotten() -> Iterator[None]:
    """A commit takes its layers off the record, and nobody knows of them any more."""
    advanced = Branch.advanced

    def forgetting(self: Branch, commit: CommitID, *, base: CommitID, folded: tuple[Layer, ...]) -> Branch | None:
        changed = advanced(self, commit, base=base, folded=folded)
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
        return replace(self, deleted=True, dirty=False, sealed=(), dropped=self.dropped + self.sealed)

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
    return Stack(self.kv, self.read_file, tuple(replace(layer, deletes=()) for layer in self.layers))


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
        return fold(Stack(self.kv, self.read_file, self.layers[::-1]), *window)

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
