"""Commits as they are stored: one record each, under the digest of its very bytes.

A commit is never rewritten, so whatever was read once may be kept for ever, and storing it twice changes nothing.
"""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec

from esker.errors import CorruptError, InvalidError, Kind, NotFoundError, OutcomeUnknownError, UnavailableError
from esker.model import Commit, CommitID
from esker.refs import stored
from esker.refs.names import is_commit_id
from esker.stores.kv import VALUE_BYTES_MAX, KVStore, items

CACHE_BYTES: Final = 16 << 20
"""Some twenty thousand commits of a repository: more than people look back on."""

_OBJECT_BYTES: Final = 500
"""What a commit takes in memory beyond its text."""

_CANDIDATES_MAX: Final = 4
_TRIES_MAX: Final = 3

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: Final = msgspec.msgpack.Decoder(Commit)


def commit_id(commit: Commit) -> CommitID:
    """The digest of the record that `put` stores. Equal commits have equal ids."""
    return _digest(_ENCODER.encode(commit))


def put(kv: KVStore, uid: str, commit: Commit) -> CommitID:
    """Store a commit of the repository `uid`. Nothing points to it yet, so an error means that nothing has changed."""
    record = _encoded(commit)
    name = _digest(record)
    _store(kv, uid, {name: record})
    return name


def get(kv: KVStore, uid: str, name: CommitID) -> Commit:
    """The commit; NotFoundError if there is none, CorruptError if the bytes stored are not those it was named after."""
    return _load(kv, uid, name)[0]


def find_prefix(kv: KVStore, uid: str, prefix: str) -> CommitID | None:
    """The one commit whose id begins with these digits; None if there is none, InvalidError if there are several."""
    found = []
    for item in kv.scan(_partition(uid), prefix.encode(), _CANDIDATES_MAX + 1):
        name = item.key.decode()
        if name.startswith(prefix):
            found.append(CommitID(name))
    if len(found) <= 1:
        return found[0] if found else None
    some = ", ".join(name[: len(prefix) + 8] for name in found[:_CANDIDATES_MAX])
    others = " and others" if len(found) > _CANDIDATES_MAX else ""
    raise InvalidError(Kind.AMBIGUOUS_REF, f"several commits begin with '{prefix}': {some}{others}; give more digits")


def every(kv: KVStore, uid: str) -> Iterator[tuple[CommitID, bytes]]:
    """All commits of the repository `uid`, as their records are."""
    for key, found in items(kv, _partition(uid)):
        yield CommitID(key.decode()), found.value


def put_records(kv: KVStore, uid: str, records: Mapping[CommitID, bytes]) -> None:
    """Store commits as their records are. CorruptError if one of them is not what it was named after."""
    for name, record in records.items():
        if _digest(record) != name:
            raise CorruptError(Kind.DAMAGED_RECORD, f"commit {name} is damaged: its record has another digest")
        stored.decode(_DECODER, f"commit {name}", record)
    _store(kv, uid, records)


class Commits:
    """The commits of one repository, those read lately kept in memory: what the walks of `refs.history` read from.

    A plain dict, because a walk asks it for ten thousand commits in a few milliseconds: taking the lock of a
    `MemoryCache` for each would cost as much as the walk. When full it starts over; a walk longer than that would find
    nothing in a cache that drops the oldest, either.
    """

    def __init__(self, kv: KVStore, uid: str, bytes_max: int = CACHE_BYTES) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._kv = kv
        self._uid = uid
        self._kept: dict[CommitID, Commit] = {}
        self._lock = threading.Lock()  # over what is kept, when that changes
        self._behind: ContextVar[dict[CommitID, bytes] | None] = ContextVar("behind", default=None)

    def get(self, name: CommitID) -> Commit:
        """As `commits.get`."""
        return self._kept.get(name) or self._read(name)

    def put(self, commit: Commit) -> CommitID:
        """As `commits.put`; inside of `writing_behind`, stored when that is left."""
        behind = self._behind.get()
        if behind is None:
            return put(self._kv, self._uid, commit)
        record = _encoded(commit)
        name = _digest(record)
        behind[name] = record
        self._keep(name, _DECODER.decode(record), len(record))  # as it will be read, not as it was given
        return name

    @contextmanager
    def writing_behind(self) -> Iterator[None]:
        """Commits put inside are stored together when this is left without an error, and are known here before."""
        behind: dict[CommitID, bytes] = {}
        before = self._behind.set(behind)
        try:
            yield
        finally:
            self._behind.reset(before)
        _store(self._kv, self._uid, behind)

    def find_prefix(self, prefix: str) -> CommitID | None:
        """As `commits.find_prefix`. A whole id that was read before costs nothing."""
        if not is_commit_id(prefix):
            return find_prefix(self._kv, self._uid, prefix)
        name = CommitID(prefix)
        try:
            self.get(name)
        except NotFoundError:
            return None
        return name

    def _read(self, name: CommitID) -> Commit:
        if (behind := self._behind.get()) and name in behind:
            return stored.decode(_DECODER, f"commit {name}", behind[name])
        commit, size = _load(self._kv, self._uid, name)
        self._keep(name, commit, size)
        return commit

    def _keep(self, name: CommitID, commit: Commit, size: int) -> None:
        size += _OBJECT_BYTES
        with self._lock:
            if name not in self._kept and size <= self.bytes_max:
                if self.bytes_used + size > self.bytes_max:
                    self._kept, self.bytes_used = {}, 0
                self._kept[name] = commit
                self.bytes_used += size


def _load(kv: KVStore, uid: str, name: CommitID) -> tuple[Commit, int]:
    """The commit, and the size of its record."""
    found = kv.get(_partition(uid), name.encode())
    if found is None:
        raise NotFoundError(Kind.COMMIT_NOT_FOUND, f"no commit {name}")
    record = found.value
    if _digest(record) != name:
        raise CorruptError(
            Kind.DAMAGED_RECORD, f"commit {name} is damaged: the {len(record)} bytes stored for it have another digest"
        )
    return stored.decode(_DECODER, f"commit {name}", record), len(record)


def _encoded(commit: Commit) -> bytes:
    record = _ENCODER.encode(commit)
    if len(record) > VALUE_BYTES_MAX:
        raise InvalidError(
            Kind.INVALID_ARGUMENT,
            f"a commit with its message and metadata is at most {VALUE_BYTES_MAX} bytes, not {len(record)}: shorten "
            "them, or store the rest as an object",
        )
    return record


def _store(kv: KVStore, uid: str, records: Mapping[CommitID, bytes]) -> None:
    for _ in range(_TRIES_MAX):
        try:
            if len(records) == 1:
                ((name, record),) = records.items()
                kv.put(_partition(uid), name.encode(), record)
            elif records:
                kv.put_many(_partition(uid), ((name.encode(), record) for name, record in records.items()))
        except OutcomeUnknownError:
            continue  # the same bytes under the same names
        return
    raise UnavailableError(Kind.STORE_UNAVAILABLE, "the store did not take a commit's record; no branch was changed")


def _digest(record: bytes) -> CommitID:
    return CommitID(hashlib.sha256(record).hexdigest())


def _partition(uid: str) -> str:
    return f"commits/{uid}"
