"""Branch records in the store: read, created, and changed by compare-and-swap.

Only `update` changes a branch (`create` and `forget` make room for one, and clear away what it left). Around it hold:

- Each swap carries an operation id, kept in the record for a while. A writer whose answer was lost reads the record:
  its id is there (applied), or is not and too few swaps have passed to push it out (certainly not applied, since a
  delayed request still carries the old version: swap again), or nobody can tell (`OutcomeUnknownError`).
- Ids of tokens and layers are drawn inside of `change`, so each attempt has its own.
- No swap is made for an operation that began a day ago: what it wrote may have been collected.
- The guard of a token is written in the very swap that opens or seals it, so that it always says what the record says:
  a staged write that finds it open is visible, and none lands in a token once it is sealed.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec

from esker import activity
from esker.errors import (
    ConflictError,
    ContentionError,
    Kind,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
)
from esker.model import CommitID, Token
from esker.refs import stored, tags
from esker.refs.names import did_you_mean
from esker.refs.records import RECENT_MAX, Branch
from esker.stores.kv import KEY_BYTES_MAX, Guard, KVStore, Put, Record, items
from esker.world import World

TRIES_MAX: Final = 100
"""Each lost try is another's success, so to lose so many in a row takes many writers that do nothing else."""

PAUSE_MAX_S: Final = 0.05

TOKEN_BYTES: Final = 12

OPEN: Final = b"open"
SEALED: Final = b"sealed"

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Branch)


