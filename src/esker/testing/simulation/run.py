"""One schedule, from its plan to the verdict."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple, TypeVar

import msgspec

from esker.engine import compaction, layers, pressure
from esker.engine.lake import Lake
from esker.errors import EskerError, OutcomeUnknownError
from esker.model import Commit, CommitID, FileName, Repository, Staging, Token
from esker.refs import commits
from esker.settings import Settings
from esker.staging import tables, tokens
from esker.stores.blob import BlobStore
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.cache import MemoryCache
from esker.testing.faults import Call, Fault, FaultyBlobs
from esker.testing.simulation import verbs
from esker.testing.simulation.judge import Event, Judge, Outcome
from esker.testing.simulation.past import DictPast, Files, Inline, OnDelete, changes_in
from esker.testing.simulation.plans import CLEANING, ClientPlan, Memstore, Op, Plan, Verb, Wishes, branch_of
from esker.testing.simulation.scheduler import Crash, Scheduler, Script, SimWorld, Violation
from esker.testing.simulation.stores import NO_FAULTS, Network, Partitions, SimKV, SimKVWithoutGuards
from esker.testing.simulation.watch import View, Watch
from esker.tree.cutting import Cutting
from esker.tree.past import Past, StoredPast
from esker.tree.trees import Trees

T = TypeVar("T")

LAST: Final = "last"
"""The client that comes when all others are done and nothing fails any more."""


class Result(NamedTuple):
    steps: int
    failure: Violation | None
    events: list[Event]
    trace: list[tuple[int, str, str]]
    script: Script


@dataclass
class _Stores:
    """All that survives a crash."""

    partitions: Partitions = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    blobs: "_WatchedBlobs | None" = None

    def copy(self) -> "_Stores":
        return _Stores(
            {name: dict(records) for name, records in self.partitions.items()},
            dict(self.files),
            _copied(self.blobs) if self.blobs else None,
        )

    def has(self, file: str) -> bool:
        if self.blobs is None:
            return file in self.files
        return any(self.blobs.head(shape.format(file)) for shape in _BLOBS)


_BLOBS: Final = ("_esker/staging/{}.sst", "_esker/ranges/{}", "_esker/metaranges/{}")


class _WatchedBlobs(MemoryBlobs):
    """Tells of every file that it is about to delete."""

    on_delete: OnDelete | None = None

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            if self.on_delete is not None and self.head(name):
                kind, _, rest = name.removeprefix("_esker/").partition("/")
                self.on_delete(rest.removesuffix(".sst") if kind == "staging" else rest)
            super().delete([name])


def simulate(plan: Plan, seed: int, *, script: Script | None = None, trace: bool = False) -> Result:
    """Run one schedule. The plan says what clients do, the seed who goes next and what fails; or else a script does."""
    return _Simulation(plan, seed, script, trace).result()


def prepare(wishes: Wishes) -> None:
    """Make what is made once for all schedules: with the engine as it is, before a mutant is planted."""
    for guards in (True, False):
        _start(guards, wishes.stored)


class _Simulation:
    def __init__(self, plan: Plan, seed: int, script: Script | None, trace: bool) -> None:
        start, self.repo, moment, self.trees = _start(plan.guards, plan.stored)
        self.plan = plan
        self.stores = start.copy()
        self.scheduler = Scheduler(seed, script)
        self.scheduler.moment = moment
        if trace:
            self.scheduler.trace = []
        self.network = Network(self.scheduler, plan.faults, self._restart)
        self.kv = _kv(plan.guards, self.network, self.stores.partitions)
        self.events: list[Event] = []
        self.waiting: dict[str, int] = {}
        self.settings = Settings(
            dirty_read_optimization=plan.dirty_read_optimization, grace_s=plan.grace_s, cache_bytes=0
        )
        self.restarts = 0
        self.servers: dict[int, verbs.Server] = {}
        self.peek = _Peek(self)
        self.watch = Watch(
            self.scheduler,
            self.stores.partitions,
            self.peek,
            self.repo.uid,
            grace_s=plan.grace_s,
            guards=plan.guards,
            memstore=plan.memstore is not Memstore.NONE,
            blind=plan.blind,
            underway=self._underway,
        )
        self.kv.on_write = self.watch
        if self.stores.blobs:
            self.stores.blobs.on_delete = self.watch.deletes

    def result(self) -> Result:
        with _sizes(self.plan.small):
            return self._result()

    def _result(self) -> Result:
        failure: Violation | None = None
        scheduler = self.scheduler
        try:
            for client in self.plan.clients:
                scheduler.spawn(client.name, client.server, self._client(client))
            scheduler.run()
            self.network.faults = NO_FAULTS
            for client in self._last():
                scheduler.spawn(client.name, client.server, self._client(client, last=True))
            scheduler.run()
            scheduler.quiet = True
            Judge(self.events, self.watch, guards=self.plan.guards).verdict()
            self._leftovers()
        except Violation as violation:
            failure = violation
        return Result(scheduler.steps, failure, self.events, scheduler.trace or [], scheduler.happened)

    def _client(self, client: ClientPlan, *, last: bool = False) -> Callable[[], None]:
        def run() -> None:
            for op in client.ops:
                self._carry_out(client, op, last)

        return run

    def _carry_out(self, client: ClientPlan, op: Op, last: bool) -> None:
        scheduler = self.scheduler
        scheduler.turn()
        me = scheduler.current
        assert me is not None
        event = Event(client.name, client.server, op, scheduler.tick(), last=last)
        self.events.append(event)
        me.op, me.number, me.calls, me.busy, me.skips = event, op.number, 0, True, True
        if scheduler.trace is not None:
            scheduler.note(f"begins: {op}")
        try:
            event.answer = self._server(client.server).run(op)
            event.outcome = Outcome.ANSWERED
        except OutcomeUnknownError as error:
            event.error = error
        except EskerError as error:
            event.error = error
            event.outcome = Outcome.FAILED
        except Crash:
            if scheduler.over:
                raise
        except Exception as error:  # noqa: BLE001  # whatever it is, no client should see it
            scheduler.fail("exception", f"{type(error).__name__} from {op}: {error!r}{_where(error)}")
        if event.outcome is not Outcome.UNKNOWN:
            event.end = scheduler.tick()
        me.op, me.busy, me.skips, me.unwinding, me.killed = None, False, False, False, False
        if scheduler.trace is not None:
            scheduler.note(f"ends: {event}")

    def _last(self) -> list[ClientPlan]:
        """When nothing fails any more, everybody gets an answer; and what is there is what was acknowledged."""
        branch = branch_of(self.plan.theme)
        server = max(client.server for client in self.plan.clients) + 1
        ops = [Op(Verb.LIST, branch), Op(Verb.COMMIT, branch, value="last"), Op(Verb.LIST, branch)]
        if self.plan.theme in CLEANING:
            # Of compacted trees, each waits until the one before it is gone.
            rounds = 2 + sum(op.verb is Verb.MAJOR for client in self.plan.clients for op in client.ops)
            ops += [*[Op(Verb.CLEAN, branch, seconds=3.0)] * rounds, Op(Verb.LIST, branch)]
        return [ClientPlan(LAST, server, tuple(ops))]

    def _leftovers(self) -> None:
        """What fell off, and no branch names any more, was cleaned away: records and files."""
        if self.plan.theme not in CLEANING:
            return
        named = self.watch.named()
        kept = {tokens.partition(Token(name)) for name in named}
        left = [name for name in self.stores.partitions if name.startswith("staging/") and name not in kept]
        if left and self.plan.guards:
            raise Violation("leftovers", f"{left[0]} is on no branch, and was not cleaned away")
        wasted = self.watch.wasted.keys() - self.watch.kept_files()
        files = sorted(file for file in wasted if self.stores.has(file))
        if files:
            raise Violation("leftovers", f"{files[0]} fell off a branch, and was not cleaned away")
        filters = {key.decode() for key in self.stores.partitions.get(f"filters/{self.repo.uid}", {})}
        if filters & wasted and not self.plan.faults.calls:  # else one may have been on its way for long
            raise Violation("leftovers", f"the filter of {min(filters & wasted)} was not cleaned away")

    def _restart(self, server: int) -> None:
        self.restarts += 1
        self.servers.pop(server, None)

    def _server(self, number: int) -> verbs.Server:
        found = self.servers.get(number)
        if found is None:
            world = SimWorld(self.scheduler, number + 7 * self.restarts)
            lake = Lake(
                kv=self.kv,
                open_past=lambda _: _past(self.network, self.stores, world, self.trees, self.watch.deletes),
                settings=self._settings(number),
                world=world,
            )
            found = self.servers[number] = verbs.Server(lake, self.repo)
        return found

    def _underway(self, branch: str) -> Iterator[Event]:
        """Operations that have no answer yet, or never will."""
        return (event for event in self.events if event.outcome is Outcome.UNKNOWN and event.op.branch == branch)

    def _settings(self, server: int) -> Settings:
        if self.plan.memstore is Memstore.NONE or (self.plan.memstore is Memstore.SOME and server % 2 == 0):
            return self.settings
        return msgspec.structs.replace(self.settings, staging=Staging.LSM)


class _Peek:
    """Looks without a turn. What never changes is looked at once: whoever deletes it is told."""

    def __init__(self, simulation: _Simulation) -> None:
        self._simulation = simulation
        self._commits: dict[CommitID, Commit] = {}
        self._trees: dict[FileName, View] = {}
        self._files: dict[FileName, set[str]] = {}
        self._rows: dict[FileName, dict[str, str | None]] = {}

    def tree(self, tree: FileName) -> View:
        found = self._trees.get(tree)
        if found is None:
            found = self._trees[tree] = self._quietly(lambda past: entries_of(past, tree))
        return found

    def files_of(self, tree: FileName) -> set[str]:
        found = self._files.get(tree)
        if found is None:
            found = self._files[tree] = self._quietly(lambda past: _files_of(past, tree))
        return found

    def rows(self, file: FileName) -> dict[str, str | None]:
        found = self._rows.get(file)
        if found is None:
            found = self._rows[file] = self._quietly(lambda past: changes_in(past.read_layers([file])[0]))
        return found

    def commit(self, commit: CommitID) -> Commit:
        found = self._commits.get(commit)
        if found is None:
            simulation = self._simulation
            found = self._commits[commit] = self._quietly(
                lambda _: commits.get(simulation.kv, simulation.repo.uid, commit)
            )
        return found

    def _quietly(self, look: Callable[["DictPast | StoredPast"], T]) -> T:
        simulation = self._simulation
        scheduler = simulation.scheduler
        was, scheduler.quiet = scheduler.quiet, True
        try:
            return look(_past(simulation.network, simulation.stores, SimWorld(scheduler, 0), simulation.trees))
        except EskerError as error:
            raise Violation("history", f"what a branch names cannot be read: {error}") from error
        finally:
            scheduler.quiet = was


@cache
def _start(guards: bool, stored: bool) -> tuple[_Stores, Repository, int, Cutting]:
    """The stores before the first client comes; made once."""
    scheduler = Scheduler(0)
    scheduler.quiet = True
    network = Network(scheduler, NO_FAULTS, lambda _: None)
    stores = _Stores(blobs=_WatchedBlobs() if stored else None)
    cutting = Cutting(entries_mean=2)
    world = SimWorld(scheduler, 0)
    lake = Lake(
        kv=_kv(guards, network, stores.partitions),
        open_past=lambda _: _past(network, stores, world, cutting),
        settings=Settings(cache_bytes=0),
        world=world,
    )
    return stores, verbs.create(lake), scheduler.moment, cutting


def _kv(guards: bool, network: Network, partitions: Partitions) -> SimKV:
    return (SimKV if guards else SimKVWithoutGuards)(network, partitions)


def _past(
    network: Network, stores: _Stores, world: SimWorld, cutting: Cutting, on_delete: OnDelete | None = None
) -> DictPast | StoredPast:
    if stores.blobs is None:
        return DictPast(network, stores.files, world, on_delete)
    blobs = FaultyBlobs(stores.blobs, _decide(network), lambda call: network.scheduler.turn())
    return StoredPast(Trees(blobs, cutting, cache=MemoryCache(0), pool=Inline(), world=world))


def _decide(network: Network) -> Callable[[Call], Fault | None]:
    """Failures of a store of files, where a write may simply be repeated."""
    dice = network.scheduler.random

    def decide(_: Call) -> Fault | None:
        if network.scheduler.quiet or not network.faults.calls or dice.random() >= network.faults.calls:
            return None
        return dice.choice((Fault.REFUSED, Fault.LOST))

    return decide


@contextmanager
def _sizes(small: bool) -> Iterator[None]:
    """With tables so small that a level has several, prefix deletes too many for a record, claims soon stale, and too
    many layers to lay more."""
    were = [(module, name, getattr(module, name)) for module, name, _ in _SMALL]
    try:
        for module, name, value in _SMALL if small else ():
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in were:
            setattr(module, name, value)


_SMALL: Final = (
    (tables, "ROWS", 2),
    (compaction, "ROWS", 2),
    (compaction, "TABLES_MAX", 2),
    (layers, "DELETES_MAX", 1),
    (compaction, "CLAIM_STALE_S", 0.05),
    (pressure, "COMPACT_AT", 3),
    (pressure, "WAIT_AT", 5),
    (pressure, "_WAIT_S", 0.05),
)


def _copied(blobs: BlobStore) -> _WatchedBlobs:
    copied = _WatchedBlobs()
    for info in blobs.list():
        copied.put(info.name, blobs.get(info.name) or b"")
    return copied


def entries_of(past: Past, tree: FileName) -> View:
    """What a tree shows."""
    return {
        path: checksum
        for table in past.scan(tree)
        for path, checksum in zip(table["path"].to_pylist(), table["checksum"].to_pylist(), strict=True)
    }


def _files_of(past: DictPast | StoredPast, tree: FileName) -> set[str]:
    if isinstance(past, DictPast):
        return past.files_of(tree)
    return {tree, *past.trees.metarange(tree).table["name"].to_pylist()}


def _where(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    return "".join(f"\n    {frame.filename}:{frame.lineno} {frame.line}" for frame in frames)
