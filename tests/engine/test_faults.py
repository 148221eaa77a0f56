"""Stores that refuse, stores that lose answers, and processes that die at each of their calls.

A verb that is cut short leaves the old state or the new one, and can be run again. `UnavailableError` says that nothing
has changed, so it is held to that; `OutcomeUnknownError` may be raised only where nobody could know.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from itertools import count
from typing import Final, NamedTuple

import pytest

from esker.engine import branches, changes, commit, entries, merge, refs, repositories, reset
from esker.engine.cleaning import Cleaner
from esker.engine.lake import Lake
from esker.errors import ContentionError, EskerError, Kind, NotFoundError, OutcomeUnknownError, UnavailableError
from esker.model import Repository
from esker.refs import tags
from esker.stores.kv_memory import MemoryKV
from esker.testing.faults import Call, Decide, Fault, FaultyBlobs, FaultyKV, at_random
from esker.testing.kv_suite import together
from esker.tree.cutting import Cutting
from tests.engine.lakes import (
    AT_ONCE,
    TINY,
    Clock,
    NoGuardsKV,
    Setup,
    assert_nothing_leaked,
    committed,
    contents,
    copy_of,
    entry,
    head,
    history_of,
    kind_of,
    new_setup,
    put,
    staged_partitions,
)

Verb = Callable[[Lake, Repository], object]


class Case(NamedTuple):
    verb: Verb
    again: tuple[Kind | None, ...] = (None,)
    """What running it again may answer, once it has taken effect."""
    unknown: bool = False
    """Whether the outcome may be unknown after one lost answer."""


def _create_repository(lake: Lake, _: Repository) -> None:
    repositories.create(lake, "another", "memory://another", cutting=TINY)


def _clean(lake: Lake, repo: Repository) -> None:
    cleaner = Cleaner(lake, repo)
    cleaner.run()
    cleaner.run()


CASES: Final[dict[str, Case]] = {
    "put": Case(lambda lake, repo: put(lake, repo, "main", "k", content="new"), unknown=True),
    "put if absent": Case(
        lambda lake, repo: entries.put(lake, repo, "main", entry("new"), if_absent=True),
        (Kind.OBJECT_EXISTS,),
        unknown=True,
    ),
    "delete": Case(lambda lake, repo: entries.delete(lake, repo, "main", "k"), unknown=True),
    "delete prefix": Case(lambda lake, repo: entries.delete_prefix(lake, repo, "main", "a/")),
    "commit": Case(lambda lake, repo: commit.commit(lake, repo, "main", "m"), (Kind.NO_CHANGES,)),
    "reset": Case(lambda lake, repo: reset.reset(lake, repo, "main")),
    "reset prefix": Case(lambda lake, repo: reset.reset_prefix(lake, repo, "main", "a/")),
    "reset path": Case(lambda lake, repo: reset.reset_path(lake, repo, "main", "k")),
    "merge": Case(lambda lake, repo: merge.merge(lake, repo, "side", "calm"), (Kind.NO_CHANGES,)),
    "squash": Case(lambda lake, repo: merge.merge(lake, repo, "side", "calm", squash=True), (Kind.NO_CHANGES,)),
    "revert": Case(lambda lake, repo: merge.revert(lake, repo, "calm", "side~1"), (Kind.NO_CHANGES,)),
    "cherry-pick": Case(lambda lake, repo: merge.cherry_pick(lake, repo, "calm", "side"), (Kind.NO_CHANGES,)),
    "move": Case(lambda lake, repo: merge.move(lake, repo, "calm", "side")),
    "create branch": Case(
        lambda lake, repo: branches.create(lake, repo, "fresh", "main"), (Kind.BRANCH_EXISTS,), unknown=True
    ),
    "tag": Case(lambda lake, repo: refs.tag(lake, repo, "fresh", "main"), (Kind.TAG_EXISTS,), unknown=True),
    "delete branch": Case(lambda lake, repo: branches.delete(lake, repo, "doomed"), (Kind.BRANCH_NOT_FOUND,)),
    "create repository": Case(_create_repository, (Kind.REPOSITORY_EXISTS, Kind.INVALID_ARGUMENT), unknown=True),
    "clean": Case(_clean, unknown=True),
}


@cache
def _start(kv: type[MemoryKV]) -> Setup:
    """`main` has something of everything staged, `calm` nothing, `doomed` something; and layers wait to be cleaned."""
    setup = new_setup(kv(), settings=AT_ONCE, world=Clock(), cutting=Cutting())
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "a/1", "a/2", "k", content="committed")
    commit.commit(lake, repo, "main", "start")
    for name in ("side", "calm", "doomed"):
        branches.create(lake, repo, name, "main")
    put(lake, repo, "side", "a/1", "s", content="side")
    commit.commit(lake, repo, "side", "side")
    put(lake, repo, "calm", "c", content="calm")
    commit.commit(lake, repo, "calm", "calm")
    put(lake, repo, "doomed", "d")
    put(lake, repo, "main", "a/3", "k", content="dropped")
    reset.reset_path(lake, repo, "main", "k")
    reset.reset(lake, repo, "main")
    put(lake, repo, "main", "a/3", content="sealed")
    entries.delete_prefix(lake, repo, "main", "a/2")
    put(lake, repo, "main", "k", "x", content="staged")
    return setup


_STAGING: Final = ("put", "put if absent", "delete", "commit", "reset")
"""Where a store without guards makes a difference."""

State = dict[str, tuple[dict[str, str], dict[str, str], int]]


def _state(setup: Setup) -> State:
    """Of each branch, what it shows, what is committed, and how long its history is."""
    lake = setup.again()
    found: State = {}
    for repo in repositories.every(lake):
        for name, record in branches.every(lake, repo):
            shows = contents(lake, repo, name)
            at_head = shows if record.clean else contents(lake, repo, f"{name}@")
            depth = lake.commits(repo).get(record.commit).generation
            label = name if repo.name == setup.repo.name else f"{repo.name}/{name}"
            found[label] = (shows, at_head, depth)
        for name, tag in tags.every(lake.kv, repo.uid):
            found[f"tag {name}"] = (contents(lake, repo, tag.commit), {}, 0)
    return found


def _is_whole(setup: Setup) -> None:
    """All that is staged can be read and committed, and nothing but what branches name stays in staging."""
    lake, repo = setup.again(), setup.repo
    for name, _ in list(branches.every(lake, repo)):
        before = contents(lake, repo, name)
        assert kind_of(partial(commit.commit, lake, repo, name, "after")) in (None, Kind.NO_CHANGES)
        assert contents(lake, repo, name) == contents(lake, repo, f"{name}@") == before
        assert lake.branches(repo).get(name).clean
    _clean(lake, repo)
    assert not staged_partitions(setup.kv)


class Died(BaseException):
    """The process is gone: nothing in it goes on."""


class _Dying:
    """Dies at the call of a number, counted over both stores, and at whatever is called after."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.died = False
        self._calls = count()
        self._lock = threading.Lock()

    def __call__(self, _: Call) -> None:
        with self._lock:
            self.died = self.died or next(self._calls) == self.number
        if self.died:
            raise Died


