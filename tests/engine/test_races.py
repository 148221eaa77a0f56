"""Verbs that run at the same time.

First every pair of verbs, one inside another at each of its calls: what comes out must be what one after the other
gives. Then threads, on memory, SQLite and PostgreSQL.
"""

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from esker.engine import branches, changes, commit, entries, merge, reset
from esker.engine.cleaning import Cleaner
from esker.engine.lake import Lake
from esker.errors import EskerError, Kind, NotFoundError, PreconditionError
from esker.model import CommitID, Repository
from esker.refs.records import Branch
from esker.settings import Settings
from esker.staging import stack
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.kv import KVStore
from esker.stores.kv_memory import MemoryKV
from esker.stores.kv_postgres import PostgresKV
from esker.stores.kv_sqlite import SQLiteKV
from esker.testing.faults import Call, FaultyBlobs, FaultyKV
from esker.testing.kv_suite import together
from esker.tree.cutting import Cutting
from tests.engine.lakes import (
    AT_ONCE,
    Clock,
    NoGuardsKV,
    Setup,
    committed,
    contents,
    copy_of,
    entry,
    head,
    history_of,
    kind_of,
    new_setup,
    open_lake,
    put,
    staged_partitions,
)

Verb = Callable[[Lake, Repository], object]

KEPT: Final = Settings()
"""With a grace time: what a verb looks at stays while it runs."""


def _put(path: str, content: str, *, if_absent: bool = False) -> Verb:
    return lambda lake, repo: entries.put(lake, repo, "work", entry(path, content), if_absent=if_absent)


def _reads(lake: Lake, repo: Repository) -> object:
    return tuple(sorted(contents(lake, repo, "work").items()))


VERBS: Final[dict[str, Verb]] = {
    "put": _put("k", "put"),
    "put another": _put("a/1", "put"),
    "put if absent": _put("k", "absent", if_absent=True),
    "put another if absent": _put("gone", "absent", if_absent=True),
    "delete": lambda lake, repo: entries.delete(lake, repo, "work", "k"),
    "delete prefix": lambda lake, repo: entries.delete_prefix(lake, repo, "work", "a/"),
    "delete all": lambda lake, repo: entries.delete_prefix(lake, repo, "work", ""),
    "commit": lambda lake, repo: bool(commit.commit(lake, repo, "work", "m")),
    "commit empty": lambda lake, repo: bool(commit.commit(lake, repo, "work", "m", allow_empty=True)),
    "reset": lambda lake, repo: reset.reset(lake, repo, "work"),
    "reset path": lambda lake, repo: reset.reset_path(lake, repo, "work", "k"),
    "reset gone": lambda lake, repo: reset.reset_path(lake, repo, "work", "gone"),
    "reset prefix": lambda lake, repo: reset.reset_prefix(lake, repo, "work", "a/"),
    "merge": lambda lake, repo: bool(merge.merge(lake, repo, "side", "work")),
    "revert": lambda lake, repo: bool(merge.revert(lake, repo, "work", "start")),
    "move": lambda lake, repo: merge.move(lake, repo, "work", "side"),
    "delete branch": lambda lake, repo: branches.delete(lake, repo, "work"),
    "create branch": lambda lake, repo: bool(branches.create(lake, repo, "work", "side")),
    "get": lambda lake, repo: entries.get(lake, repo, "work", "k").checksum,
    "list": _reads,
    "diff": lambda lake, repo: tuple(c.path for c in changes.uncommitted(lake, repo, "work").items),
}


def _stores(kv: type[MemoryKV], settings: Settings) -> Setup:
    """A branch with some of everything on it: what is committed, staged, deleted, and sealed. `start` is its commit,
    `side` has one more."""
    setup = new_setup(kv(), settings=settings, world=Clock(), cutting=Cutting())
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "a/1", "a/2", "gone", "k", content="committed")
    commit.commit(lake, repo, "main", "start")
    for name in ("start", "side", "work"):
        branches.create(lake, repo, name, "main")
    put(lake, repo, "side", "a/1", "s", content="side")
    commit.commit(lake, repo, "side", "side")
    return setup


def _stage(setup: Setup, how: str) -> Setup:
    lake, repo = setup.lake, setup.repo
    if how in ("staged", "sealed"):
        put(lake, repo, "work", "k", "a/3", content="staged")
        entries.delete(lake, repo, "work", "gone")
    if how == "sealed":
        entries.delete_prefix(lake, repo, "work", "a/2")
    return setup


STARTS: Final = ("clean", "staged", "sealed")


