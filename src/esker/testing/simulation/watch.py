"""At every write: is this a step that the protocol allows?

What a branch shows is computed here anew, from its record, the staged records and the files, and compared with what it
showed before: sealing, committing and cleaning must not change it, a write changes its own path, and so on. What it
showed and when is kept, for the judgements that come after.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from esker.model import Commit, CommitID, FileName, Layer, Stash, Waste
from esker.refs.branches import OPEN, SEALED, decode
from esker.refs.records import Branch, waste
from esker.staging import tokens
from esker.stores.kv import Record, Version
from esker.testing.simulation.plans import LANDING, STAGING, Op, Verb
from esker.testing.simulation.scheduler import Scheduler
from esker.testing.simulation.stores import Partitions

View = dict[str, str]
"""Path to value."""


class Event(Protocol):
    """An operation under way."""

    op: Op
    server: int
    end: int
    landings: dict[str, int]
    """By path: how often it was staged."""


class Peek(Protocol):
    """Looks at files and commits without a turn."""

    def commit(self, commit: CommitID) -> Commit: ...
    def tree(self, tree: FileName) -> View: ...
    def files_of(self, tree: FileName) -> set[str]: ...
    def rows(self, file: FileName) -> dict[str, str | None]: ...


class Effect(NamedTuple):
    """A swap that changed what a branch shows."""

    moment: int
    branch: str
    event: Event | None
    before: View
    after: View


class Landing(NamedTuple):
    """A commit that a branch moved to, or past."""

    moment: int
    branch: str
    commit: CommitID
    event: Event | None
    """Of whoever made the swap: others of its server may have been landed with it."""


class Watch:
    """Of one repository."""

    def __init__(
        self,
        scheduler: Scheduler,
        partitions: Partitions,
        peek: Peek,
        uid: str,
        *,
        grace_s: float,
        guards: bool,
        memstore: bool,
        blind: bool,
        underway: Callable[[str], Iterable[Event]],
    ) -> None:
        self.views: dict[str, list[tuple[int, View | None]]] = {}
        """By branch: from which moment on it showed what."""
        self.heads: dict[str, list[tuple[int, CommitID | None]]] = {}
        """By branch: from which moment on it stood where."""
        self.landed: list[Landing] = []
        self.moved: list[tuple[int, str]] = []
        """When a branch went to a commit that does not descend from the one that it was at."""
        self.effects: list[Effect] = []
        self.wasted: dict[str, float] = {}
        """All that ever fell off a branch, tokens and files, and when."""
        self._grace_s = grace_s
        self._scheduler = scheduler
        self._partitions = partitions
        self.peek = peek
        self._guards = guards
        self._memstore = memstore
        self._blind = blind
        self._underway = underway
        self._branches = f"branches/{uid}"
        self._guard_partition = f"guards/{uid}"
        self._notes = f"cleanup/{uid}"
        self._noted: set[str] = set()
        self._records: dict[str, Branch] = {}
        self._ever: set[str] = set()
        self._once_open: set[bytes] = set()
        self._commits: set[CommitID] = set()
        """All that ever landed."""
        for key, record in partitions.get(self._branches, {}).items():
            self._enter(key.decode(), decode(key.decode(), record))
            self._commits |= self.ancestors(decode(key.decode(), record).commit)
        self._once_open.update(partitions.get(self._guard_partition, {}))

    def __call__(self, partition: str, key: bytes, was: bytes | None, now: bytes | None) -> None:
        if partition.startswith("staging/"):
            if now is None:
                self._unstaged(partition, key.decode())
            elif now != was:
                self._staged(partition, key.decode(), now)
        elif partition == self._branches:
            self._swapped(key.decode(), was, now)
        elif partition == self._guard_partition:
            self._guarded(key, was, now)
        elif partition == self._notes and now is not None:
            self._noted |= _things_of_waste(_WASTE.decode(now))

    def view(self, branch: str) -> View | None:
        return self.views[branch][-1][1] if branch in self.views else None

    def named(self) -> set[str]:
        """All that a branch still names: tokens, tables and trees."""
        return {thing for record in self._records.values() for thing in _things(record)}

    def kept_files(self) -> set[str]:
        """All files that a branch, a stash or a commit still needs."""
        files: set[str] = set()
        trees: set[FileName] = set()
        for record in self._records.values():
            files |= {file for layer in _layers(record) for file in layer.files}
            trees |= {record.compacted} if record.compacted else set()
            trees.add(self.peek.commit(record.commit).tree)
        for commit in {landing.commit for landing in self.landed}:
            trees.add(self.peek.commit(commit).tree)
        for tree in trees:
            files |= self.peek.files_of(tree)
        return files

    def deletes(self, file: str) -> None:
        """A file is about to be deleted."""
        if file in self.kept_files():
            self.fail(f"{file} is deleted, which is still named")
        self._check_grace(file)

    def fail(self, message: str) -> None:
        if self._blind:
            return
        event = self._event()
        by = f"{event.op}" if event is not None else "nobody"
        self._scheduler.fail("step", f"{message} (by {by})")

    def _event(self) -> Event | None:
        task = self._scheduler.current
        found: Event | None = None if task is None else task.op  # type: ignore[assignment]  # tasks carry events
        return found

    def _enter(self, branch: str, record: Branch) -> View:
        view = self._compute(record)
        self._records[branch] = record
        self._ever |= _ids(record)
        for thing in (thing for gone in record.dropped for thing in _things_of_waste(gone)):
            self.wasted.setdefault(thing, self._scheduler.now_s)
        moment = self._scheduler.tick()
        self.views.setdefault(branch, []).append((moment, None if record.deleted else view))
        self.heads.setdefault(branch, []).append((moment, None if record.deleted else record.commit))
        return view

    def ancestors(self, commit: CommitID) -> set[CommitID]:
        """A commit, and all that it descends from."""
        found: set[CommitID] = set()
        waiting = [commit]
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                waiting += self.peek.commit(at).parents
        return found

    def committed(self, commit: CommitID) -> View:
        """What a commit shows."""
        return self.peek.tree(self.peek.commit(commit).tree)

    def _compute(self, record: Branch) -> View:
        layers = (record.open_layer, *record.sealed, *((record.l2,) if record.l2 else ()))
        below = self.peek.tree(record.compacted) if record.compacted else self.committed(record.commit)
        return self.overlaid(below, layers)

    def overlaid(self, below: View, layers: Iterable[Layer]) -> View:
        """A view with layers, newest first, over it."""
        view = dict(below)
        for layer in reversed(tuple(layers)):
            deletes = layer.deletes
            if layer.more_deletes is not None:
                deletes = tuple(self.peek.rows(layer.more_deletes.file))
            if deletes:
                view = {path: value for path, value in view.items() if not path.startswith(deletes)}
            if layer.token:
                for key, found in self._partitions.get(tokens.partition(layer.token), {}).items():
                    _lay(view, key.decode(), _value(key.decode(), found.value))
            for table in layer.tables:
                for path, value in self.peek.rows(table.file).items():
                    _lay(view, path, value)
        return view

    def _unstaged(self, partition: str, path: str) -> None:
        """A record is gone from a token."""
        for branch, record in self._records.items():
            for layer in (record.open_layer, *_layers(record)):
                if layer.token and tokens.partition(layer.token) == partition:
                    self.fail(f"{path!r} is taken out of a token that {branch!r} still names")
        self._check_grace(partition.removeprefix("staging/"))

    def _check_grace(self, thing: str) -> None:
        if self._scheduler.now_s - self.wasted.get(thing, float("-inf")) < self._grace_s:
            self.fail(f"{thing} is deleted before the grace time is over")

    def _staged(self, partition: str, path: str, value: bytes) -> None:
        """A record was written into a token."""
        for branch, record in self._records.items():
            if record.deleted or not any(
                layer.token and tokens.partition(layer.token) == partition
                for layer in (record.open_layer, *record.sealed)
            ):
                continue
            is_open = tokens.partition(record.token) == partition
            if self._guards and not is_open:
                self.fail(f"{path!r} is written into a token that was sealed")
            if is_open and not record.dirty:
                self.fail(f"{path!r} is written into a token that is not dirty: readers will not look")
            self._check_staged(self._event(), self.view(branch) or {}, path, _value(path, value))
            view = dict(self.views[branch][-1][1] or {}) if is_open else self._compute(record)
            if is_open:
                _lay(view, path, _value(path, value))
            self.views[branch].append((self._scheduler.tick(), view))

    def _check_staged(self, event: Event | None, view: View, path: str, value: str | None) -> None:
        """Whether the operation under way may write this, and has not done so before."""
        if event is None:
            return
        op = event.op
        puts = op.verb in (Verb.PUT, Verb.PUT_IF_ABSENT)
        if op.path != path or (op.value != value if puts else value is not None or op.verb is not Verb.DELETE):
            self.fail(f"{path!r} = {value} is staged, which nobody asked for")
        if self._guards:
            if op.verb is Verb.PUT_IF_ABSENT and path in view:
                self.fail(f"{path!r} is put though {view[path]} is there")
            if event.landings and view.get(path) != value:
                self.fail(f"{path!r} = {value} takes effect a second time, over {view.get(path)}")
            event.landings[path] = event.landings.get(path, 0) + 1

    def _guarded(self, key: bytes, was: bytes | None, now: bytes | None) -> None:
        if now == OPEN:
            if was == SEALED or (was is None and key in self._once_open):
                self.fail(f"the guard of token {key.decode()} was sealed, and is open again")
            self._once_open.add(key)

    def _swapped(self, branch: str, was: bytes | None, now: bytes | None) -> None:
        old = self._records.get(branch)
        if now is None:
            if old is not None:
                if not old.deleted:
                    self.fail(f"the record of the live branch {branch!r} is removed")
                self._check_known(branch, old, set())
                del self._records[branch]
            return
        new = decode(branch, Record(now, Version(b"")))
        before = self.view(branch)
        self._check_record(branch, old, new)
        after: View | None = self._enter(branch, new)
        if new.deleted:
            after = None
        self._check_view(branch, old, new, before, after)
        if old is not None and not old.deleted and not new.deleted and old.commit != new.commit:
            self._advanced(branch, old, new)

    def _check_record(self, branch: str, old: Branch | None, new: Branch) -> None:
        names = [new.token, *(layer.id for layer in _layers(new)), *(waste.id for waste in new.dropped)]
        if len(set(names)) < len(names):
            self.fail(f"a layer stands twice in the record of {branch!r}")
        again = (_ids(new) - (_ids(old) if old else set())) & self._ever
        if again:
            self.fail(f"{', '.join(sorted(again))} enters the record of {branch!r} again")
        stay = {thing for layer in (new.open_layer, *_layers(new)) for thing in _things_of_waste(waste(layer))}
        gone = {thing for waste in new.dropped for thing in _things_of_waste(waste)}
        if both := stay & gone:
            self.fail(f"{min(both)} is said to have fallen off {branch!r}, and is still named")
        if old is not None:
            if old.dirty and not new.dirty and old.token == new.token:
                self.fail(f"{branch!r} is called clean though its token is the one that was written to")
            self._check_known(branch, old, _things(new))
        if self._guards:
            guards = self._partitions.get(self._guard_partition, {})
            if new.dirty and (found := guards.get(new.token.encode())) is not None and found.value != OPEN:
                self.fail(f"the guard of {branch!r}'s open token is not open")
            for token in (*(layer.token for layer in _layers(new)), *(waste.token for waste in new.dropped)):
                found = guards.get(token.encode()) if token else None
                if found is not None and found.value == OPEN:
                    self.fail(f"token {token} is sealed on {branch!r}, and its guard is open")

    def _check_known(self, branch: str, old: Branch, kept: set[str]) -> None:
        """What falls off is named among the dropped, and from there goes to the cleaner's notes."""
        unknown = _things(old) - kept - self._noted
        if unknown:
            self.fail(f"{min(unknown)} falls off {branch!r}, and nobody knows it")

    def _check_view(
        self, branch: str, old: Branch | None, new: Branch, before: View | None, after: View | None
    ) -> None:
        event = self._event()
        op = event.op if event is not None else None
        if before is None or after is None or old is None:
            expected = Verb.DELETE_BRANCH if after is None else Verb.CREATE_BRANCH
            if before is not after and (op is None or op.verb is not expected):
                self.fail(f"{branch!r} {'is gone' if after is None else 'comes into being'}")
            if after is not None and (not new.clean or after != self.committed(new.commit)):
                self.fail(f"{branch!r} comes into being with something staged")
            return
        lands = op is not None and op.verb in LANDING
        if lands and old.commit != new.commit and not old.clean:
            self.fail(f"{branch!r} moves to another commit though something is staged on it")
        made = {name: stash for name, stash in new.stashes.items() if name not in old.stashes}
        for name, stash in made.items():
            if self._guards and self.overlaid(self.committed(stash.commit), stash.layers) != before:
                self.fail(f"the stash {name!r} does not hold what was staged on {branch!r}")
        if before == after:
            return
        self.effects.append(Effect(self._scheduler.tick(), branch, event, before, after))
        changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        if op is not None:
            wanted = [self._wanted(op, old, new, before)]
            if event is not None and op.verb in STAGING:  # those of one server are staged together
                others = [other.op for other in self._underway(branch) if other.server == event.server]
                wanted += [self._wanted(other, old, new, before) for other in others if other.verb in STAGING]
            changed = {path for path in changed if not any(may(path, after.get(path)) for may in wanted)}
        if not self._guards:
            changed -= {event.op.path for event in self._underway(branch) if event.op.verb in (Verb.PUT, Verb.DELETE)}
        if changed:
            path = min(changed)
            self.fail(f"{branch!r} showed {before.get(path)} at {path!r}, and now shows {after.get(path)}")

    def _wanted(self, op: Op, old: Branch, new: Branch, before: View) -> Callable[[str, str | None], bool]:
        """Whether an operation may leave this at a path."""
        committed = self.committed(new.commit)
        match op.verb:
            case Verb.DELETE_PREFIX:
                return lambda path, value: path.startswith(op.path) and value is None
            case Verb.APPEND:
                laid = op.laid_over(before)
                return lambda path, value: laid.get(path) == value
            case Verb.RESET | Verb.RESET_PREFIX | Verb.STASH:
                return lambda path, value: path.startswith(op.path) and value == committed.get(path)
            case Verb.RESET_PATH:
                return lambda path, value: path == op.path and value == committed.get(path)
            case Verb.PUT if self._memstore:
                return lambda path, value: path == op.path and value == op.value
            case Verb.DELETE if self._memstore:
                return lambda path, value: path == op.path and value is None
            case Verb.PUT_IF_ABSENT:
                return lambda path, value: path == op.path and path not in before and value == op.value
            case Verb.POP if op.value in old.stashes and op.value not in new.stashes:
                popped = self.popped(old, old.stashes[op.value], before, op.strategy)
                return lambda path, value: popped is not None and popped.get(path) == value
            case verb if verb in LANDING and old.commit != new.commit:
                return lambda path, value: committed.get(path) == value
        return lambda path, value: False

    def popped(self, record: Branch, stash: Stash, view: View, strategy: str) -> View | None:
        """What a branch shows with a stash back on it; None if it is in conflict."""
        if record.commit == stash.commit:
            return self.overlaid(view, stash.layers)
        base = self.committed(stash.commit)
        merged, conflicts = three_way(base, self.overlaid(base, stash.layers), view, strategy)
        return None if conflicts else merged

    def _advanced(self, branch: str, old: Branch, new: Branch) -> None:
        """Note every commit on the way. Those that land together follow each other."""
        event = self._event()
        chain: list[CommitID] = []
        at: CommitID | None = new.commit
        while at is not None and at != old.commit:
            chain.append(at)
            at = next(iter(self.peek.commit(at).parents), None)
        if at is None:
            if not any(event.op.verb is Verb.MOVE for event in self._underway(branch)):
                self.fail(f"{branch!r} moves to a commit that does not descend from the commit that it was at")
            self.moved.append((self._scheduler.tick(), branch))
        elif len(chain) > 1 and (event is None or event.op.verb not in LANDING):
            self.fail(f"{branch!r} moves to a commit whose parent is not the commit that it was at")
        for commit in reversed(chain):
            if commit not in self._commits:  # else the branch was moved to what had landed before, here or elsewhere
                self._commits.add(commit)
                self.landed.append(Landing(self._scheduler.tick(), branch, commit, event))
        moments = self.heads[branch]
        last = moments.pop()
        moments += [(last[0], commit) for commit in reversed(chain[1:])]
        moments.append(last)