def _no_fault(_: Call) -> None:
    return None


@pytest.mark.parametrize(
    ("name", "kv"), [*((name, MemoryKV) for name in CASES), *((name, NoGuardsKV) for name in _STAGING)]
)
def test_a_crash_at_any_call_leaves_the_old_state_or_the_new_one(name: str, kv: type[MemoryKV]) -> None:
    case = CASES[name]
    setup = copy_of(_start(kv))
    old = _state(setup)
    case.verb(setup.lake, setup.repo)
    new = _state(setup)
    for number in count():
        setup = copy_of(_start(kv))
        dying = _Dying(number)
        lake = setup.again(FaultyKV(setup.kv, _no_fault, dying), FaultyBlobs(setup.blobs, _no_fault, dying))
        with suppress(Died):
            case.verb(lake, setup.repo)
        if not dying.died:
            assert number > 1
            return
        state = _state(setup)
        assert state in (old, new), f"died at call {number}"
        answer = kind_of(partial(case.verb, setup.again(), setup.repo))
        assert answer is None if state == old and state != new else answer in (None, *case.again)
        assert _state(setup) == new
        _is_whole(setup)


def _faults(plan: Callable[[int, int], Fault | None], number: int) -> tuple[Decide, list[Call]]:
    """Faults by the plan, which is told the number of the call and which one the first fault was at."""
    calls = count()
    hit: list[Call] = []
    lock = threading.Lock()

    def decide(call: Call) -> Fault | None:
        with lock:
            fault = plan(next(calls), number)
            if fault:
                hit.append(call)
        return fault

    return decide, hit


def _one(fault: Fault) -> Callable[[int, int], Fault | None]:
    return lambda call, number: fault if call == number else None


def _lost_then_refused(call: int, number: int) -> Fault | None:
    """An answer is lost, and then the store cannot be asked what became of it."""
    return None if call < number else Fault.LOST if call == number else Fault.REFUSED


