"""At every write: is this a step that the protocol allows?

What a branch shows is computed here anew, from its record, the staged records and the files, and compared with what it
showed before: sealing, committing and cleaning must not change it, a write changes its own path, and so on. What it
showed and when is kept, for the judgements that come after.
"""

from collections.abc import Callable
from typing import Protocol

from esker.model import CommitID, Layer
from esker.refs.branches import OPEN, SEALED, decode
from esker.refs.records import Branch
from esker.staging import tokens
from esker.stores.kv import Record, Version
from esker.testing.simulation.plans import Op, Verb
from esker.testing.simulation.scheduler import Scheduler
from esker.testing.simulation.stores import Partitions

View = dict[str, str]
"""Path to value."""


class Event(Protocol):
    """An operation under way."""

    op: Op
    end: int
    landings: dict[str, int]
    """By path: how often it was staged."""


class Peek(Protocol):
    """Looks at files and commits without a turn."""

    def tree_of(self, commit: CommitID) -> View: ...
    def parent_of(self, commit: CommitID) -> CommitID | None: ...
    def layer(self, layer: Layer) -> dict[str, str | None]: ...


class Watch:
    """Of one repository."""

    def __init__(
        self,
        scheduler: Scheduler,
        partitions: Partitions,
        peek: Peek,
        uid: str,
        *,
        guards: bool,
        blind: bool,
        unacknowledged: Callable[[str], bool],
    ) -> None:
        self.views: dict[str, list[tuple[int, View | None]]] = {}
        """By branch: from which moment on it showed what."""
        self.heads: dict[str, list[tuple[int, CommitID | None]]] = {}
        """By branch: from which moment on it stood where."""
        self.landed: list[tuple[int, str, CommitID, Event | None]] = []
        self._scheduler = scheduler
        self._partitions = partitions
        self.peek = peek
        self._guards = guards
        self._blind = blind
        self._unacknowledged = unacknowledged
        self._branches = f"branches/{uid}"
        self._guard_partition = f"guards/{uid}"
        self._notes = f"cleanup/{uid}"
        self._noted: set[bytes] = set(partitions.get(self._notes, {}))
        self._records: dict[str, Branch] = {}
        self._ever: set[str] = set()
        self._once_open: set[bytes] = set()
        for key, record in partitions.get(self._branches, {}).items():
            self._enter(key.decode(), decode(key.decode(), record))
        self._once_open.update(partitions.get(self._guard_partition, {}))

    def __call__(self, partition: str, key: bytes, was: bytes | None, now: bytes | None) -> None:
        if partition.startswith("staging/"):
            if now is not None and now != was:
                self._staged(partition, key.decode(), now)
        elif partition == self._branches:
            self._swapped(key.decode(), was, now)
        elif partition == self._guard_partition:
            self._guarded(key, was, now)
        elif partition == self._notes:
            self._noted.add(key)

    def view(self, branch: str) -> View | None:
        return self.views[branch][-1][1] if branch in self.views else None

    def named(self) -> set[str]:
        """The staging partitions that a branch still names."""
        return {
            tokens.partition(layer.token)
            for record in self._records.values()
            for layer in (record.open_layer, *record.sealed, *record.dropped)
            if layer.token
        }

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
        moment = self._scheduler.tick()
        self.views.setdefault(branch, []).append((moment, None if record.deleted else view))
        self.heads.setdefault(branch, []).append((moment, None if record.deleted else record.commit))
        return view

    def _compute(self, record: Branch) -> View:
        view = dict(self.peek.tree_of(record.commit))
        for layer in (*reversed(record.sealed), record.open_layer):
            if layer.deletes:
                view = {path: value for path, value in view.items() if not path.startswith(layer.deletes)}
            if layer.token:
                for key, found in self._partitions.get(tokens.partition(layer.token), {}).items():
                    _lay(view, key.decode(), _value(key.decode(), found.value))
            elif layer.file:
                for path, value in self.peek.layer(layer).items():
                    _lay(view, path, value)
        return view

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
        names = [new.token, *(layer.id for layer in new.sealed), *(layer.id for layer in new.dropped)]
        if len(set(names)) < len(names):
            self.fail(f"a layer stands twice in the record of {branch!r}")
        again = (_ids(new) - (_ids(old) if old else set())) & self._ever
        if again:
            self.fail(f"{', '.join(sorted(again))} enters the record of {branch!r} again")
        if old is not None:
            if old.dirty and not new.dirty and old.token == new.token:
                self.fail(f"{branch!r} is called clean though its token is the one that was written to")
            self._check_known(branch, old, _ids(new))
        if self._guards:
            guards = self._partitions.get(self._guard_partition, {})
            if new.dirty and (found := guards.get(new.token.encode())) is not None and found.value != OPEN:
                self.fail(f"the guard of {branch!r}'s open token is not open")
            for layer in (*new.sealed, *new.dropped):
                found = guards.get(layer.token.encode()) if layer.token else None
                if found is not None and found.value == OPEN:
                    self.fail(f"token {layer.token} is sealed on {branch!r}, and its guard is open")

    def _check_known(self, branch: str, old: Branch, kept: set[str]) -> None:
        """What falls off is named among the dropped, and from there goes to the cleaner's notes."""
        for layer in (*old.layers, *old.dropped):
            if layer.id not in kept and layer.id.encode() not in self._noted:
                self.fail(f"layer {layer.id} falls off {branch!r}, and nobody knows it")

    def _check_view(
        self, branch: str, old: Branch | None, new: Branch, before: View | None, after: View | None
    ) -> None:
        event = self._event()
        op = event.op if event is not None else None
        if before is None or after is None:
            expected = Verb.DELETE_BRANCH if after is None else Verb.CREATE_BRANCH
            if before is not after and (op is None or op.verb is not expected):
                self.fail(f"{branch!r} {'is gone' if after is None else 'comes into being'}")
            if after is not None and (not new.clean or after != self.peek.tree_of(new.commit)):
                self.fail(f"{branch!r} comes into being with something staged")
            return
        if before == after:
            return
        changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        committed = self.peek.tree_of(new.commit)
        verb = op.verb if op is not None else None
        prefix = op.path if op is not None else ""
        if verb is Verb.DELETE_PREFIX:
            changed -= {path for path in changed if path.startswith(prefix) and path not in after}
        elif verb in (Verb.RESET, Verb.RESET_PREFIX):
            changed -= {path for path in changed if path.startswith(prefix) and after.get(path) == committed.get(path)}
        elif verb is Verb.RESET_PATH:
            changed -= {path for path in changed if path == prefix and after.get(path) == committed.get(path)}
        elif verb is Verb.PUT_IF_ABSENT and op is not None:
            changed -= {path for path in changed if path == prefix and path not in before and after[path] == op.value}
        if not self._guards:
            changed -= {path for path in changed if self._unacknowledged(path)}
        if changed:
            path = min(changed)
            self.fail(f"{branch!r} showed {before.get(path)} at {path!r}, and now shows {after.get(path)}")

    def _advanced(self, branch: str, old: Branch, new: Branch) -> None:
        if self.peek.parent_of(new.commit) != old.commit:
            self.fail(f"{branch!r} moves to a commit whose parent is not the commit that it was at")
        self.landed.append((self._scheduler.tick(), branch, new.commit, self._event()))


def _ids(record: Branch) -> set[str]:
    return {record.token, *(layer.id for layer in record.sealed), *(layer.id for layer in record.dropped)}


def _lay(view: View, path: str, value: str | None) -> None:
    if value is None:
        view.pop(path, None)
    else:
        view[path] = value


def _value(path: str, record: bytes) -> str | None:
    entry = tokens.decode(path, record)
    return None if entry is None else entry.checksum