class Outcome(NamedTuple):
    answers: tuple[object, object]
    shown: object
    committed: object
    depth: int


def _answer(verb: Verb, lake: Lake, repo: Repository) -> object:
    try:
        return verb(lake, repo)
    except EskerError as error:
        return error.kind


def _outcome(setup: Setup, answers: tuple[object, object]) -> Outcome:
    lake, repo, _, _ = setup
    if lake.branches(repo).find("work") is None:
        return Outcome(answers, None, None, 0)
    at_head = _committed(lake, repo)
    depth = len([*history_of(lake, repo, "work")])
    before = contents(lake, repo, "work")
    if kind_of(partial(commit.commit, lake, repo, "work", "again")) is None:
        assert _committed(lake, repo) == before, "a commit holds what the branch showed"
        assert contents(lake, repo, "work") == before
    return Outcome(answers, tuple(sorted(before.items())), tuple(sorted(at_head.items())), depth)


def _committed(lake: Lake, repo: Repository) -> dict[str, str]:
    return {path: found.checksum for path, found in committed(lake, repo, head(lake, repo, "work")).items()}


def _serial(start: Setup, outer: Verb, inner: Verb) -> list[Outcome]:
    found = []
    for swapped in (False, True):
        setup = copy_of(start)
        one, two = (inner, outer) if swapped else (outer, inner)
        first, second = _answer(one, setup.lake, setup.repo), _answer(two, setup.lake, setup.repo)
        found.append(_outcome(setup, (second, first) if swapped else (first, second)))
    return found


def _interleaved(start: Setup, outer: Verb, inner: Verb) -> Iterator[tuple[int, Outcome]]:
    """What comes out with `inner` run just before each call of `outer`, by the number of the call."""
    for at in count():
        setup = copy_of(start)
        answers: list[object] = []
        calls = count()

        def on_call(
            _: Call, at: int = at, setup: Setup = setup, answers: list[object] = answers, calls: Iterator[int] = calls
        ) -> None:
            if next(calls) == at:
                answers.append(_answer(inner, setup.lake, setup.repo))

        watched = FaultyKV(setup.kv, lambda _: None, on_call)
        lake = open_lake(watched, setup.blobs, setup.lake.settings, setup.lake.world, setup.lake.past(setup.repo))
        answer = _answer(outer, lake, setup.repo)
        if not answers:
            return
        yield at, _outcome(setup, (answer, answers[0]))


_STORES: Final = {
    "guards": (MemoryKV, KEPT),
    "no grace": (MemoryKV, AT_ONCE),
    "no dirty reads": (MemoryKV, Settings(dirty_read_optimization=False)),
    "no guards": (NoGuardsKV, KEPT),
}


_EXTRA: Final = {
    (
        "no guards",
        "delete",
        "put if absent",
    ),  # until a write is acknowledged, it may be seen, vanish, and be seen again
}

_RUNS: Final = (
    [(kind, how) for kind in _STORES for how in STARTS]
    if "ESKER_ALL_PAIRS" in os.environ
    else [("guards", "staged"), ("no guards", "staged")]
)


@pytest.mark.parametrize(("kind", "how"), _RUNS)
def test_a_verb_inside_another_acts_before_or_after_it(kind: str, how: str) -> None:
    start = _stage(_stores(*_STORES[kind]), how)
    wrong = []
    for (outer, outer_verb), (inner, inner_verb) in product(VERBS.items(), VERBS.items()):
        allowed = _serial(start, outer_verb, inner_verb)
        if outer.startswith("commit") and inner.startswith("reset "):
            # What is reset is shown reset, though a commit in flight may hold it.
            allowed.append(allowed[1]._replace(committed=allowed[0].committed))
        for at, found in _interleaved(start, outer_verb, inner_verb):
            if found not in allowed and (kind, outer, inner) not in _EXTRA:
                wrong.append(f"{inner!r} at call {at} of {outer!r}: {found}\n   not {allowed}")
    assert not wrong, "\n".join([f"{len(wrong)} schedules", *wrong[:20]])