_WASTE = msgspec.msgpack.Decoder(Waste)


def three_way(base: View, source: View, dest: View, strategy: str) -> tuple[View, list[str]]:
    """What merging comes to, and the paths in conflict."""
    merged, conflicts = dict(dest), []
    for path in sorted({*base, *source}):
        old, new, there = base.get(path), source.get(path), dest.get(path)
        if new in (old, there):
            continue
        if there != old and strategy == "":
            conflicts.append(path)
        if there == old or strategy == "source-wins":
            _lay(merged, path, new)
    return merged, conflicts


def _layers(record: Branch) -> tuple[Layer, ...]:
    """All that the record holds: on the branch, and in stashes."""
    stashed = (layer for stash in record.stashes.values() for layer in stash.layers)
    return (*record.sealed, *((record.l2,) if record.l2 else ()), *stashed)


def _ids(record: Branch) -> set[str]:
    """Of layers. One that falls off may keep its id."""
    return {record.token, *(layer.id for layer in _layers(record)), *(waste.id for waste in record.dropped)}


def _things(record: Branch) -> set[str]:
    """What there is of a branch beside its record: tokens, tables and a tree."""
    found: set[str] = {record.token} if record.dirty else set()
    for layer in _layers(record):
        found.update(layer.files)
        found |= {layer.token} if layer.token else set()
    found |= {record.compacted} if record.compacted else set()
    for gone in record.dropped:
        found |= _things_of_waste(gone)
    return found


def _things_of_waste(gone: Waste) -> set[str]:
    return {*gone.files, *((gone.token,) if gone.token else ()), *((gone.tree,) if gone.tree else ())}


def _lay(view: View, path: str, value: str | None) -> None:
    if value is None:
        view.pop(path, None)
    else:
        view[path] = value


def _value(path: str, record: bytes) -> str | None:
    entry = tokens.decode(path, record)
    return None if entry is None else entry.checksum