def _interrupted(case: Case, kv: type[MemoryKV], plan: Callable[[int, int], Fault | None]) -> Iterator[str]:
    """What is wrong with how the verb bears faults at each of its calls."""
    setup = copy_of(_start(kv))
    old = _state(setup)
    case.verb(setup.lake, setup.repo)
    new = _state(setup)
    for number in count():
        setup = copy_of(_start(kv))
        decide, hit = _faults(plan, number)
        lake = setup.again(FaultyKV(setup.kv, decide), FaultyBlobs(setup.blobs, decide))
        kind: Kind | None = None
        error: EskerError | None = None
        try:
            case.verb(lake, setup.repo)
        except EskerError as raised:
            error, kind = raised, raised.kind
        if not hit:
            return
        state = _state(setup)
        where = f"{hit[0].method} of {hit[0].name!r}, call {number}: "
        if state not in (old, new):
            yield where + "damage"
        elif error is None and state != new:
            yield where + "said to be done, and is not"
        elif isinstance(error, UnavailableError) and state != old:
            yield where + f"said that nothing changed ({kind}), but it has"
        elif error is not None and not isinstance(error, UnavailableError | OutcomeUnknownError):
            yield where + f"raised {error!r}"
        elif isinstance(error, OutcomeUnknownError) and not (case.unknown or plan is _lost_then_refused):
            yield where + f"said that the outcome is unknown, when it is {'new' if state == new else 'old'}"
        kind_of(partial(case.verb, setup.again(), setup.repo))
        if _state(setup) != new:
            yield where + "run again, it did not come to the new state"


_PLANS: Final = {
    "refused": _one(Fault.REFUSED),
    "lost": _one(Fault.LOST),
    "lost, then refused": _lost_then_refused,
}


@pytest.mark.parametrize("plan", _PLANS)
@pytest.mark.parametrize(
    ("name", "kv"), [*((name, MemoryKV) for name in CASES), *((name, NoGuardsKV) for name in _STAGING)]
)
def test_a_fault_at_any_call_is_borne_or_told_truly(name: str, plan: str, kv: type[MemoryKV]) -> None:
    wrong = [*_interrupted(CASES[name], kv, _PLANS[plan])]
    assert not wrong, "\n".join(wrong)


# ---------------------------------------------------------------------- at random


def _quiet(lake: Lake, repo: Repository, path: str) -> str | None:
    """What is at a path, asked through stores that do not fail."""
    try:
        return entries.get(lake, repo, "main", path).checksum
    except NotFoundError:
        return None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kv", [MemoryKV, NoGuardsKV])
def test_with_random_faults_each_path_holds_what_was_told(kv: type[MemoryKV], seed: int) -> None:
    """Several writers with paths of their own, and a committer. What was acknowledged is there."""
    setup = new_setup(kv(), settings=AT_ONCE)
    repo = setup.repo
    left = [3]
    lock = threading.Lock()

    def faulty(worker: int) -> Lake:
        decide = at_random(100 * seed + worker, 0.08)
        return setup.again(FaultyKV(setup.kv, decide), FaultyBlobs(setup.blobs, decide))

    def write(worker: int) -> None:
        lake, quiet = faulty(worker), setup.again()
        for n in range(40):
            path = f"{worker}/{n % 3}"
            before = _quiet(quiet, repo, path)
            after: str | None = f"{n}"
            try:
                if n % 5 == 3:
                    after = None
                    entries.delete(lake, repo, "main", path)
                elif n % 5 == 4:
                    after = None
                    entries.delete_prefix(lake, repo, "main", path)
                else:
                    entries.put(lake, repo, "main", entry(path, n), if_absent=n % 5 == 2 and before is None)
                possible = {after}
            except (UnavailableError, OutcomeUnknownError):
                possible = {before, after}  # which of them an error may leave, the tests above tell
            assert _quiet(quiet, repo, path) in possible, (path, n)

    def commit_all() -> None:
        lake = faulty(9)
        while left[0]:
            kind = kind_of(partial(commit.commit, lake, repo, "main", "m"))
            assert kind in (None, Kind.NO_CHANGES, Kind.STORE_UNAVAILABLE, Kind.OUTCOME_UNKNOWN, Kind.CONTENTION)

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        finally:
            with lock:
                left[0] -= 1

    together([*(partial(guarded, partial(write, worker)) for worker in range(3)), commit_all])
    shown = contents(setup.again(), repo, "main")
    kind_of(partial(commit.commit, setup.lake, repo, "main", "m"))
    assert contents(setup.lake, repo, "main@") == shown
    for name in history_of(setup.lake, repo):
        committed(setup.again(), repo, name)
    if setup.kv.guards:
        _clean(setup.lake, repo)
        assert not staged_partitions(setup.kv)


def test_a_change_that_is_wanted_no_more_while_it_may_still_land_is_of_unknown_outcome() -> None:
    setup = new_setup()
    wanted = True

    def hold_up(call: Call) -> None:
        nonlocal wanted
        if call.method == "put_if" and wanted:
            wanted = False
            raise OutcomeUnknownError

    lake = setup.again(kv=FaultyKV(setup.kv, lambda _: None, hold_up))
    with pytest.raises(OutcomeUnknownError):
        lake.branches(setup.repo).update("main", lambda record: record.touched() if wanted else None)


def test_the_start_of_these_tests_leaks_nothing() -> None:
    setup = copy_of(_start(MemoryKV))
    assert_nothing_leaked(setup)
    assert head(setup.lake, setup.repo) != head(setup.lake, setup.repo, "side")
    assert not changes.is_clean(setup.lake, setup.repo, "main")
    assert issubclass(ContentionError, EskerError)