def test_an_object_that_a_reset_brings_back_is_there_for_a_put_if_absent() -> None:
    """A reset of a path changes what is visible below the open token, so it must seal it first."""
    setup = new_setup(world=Clock())
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "k", content="committed")
    commit.commit(lake, repo, "main", "m")
    entries.delete(lake, repo, "main", "k")
    racer = partial(entries.put, lake, repo, "main", entry("k", "absent"), if_absent=True)
    swaps = count()
    won: list[bool] = []

    def between_the_swaps(call: Call) -> None:
        if call.method == "put_if" and call.name.startswith("branches/") and next(swaps) == 1:
            won.append(kind_of(racer) is None)

    reset.reset_path(setup.again(FaultyKV(setup.kv, lambda _: None, between_the_swaps)), repo, "main", "k")
    shows = entries.get(lake, repo, "main", "k").checksum
    assert (won, shows) != ([True], "absent"), (
        "k was there again when the put was acknowledged, or the reset dropped it"
    )


def test_a_put_if_absent_that_stalls_past_the_grace_time_still_sees_what_is_there() -> None:
    setup = new_setup(settings=KEPT, world=(clock := Clock()))
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "k", content="first")
    # Another process begins a commit: it seals, folds and records, and has only its last swap to make.
    made = lake.branches(repo)
    sealed = made.update("main", lambda record: record.rotated(made.fresh_token()))
    assert sealed is not None
    parent = lake.commits(repo).get(sealed.commit)
    tree = commit.fold(lake, repo, parent.tree, sealed.basis())
    name = commit.record_commit(lake, repo, tree=tree, parents=(sealed.commit,), message="m")
    cleaner = Cleaner(lake, repo)

    def two_hours_pass(call: Call) -> None:
        if call.method == "get" and call.name.startswith("staging/") and head(lake, repo) != name:
            made.update("main", partial(Branch.advanced, commit=name, basis=sealed.basis()))
            cleaner.run()
            clock.passed_s += 7200
            cleaner.run()

    stalled = setup.again(FaultyKV(setup.kv, lambda _: None, two_hours_pass))
    kind = kind_of(lambda: entries.put(stalled, repo, "main", entry("k", "second"), if_absent=True))
    assert contents(lake, repo, "main") == {"k": "first"}
    assert kind is Kind.OBJECT_EXISTS


@pytest.mark.parametrize("kv", [MemoryKV, NoGuardsKV])
def test_a_write_that_comes_too_late_leaves_nothing_behind(kv: type[MemoryKV]) -> None:
    """Its token was sealed, committed and cleaned meanwhile. Without guards it lands there all the same, and has to be
    cleaned once more."""
    setup = new_setup(kv(), world=Clock())
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "first")
    cleaner = Cleaner(lake, repo)

    def commit_and_clean(call: Call) -> None:
        if call.method in ("put", "put_guarded") and call.name in staged_partitions(setup.kv):
            commit.commit(lake, repo, "main", "m")
            cleaner.run()

    put(setup.again(FaultyKV(setup.kv, lambda _: None, commit_and_clean)), repo, "main", "late")
    assert contents(lake, repo, "main") == {"first": "0", "late": "0"}
    commit.commit(lake, repo, "main", "m")
    for _ in range(5):
        cleaner.run()
    assert not staged_partitions(setup.kv)


def test_a_page_is_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "WINDOW_ROWS", 4)  # as with 256 and larger pages, only sooner
    setup = new_setup()
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", *(f"k{n}" for n in range(8)))
    scans = count()

    def between_the_windows(call: Call) -> None:
        if call.method == "scan" and next(scans) == 1:
            put(lake, repo, "main", "a first")
            put(lake, repo, "main", "z second")

    page = entries.listing(setup.again(FaultyKV(setup.kv, lambda _: None, between_the_windows)), repo, "main")
    paths = [item if isinstance(item, str) else item.path for item in page.items]
    assert "z second" not in paths or "a first" in paths


# ---------------------------------------------------------------------- threads


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def setups(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Setup]]:
    """A repository on a store, opened anew at each call as by another process."""
    kvs: list[KVStore] = []
    memory = MemoryKV()

    def connect() -> KVStore:
        if request.param == "memory":
            return memory
        if request.param == "sqlite":
            kvs.append(SQLiteKV(tmp_path / "kv.db"))
        else:
            kvs.append(PostgresKV(request.getfixturevalue("postgres_url")))
        return kvs[-1]

    first = new_setup(connect(), MemoryBlobs(), KEPT)

    def again() -> Setup:
        kv = connect()
        return Setup(open_lake(kv, first.blobs, KEPT), first.repo, kv, first.blobs)

    yield again
    for kv in [*kvs, first.kv]:
        kv.close()


WRITERS: Final = 4
PUTS: Final = 25
COMMITS: Final = 5
"""At least so many, however fast the puts are."""