class Branches:
    """The branches of one repository."""

    def __init__(self, kv: KVStore, world: World, repository: str, uid: str) -> None:
        self._kv = kv
        self._world = world
        self._repository = repository
        self._uid = uid
        self._partition = f"branches/{uid}"
        self._guards = f"guards/{uid}"

    def get(self, name: str) -> Branch:
        """The record as it is now. NotFoundError if there is no such branch."""
        record = self.find(name)
        if record is None:
            raise self._missing(name)
        return record

    def find(self, name: str) -> Branch | None:
        """The record as it is now, if there is such a branch."""
        found = self._read(name)
        record = decode(name, found) if found else None
        return None if record is None or record.deleted else record

    def guard(self, token: Token) -> Guard:
        """What holds as long as `token` takes writes."""
        return Guard(self._guards, token.encode(), OPEN)

    def fresh_token(self) -> Token:
        return Token(self._world.token(TOKEN_BYTES))

    def page(self, after: str, amount: int, *, deleted: bool = False) -> Iterator[tuple[str, Branch]]:
        """Branches whose names come after `after`, in order, from pages of about `amount`; with tombstones if asked."""
        for key, found in items(self._kv, self._partition, after.encode() + b"\0" if after else b"", amount):
            record = decode(key.decode(), found)
            if deleted or not record.deleted:
                yield key.decode(), record

    def forget(self, name: str, wastes: Collection[str]) -> None:
        """Take these off what the record says was dropped. A tombstone goes when nothing is left of it."""
        while found := self._kv.get(self._partition, name.encode()):
            record = decode(name, found)
            cleaned = record.cleaned(wastes)
            if record.deleted and not cleaned.dropped:
                done = self._kv.delete_if(self._partition, name.encode(), found.version)
            elif cleaned.dropped == record.dropped:
                return
            else:
                changed = cleaned.stamped(self._world.token(8))
                done = self._kv.put_if(self._partition, name.encode(), _ENCODER.encode(changed), found.version)
            if done:
                return

    def create(self, name: str, commit: CommitID, *, hidden: bool = False, layers_only: bool = False) -> Branch:
        """A branch at `commit`, with nothing staged. ConflictError if there is one."""
        while True:
            record = Branch(
                commit=commit,
                token=self.fresh_token(),
                dirty=False,
                hidden=hidden,
                layers_only=layers_only,
                born=self._world.token(TOKEN_BYTES),
            )
            if self._kv.put_if(self._partition, name.encode(), _ENCODER.encode(record), None):
                return record
            found = self._kv.get(self._partition, name.encode())
            if found is None:
                continue
            former = decode(name, found)
            if not former.deleted:
                raise ConflictError(Kind.BRANCH_EXISTS, f"branch {name!r} already exists in {self._repository!r}")
            record = msgspec.structs.replace(record, dropped=former.dropped)
            if self._kv.put_if(self._partition, name.encode(), _ENCODER.encode(record), found.version):
                return record

    def update(self, name: str, change: Callable[[Branch], Branch | None]) -> Branch | None:
        """Install what `change` makes of the record: the record installed, or a later one if that was not told at once;
        None if `change` was overtaken.

        `change` may be called many times, each time with the newest record, and must return None unless all that its
        caller relied on still holds. If it returns the very record, nothing is written.
        """
        operation = self._world.token(8)
        sent: Record | None = None
        """What was to be swapped when the answer was lost, as long as that swap may still land."""
        deletes = False
        for attempt in range(TRIES_MAX):
            found = self._look_again(name, sent)
            record = None if found is None else decode(name, found)
            if sent is not None and (found is None or found.version != sent.version):
                if record is None or not self._is_settled(operation, decode(name, sent), record):
                    raise _unknown(name)
                if operation in record.recent:
                    if record.deleted and not deletes:
                        raise _unknown(name)  # it was applied, and then the branch was deleted
                    return record
                sent = None  # it carried an old version, so it never will
            if found is None or record is None or record.deleted:
                raise self._missing(name)
            try:
                activity.check_age(self._world.now_ms())
            except ContentionError as error:
                if sent is None:
                    raise
                raise _unknown(name) from error
            changed = change(record)
            if changed is None or changed is record:
                if sent is not None:
                    raise _unknown(name)  # not wanted any more, and perhaps under way
                return changed
            changed, deletes = changed.stamped(operation), changed.deleted
            try:
                if self._swap(name, record, changed, found):
                    return changed
            except OutcomeUnknownError:
                sent = found
            except UnavailableError as error:
                if sent is None:
                    raise
                raise _unknown(name) from error  # this swap changed nothing, but the one before may still land
            self._world.sleep(self._world.chance() * min(PAUSE_MAX_S, 0.001 * 2**attempt))
        if sent is not None:
            raise _unknown(name)
        raise ContentionError(
            Kind.CONTENTION,
            f"branch {name!r} of {self._repository!r} kept changing through {TRIES_MAX} tries: try again",
        )

    def _read(self, name: str) -> Record | None:
        key = name.encode(errors="replace")  # what no branch can be called is not found, like others
        return self._kv.get(self._partition, key) if 0 < len(key) <= KEY_BYTES_MAX else None

    def _look_again(self, name: str, sent: Record | None) -> Record | None:
        try:
            return self._read(name)
        except UnavailableError as error:
            if sent is None:
                raise
            raise _unknown(name) from error

    @staticmethod
    def _is_settled(operation: str, before: Branch, now: Branch) -> bool:
        """Whether the record tells what became of an operation that was to change `before`."""
        if operation in now.recent:
            return True
        return now.born == before.born and now.seq - before.seq <= RECENT_MAX

    def _swap(self, name: str, record: Branch, changed: Branch, found: Record) -> bool:
        guards = []
        if self._kv.guards:
            if record.dirty and changed.token != record.token:
                guards.append(Put(self._guards, record.token.encode(), SEALED))
            if changed.dirty and (changed.token != record.token or not record.dirty):
                guards.append(Put(self._guards, changed.token.encode(), OPEN))
        return self._kv.put_if(self._partition, name.encode(), _ENCODER.encode(changed), found.version, guards)

    def _missing(self, name: str) -> NotFoundError:
        if tags.find(self._kv, self._uid, name):
            close = f": {name!r} is a tag, which never changes"
        else:
            close = did_you_mean(name, (other for other, _ in self.page("", 100)))
        return NotFoundError(Kind.BRANCH_NOT_FOUND, f"no branch {name!r} in {self._repository!r}{close}")


def _unknown(name: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(message=f"a change to branch {name!r} got no answer, and may have landed")


def decode(name: str, found: Record) -> Branch:
    return stored.decode(_DECODER, f"the record of branch {name!r}", found.value)
