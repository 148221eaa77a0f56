"""A key-value store in dicts, which gives up the turn at every call and fails as a seed says.

It keeps every promise of the port, so what goes wrong above it is the fault of what is above. Failures are those that a
real store has: refused; applied, but the answer is lost; on its way for a while, and applied after others have run; and
the caller's process dying before, after or in the midst of it.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from esker.errors import Kind, OutcomeUnknownError, UnavailableError
from esker.stores.kv import ANYTHING, Anything, Guard, Guarded, Item, KVStore, Put, Record, Version
from esker.testing.simulation.scheduler import Crash, Scheduler

T = TypeVar("T")

What = tuple[str, str, bytes]
"""Of a call: method, partition (or kind of file), key. Spelled out only for those who ask."""

Partitions = dict[str, dict[bytes, Record]]

OnWrite = Callable[[str, bytes, "bytes | None", "bytes | None"], None]
"""Told of every record written or deleted: partition, key, what was there, what is there now."""


class Faults(NamedTuple):
    """How often a call fails, and how."""

    calls: float = 0.0
    """Chance that a call fails at all."""
    crashes: float = 0.15
    """Of the failures: how many are deaths of the whole server."""
    stalls: float = 0.0
    """Chance that a client stands still before a call, for up to `stall_s`."""
    stall_s: float = 0.0


NO_FAULTS: Final = Faults()


class Fate(Enum):
    REFUSED = "refused"
    LOST = "applied, answer lost"
    LATE = "no answer, applied later"
    DIES_BEFORE = "dies before"
    DIES_AFTER = "dies after"
    DIES_LATE = "dies, applied later"


_OF_WRITES: Final = (Fate.REFUSED, Fate.LOST, Fate.LOST, Fate.LATE)
_OF_DEATHS: Final = (Fate.DIES_BEFORE, Fate.DIES_AFTER, Fate.DIES_LATE)


class Network:
    """Between clients and stores: turns, and failures."""

    def __init__(self, scheduler: Scheduler, faults: Faults, restart: Callable[[int], None]) -> None:
        self.scheduler = scheduler
        self.faults = faults
        self._restart = restart
        self._draw = scheduler.random.random

    def read(self, what: What, action: Callable[[], T]) -> T:
        scheduler = self.scheduler
        if scheduler.quiet:
            return action()
        self._before(what)
        fate = self._fate(writes=False)
        if fate is Fate.DIES_BEFORE:
            self._die(what, fate)
        if fate is not None:
            scheduler.note(f"{spell(what)}: {fate.value}")
            raise UnavailableError(Kind.STORE_UNAVAILABLE, f"{spell(what)}: {fate.value}")
        answer = action()
        if scheduler.trace is not None:
            scheduler.note(f"{spell(what)} -> {short(answer)}")
        return answer

    def write(
        self, what: What, action: Callable[[], T], half: Callable[[], T] | None = None, *, repeatable: bool = False
    ) -> T:
        """`repeatable`: a store of files, where a write that got no answer may simply be sent again."""
        scheduler = self.scheduler
        if scheduler.quiet:
            return action()
        self._before(what)
        fate = self._fate(writes=True)
        if fate is None:
            answer = action()
            if scheduler.trace is not None:
                scheduler.note(f"{spell(what)} -> {short(answer)}")
            return answer
        if fate in (Fate.LOST, Fate.DIES_AFTER):
            (half or action)()
        elif fate in (Fate.LATE, Fate.DIES_LATE):
            self._later(what, action)
        if fate in _OF_DEATHS:
            self._die(what, fate)
        scheduler.note(f"{spell(what)}: {fate.value}")
        if fate is Fate.REFUSED or repeatable:
            raise UnavailableError(Kind.STORE_UNAVAILABLE, f"{spell(what)}: {fate.value}")
        raise OutcomeUnknownError(message=f"{spell(what)}: {fate.value}")

    def _before(self, what: What) -> None:
        scheduler = self.scheduler
        me = scheduler.current
        assert me is not None
        me.calls += 1
        seconds = self._decided("stall", self._stall)
        if seconds is None:
            scheduler.turn()
        else:
            assert isinstance(seconds, float)
            scheduler.note(f"{spell(what)}: stands still for {seconds:.3f} s")
            scheduler.sleep(seconds)

    def _stall(self) -> float | None:
        chance, most_s = self.faults.stalls, self.faults.stall_s
        return self._draw() * most_s if chance and self._draw() < chance else None

    def _fate(self, *, writes: bool) -> Fate | None:
        if not self.faults.calls and self.scheduler.script is None:
            return None
        fate = self._decided("fate", self._fate_of_write if writes else self._fate_of_read)
        assert fate is None or isinstance(fate, Fate)
        return fate

    def _fate_of_read(self) -> Fate | None:
        if self._draw() >= self.faults.calls:
            return None
        return Fate.DIES_BEFORE if self._draw() < self.faults.crashes else Fate.REFUSED

    def _fate_of_write(self) -> Fate | None:
        if self._draw() >= self.faults.calls:
            return None
        if self._draw() < self.faults.crashes:
            return _OF_DEATHS[int(self._draw() * len(_OF_DEATHS))]
        return _OF_WRITES[int(self._draw() * len(_OF_WRITES))]

    def _decided(self, question: str, draw: Callable[[], object]) -> object:
        """What the script says, or else the dice. Asked by client, operation and call, so that it means the same call
        in a smaller plan."""
        scheduler = self.scheduler
        if scheduler.script is None:
            answer = draw()
            if answer is not None:
                scheduler.happened.fates[self._place(question)] = answer
            return answer
        place = self._place(question)
        answer = scheduler.script.fates.get(place)
        if answer is not None:
            scheduler.happened.fates[place] = answer
        return answer

    def _place(self, question: str) -> object:
        me = self.scheduler.current
        assert me is not None
        return question, me.client, me.number, me.calls

    def _later(self, what: What, action: Callable[[], object]) -> None:
        """A request on its way: it arrives when it gets its turn."""
        scheduler = self.scheduler
        sender = scheduler.current
        assert sender is not None

        def arrive() -> None:
            if scheduler.random.random() < 0.5:
                scheduler.sleep(scheduler.random.random() * 0.05)
            answer = action()
            scheduler.note(f"{spell(what)} arrives -> {short(answer)}")

        scheduler.spawn(f"{sender.client}'s request", -1, arrive, sender.op)

    def _die(self, what: What, fate: Fate) -> None:
        me = self.scheduler.current
        assert me is not None
        self.scheduler.note(f"{spell(what)}: server {me.server} {fate.value}")
        self._restart(me.server)
        self.scheduler.kill(me.server)
        me.unwinding = True
        raise Crash


class SimKV(KVStore):
    """The store. One instance is what all servers talk to."""

    def __init__(self, network: Network, partitions: Partitions, on_write: OnWrite | None = None) -> None:
        super().__init__()
        self.partitions = partitions
        self.on_write = on_write
        self._network = network

    def _get(self, partition: str, key: bytes) -> Record | None:
        def action() -> Record | None:
            found = self.partitions.get(partition)
            return None if found is None else found.get(key)

        return self._network.read(("get", partition, key), action)

    def _scan(self, partition: str, start: bytes, limit: int) -> list[Item]:
        def action() -> list[Item]:
            found = self.partitions.get(partition)
            if not found:
                return []
            return [Item(key, found[key]) for key in sorted(found) if key >= start][:limit]

        return self._network.read(("scan", partition, start), action)

    def _put(self, partition: str, key: bytes, value: bytes) -> None:
        self._network.write(("put", partition, key), lambda: self._store(partition, key, value))

    def _put_if(self, partition: str, key: bytes, value: bytes, expected: Version | None, also: Sequence[Put]) -> bool:
        def action() -> bool:
            if self._version(partition, key) != expected:
                return False
            for put in also:
                self._store(*put)
            self._store(partition, key, value)
            return True

        return self._network.write(("put_if", partition, key), action)

    def _put_guarded(
        self, partition: str, key: bytes, value: bytes, guard: Guard, expected: Version | None | Anything
    ) -> Guarded:
        def action() -> Guarded:
            guarding = self.partitions.get(guard.partition, {}).get(guard.key)
            if guarding is None or guarding.value != guard.value:
                return Guarded.REFUSED
            if expected is not ANYTHING and self._version(partition, key) != expected:
                return Guarded.TAKEN
            self._store(partition, key, value)
            return Guarded.STORED

        return self._network.write(("put_guarded", partition, key), action)

    def _delete(self, partition: str, key: bytes) -> None:
        self._network.write(("delete", partition, key), lambda: self._remove(partition, key))

    def _delete_if(self, partition: str, key: bytes, expected: Version) -> bool:
        def action() -> bool:
            if self._version(partition, key) != expected:
                return False
            self._remove(partition, key)
            return True

        return self._network.write(("delete_if", partition, key), action)

    def _put_many(self, partition: str, items: dict[bytes, bytes]) -> None:
        def store(n: int) -> None:
            for key, value in list(items.items())[:n]:
                self._store(partition, key, value)

        self._network.write(("put_many", partition, b""), lambda: store(len(items)), lambda: store(len(items) // 2))

    def _delete_many(self, partition: str, keys: list[bytes]) -> None:
        def remove(n: int) -> None:
            for key in keys[:n]:
                self._remove(partition, key)

        self._network.write(("delete_many", partition, b""), lambda: remove(len(keys)), lambda: remove(len(keys) // 2))

    def _version(self, partition: str, key: bytes) -> Version | None:
        record = self.partitions.get(partition, {}).get(key)
        return None if record is None else record.version

    def _store(self, partition: str, key: bytes, value: bytes) -> None:
        found = self.partitions.setdefault(partition, {})
        was = found.get(key)
        found[key] = Record(value, Version(self._network.scheduler.tick().to_bytes(8)))
        if self.on_write is not None:
            self.on_write(partition, key, None if was is None else was.value, value)

    def _remove(self, partition: str, key: bytes) -> None:
        found = self.partitions.get(partition)
        was = None if found is None else found.pop(key, None)
        if found is not None and not found:
            del self.partitions[partition]
        if was is not None and self.on_write is not None:
            self.on_write(partition, key, was.value, None)


class SimKVWithoutGuards(SimKV):
    """As DynamoDB: no guards, and a scan is not from one moment."""

    guards = False

    def _scan(self, partition: str, start: bytes, limit: int) -> list[Item]:
        first = super()._scan(partition, start, limit)
        if len(first) < 2:
            return first
        middle = first[len(first) // 2].key
        return [item for item in first if item.key < middle] + super()._scan(partition, middle, limit)


def spell(what: What) -> str:
    method, partition, key = what
    return f"{method} {partition} {key.decode(errors='replace')}".rstrip()


def short(answer: object) -> str:
    """An answer, for a trace."""
    if isinstance(answer, Record):
        return f"{len(answer.value)} bytes"
    if isinstance(answer, list):
        return f"{len(answer)} items"
    if isinstance(answer, Guarded):
        return answer.value
    return str(answer) if answer is None or isinstance(answer, bool) else "ok"