def test_no_acknowledged_write_is_lost_and_a_commit_holds_those_before_it(setups: Callable[[], Setup]) -> None:
    """Two lakes, each with its writers and a committer; paths that nobody else writes."""
    one, other = setups(), setups()
    repo = one.repo
    lock = threading.Lock()
    acknowledged: dict[str, str] = {}
    commits: list[tuple[CommitID, dict[str, str]]] = []
    writing = threading.Event()
    left = [WRITERS]

    def write(writer: int) -> None:
        lake = (one, other)[writer % 2].lake
        for n in count():
            if n >= PUTS and len(commits) >= COMMITS:
                break
            path = f"{writer}/{n % 7}"
            put(lake, repo, "main", path, content=n)
            with lock:
                acknowledged[path] = str(n)
            assert int(entries.get(lake, repo, "main", path).checksum) == n, "a writer reads what it wrote"
        with lock:
            left[0] -= 1
            if not left[0]:
                writing.set()

    def commits_all(lake: Lake) -> None:
        while not writing.is_set():
            with lock:
                before = {**acknowledged}
            try:
                commits.append((commit.commit(lake, repo, "main", "m"), before))
            except EskerError as error:
                if error.kind not in (Kind.NO_CHANGES, Kind.CONTENTION):
                    raise

    def reads_all() -> None:
        lake = other.lake
        while not writing.is_set():
            with lock:
                before = {**acknowledged}
            now = contents(lake, repo, "main")
            assert all(path in now and int(now[path]) >= int(n) for path, n in before.items())

    together(
        [
            *(partial(write, writer) for writer in range(WRITERS)),
            partial(commits_all, one.lake),
            partial(commits_all, other.lake),
            reads_all,
        ]
    )
    assert contents(setups().lake, repo, "main") == acknowledged
    for name, before in commits:
        held = {path: int(found.checksum) for path, found in committed(one.lake, repo, name).items()}
        assert all(path in held and held[path] >= int(n) for path, n in before.items())
    assert {name for name, _ in commits} <= {*history_of(other.lake, repo)}, "every commit is in the history"


def test_of_many_puts_if_absent_one_wins_while_the_branch_is_sealed_all_the_time(setups: Callable[[], Setup]) -> None:
    lakes = [setups(), setups()]
    repo = lakes[0].repo
    done = threading.Event()
    rounds, racers = 6, 6
    winners: dict[str, list[str]] = {f"k{n}": [] for n in range(rounds)}
    left = [racers]
    lock = threading.Lock()

    def race(racer: int) -> None:
        for path in winners:
            try:
                entries.put(lakes[racer % 2].lake, repo, "main", entry(path, racer), if_absent=True)
                winners[path].append(str(racer))
            except PreconditionError:
                pass
        with lock:
            left[0] -= 1
            if not left[0]:
                done.set()

    def rotate() -> None:
        n = 0
        while not done.is_set():
            n += 1
            if n % 3:
                kind_of(partial(commit.commit, lakes[1].lake, repo, "main", "m"))
            else:
                entries.delete_prefix(lakes[1].lake, repo, "main", "nothing/")

    together([*(partial(race, racer) for racer in range(racers)), rotate])
    assert all(len(won) == 1 for won in winners.values()), winners
    assert contents(lakes[0].lake, repo, "main") == {path: won[0] for path, won in winners.items()}


class Op(NamedTuple):
    """What a thread did to one path: from when to when, and what it was told."""

    began: int
    ended: int
    name: str
    value: str | None
    """What was put or read; None for deleted, or nothing there."""


def _linearizable(ops: list[Op], state: str | None = None) -> bool:
    """Whether the operations have an order, true to what ended before what began, that explains what each was told."""
    if not ops:
        return True
    first_end = min(op.ended for op in ops)
    for at, op in enumerate(ops):
        if op.began > first_end:
            continue
        if op.name == "get":
            after, possible = state, op.value == state
        elif op.name == "if absent":
            after, possible = op.value, state is None
        elif op.name == "if absent, refused":
            after, possible = state, state is not None
        else:
            after, possible = op.value, True
        if possible and _linearizable(ops[:at] + ops[at + 1 :], after):
            return True
    return False


def test_the_checker_knows_what_is_no_order() -> None:
    assert _linearizable([Op(0, 3, "put", "a"), Op(1, 2, "get", None), Op(4, 5, "get", "a")])
    assert not _linearizable([Op(0, 1, "put", "a"), Op(2, 3, "get", None)])
    assert not _linearizable([Op(0, 1, "if absent", "a"), Op(2, 3, "if absent", "b")])
    assert not _linearizable([Op(0, 9, "put", "a"), Op(1, 2, "get", "a"), Op(3, 4, "get", None)])


STEPS: Final = ("put", "get", "if absent", "delete", "get")


def test_each_path_is_linearizable(setups: Callable[[], Setup]) -> None:
    lakes = [setups(), setups()]
    repo = lakes[0].repo
    ticks = count()
    stop = threading.Event()
    histories: dict[str, list[Op]] = {f"k{n}": [] for n in range(12)}
    barrier = threading.Barrier(4)

    def act(worker: int) -> None:
        lake = lakes[worker % 2].lake
        for path, history in histories.items():
            barrier.wait()
            for step, name in enumerate((*STEPS[worker:], "get", "put")):
                value: str | None = f"{worker}.{step}"
                began = next(ticks)
                if name == "put":
                    put(lake, repo, "main", path, content=f"{worker}.{step}")
                elif name == "delete":
                    entries.delete(lake, repo, "main", path)
                    value = None
                elif name == "get":
                    value = contents(lake, repo, "main").get(path) if worker == 3 else _get(lake, repo, path)
                elif kind_of(partial(entries.put, lake, repo, "main", entry(path, f"{worker}.{step}"), if_absent=True)):
                    name = "if absent, refused"
                history.append(Op(began, next(ticks), name, value))
        stop.set()

    def commits() -> None:
        while not stop.is_set():
            kind_of(partial(commit.commit, lakes[0].lake, repo, "main", "m"))

    together([*(partial(act, worker) for worker in range(4)), commits])
    for path, history in histories.items():
        assert _linearizable(sorted(history)), (path, sorted(history))


def _get(lake: Lake, repo: Repository, path: str) -> str | None:
    try:
        return entries.get(lake, repo, "main", path).checksum
    except NotFoundError:
        return None


def test_writers_go_on_while_a_commit_is_in_its_fold(setups: Callable[[], Setup]) -> None:
    writer = setups()
    repo = writer.repo
    put(writer.lake, repo, "main", "k", content="before")
    folding, go_on = threading.Event(), threading.Event()

    def hold(call: Call) -> None:
        if call.method == "put" and call.name.startswith("_esker/"):
            folding.set()
            assert go_on.wait(30)

    held = open_lake(writer.kv, FaultyBlobs(writer.blobs, lambda _: None, hold), KEPT)

    def write() -> None:
        assert folding.wait(30)
        try:
            for n in range(20):
                put(writer.lake, repo, "main", f"{n}", "k", content=f"after {n}")
                entries.delete(writer.lake, repo, "main", f"{n - 1}")
                assert entries.get(writer.lake, repo, "main", "k").checksum == f"after {n}"
            entries.delete_prefix(writer.lake, repo, "main", "1")
        finally:
            go_on.set()

    made, _ = together([partial(commit.commit, held, repo, "main", "m"), write])
    assert {path: found.checksum for path, found in committed(writer.lake, repo, made).items()} == {"k": "before"}
    assert contents(writer.lake, repo, "main") == {"k": "after 19"}


def test_resets_and_writers_leave_what_was_written_after_the_last_reset(setups: Callable[[], Setup]) -> None:
    """Each writer's path holds something that it wrote, no older than what was acknowledged before the last reset."""
    one, other = setups(), setups()
    repo = one.repo
    lock = threading.Lock()
    ticks = count()
    acknowledged: dict[str, list[tuple[int, int, int]]] = {f"{n}/k": [] for n in range(3)}
    resets: list[tuple[int, int]] = []
    stop = threading.Event()
    left = [len(acknowledged)]

    def write(path: str) -> None:
        for n in range(PUTS):
            began = next(ticks)
            put((one, other)[n % 2].lake, repo, "main", path, content=n)
            acknowledged[path].append((began, next(ticks), n))
        with lock:
            left[0] -= 1
            if not left[0]:
                stop.set()

    def resets_all() -> None:
        for _ in range(30):
            if stop.is_set():
                break
            began = next(ticks)
            reset.reset(other.lake, repo, "main")
            resets.append((began, next(ticks)))

    together([*(partial(write, path) for path in acknowledged), resets_all])
    now = contents(one.lake, repo, "main")
    last_began, last_ended = resets[-1]
    for path, writes in acknowledged.items():
        began, _, last = writes[-1]
        if began > last_ended:
            assert now[path] == str(last), "written after the last reset"
        elif writes[-1][1] < last_began:
            assert path not in now, "written before the last reset, and not since"
        else:
            assert now.get(path) in (None, str(last))
