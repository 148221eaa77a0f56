"""Compaction: claims, those who do it twice or die over it, and the thread that does it in the background."""

import threading
from collections.abc import Callable
from typing import Final

import pytest

from esker.engine import background, branches, commit, compaction, entries, layers, sensor
from esker.engine.background import Background
from esker.engine.compaction import CLAIM_STALE_S
from esker.engine.lake import Lake
from esker.engine.policy import Compaction
from esker.errors import Kind, UnavailableError
from esker.model import Claim, Repository
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from esker.testing.faults import Call, FaultyBlobs
from tests.engine.lakes import Clock, Setup, assert_nothing_leaked, contents, entry, new_setup, put, shown

BOTH: Final = [Compaction.MINOR, Compaction.MAJOR]


def lay(lake: Lake, repo: Repository, count: int, branch: str = "main") -> None:
    for number in range(count):
        layers.append(lake, repo, branch, Changes(changes_of([entry(f"l/{number}")])))


def dies(setup: Setup, how: Compaction) -> None:
    """Somebody claims a branch, and is not heard of again."""

    def kill(call: Call) -> None:
        if call.method == "put":
            raise KeyboardInterrupt

    lake = setup.again(blobs=FaultyBlobs(setup.blobs, lambda _: None, kill))
    with pytest.raises(KeyboardInterrupt):
        compaction.compact(lake, setup.repo, "main", how)
    assert setup.lake.branches(setup.repo).get("main").claim


@pytest.mark.parametrize("how", BOTH)
def test_a_claim_is_stale_once_it_was_seen_for_long_by_ones_own_clock(how: Compaction) -> None:
    clock = Clock()
    setup = new_setup(world=clock)
    lake, repo, *_ = setup
    lay(lake, repo, 3)
    dies(setup, how)
    other = setup.again()
    clock.passed_s += 10 * CLAIM_STALE_S
    assert not compaction.compact(lake, repo, "main", how), "it is seen for the first time"
    clock.passed_s += CLAIM_STALE_S - 1
    clock.ms += 10**9
    assert not compaction.compact(lake, repo, "main", how), "what the clock on the wall says does not matter"
    clock.passed_s += 1
    assert not compaction.compact(other, repo, "main", how), "another process goes by when it saw the claim"
    assert compaction.compact(lake, repo, "main", how)
    assert set(contents(lake, repo, "main")) == {"l/0", "l/1", "l/2"}


def test_a_later_claim_is_respected_anew() -> None:
    clock = Clock()
    setup = new_setup(world=clock)
    lake, repo, *_ = setup
    lay(lake, repo, 1)
    dies(setup, Compaction.MINOR)
    assert not compaction.compact(lake, repo, "main", Compaction.MINOR)
    clock.passed_s += CLAIM_STALE_S
    another = Claim(id="another", started_ms=0)
    lake.branches(repo).update("main", lambda record: record.claimed(another, record.token))
    assert not compaction.compact(lake, repo, "main", Compaction.MINOR)
    assert compaction.compact(lake, repo, "main", Compaction.MINOR, force=True)


def test_a_claim_from_the_future_is_none() -> None:
    clock = Clock()
    setup = new_setup(world=clock)
    lay(setup.lake, setup.repo, 1)
    clock.ms += 3_600_000
    dies(setup, Compaction.MINOR)
    clock.ms -= 3_600_000
    assert compaction.compact(setup.lake, setup.repo, "main", Compaction.MINOR)


@pytest.mark.parametrize("how", BOTH)
def test_of_two_that_compact_at_once_one_lands_and_nothing_is_lost(how: Compaction) -> None:
    setup = new_setup()
    lake, repo, *_ = setup
    put(lake, repo, "main", "a", "b")
    commit.commit(lake, repo, "main", "m")
    lay(lake, repo, 3)
    entries.delete(lake, repo, "main", "a")
    rival = setup.again()
    came: list[Call] = []

    def interfere(call: Call) -> None:
        if call.method == "put" and not came:
            came.append(call)
            assert not compaction.compact(rival, repo, "main", how), "a young claim is respected"
            assert compaction.compact(rival, repo, "main", how, force=True)
            put(rival, repo, "main", "late")

    slow = setup.again(blobs=FaultyBlobs(setup.blobs, lambda _: None, interfere))
    assert not compaction.compact(slow, repo, "main", how)
    assert came
    assert set(contents(lake, repo, "main")) == {"b", "l/0", "l/1", "l/2", "late"}
    assert lake.branches(repo).get("main").claim is None


@pytest.mark.parametrize("how", BOTH)
def test_a_commit_takes_the_claim_and_never_folds_again_because_of_a_compaction(how: Compaction) -> None:
    setup = new_setup()
    lake, repo, *_ = setup
    lay(lake, repo, 3)
    rival = setup.again()
    made: list[object] = []

    def interfere(call: Call) -> None:
        if call.method == "put" and not made:
            made.append(commit.commit(rival, repo, "main", "m"))

    slow = setup.again(blobs=FaultyBlobs(setup.blobs, lambda _: None, interfere))
    assert not compaction.compact(slow, repo, "main", how)
    record = lake.branches(repo).get("main")
    assert record.clean
    assert made == [record.commit]
    assert set(contents(lake, repo, "main@")) == {"l/0", "l/1", "l/2"}


def test_a_running_compaction_is_shown_with_the_layers() -> None:
    setup = new_setup()
    lay(setup.lake, setup.repo, 2)
    found = branches.staged(setup.lake, setup.repo, "main")
    assert [layer.level for layer in found.layers] == ["L1", "L1"]
    assert found.compacting_since_ms is None
    dies(setup, Compaction.MINOR)
    claim = setup.lake.branches(setup.repo).get("main").claim
    assert claim
    assert branches.staged(setup.lake, setup.repo, "main").compacting_since_ms == claim.started_ms


def test_tables_of_level_2_are_stored_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for its store, and none for another."""
    monkeypatch.setattr(compaction, "ROWS", 4)
    monkeypatch.setattr("esker.staging.tables.ROWS", 4)
    setup = new_setup()
    lake, repo, *_ = setup
    layers.append(lake, repo, "main", Changes(changes_of(entry(f"{n:02}") for n in range(16))))
    compaction.compact(lake, repo, "main", Compaction.MINOR)
    layers.append(lake, repo, "main", Changes(changes_of(entry(f"{n:02}", 1) for n in range(0, 16, 3))))
    pairs = threading.Barrier(2)

    def meet(call: Call) -> None:
        if call.method == "put" and "/L2/" in call.name:
            pairs.wait(30)

    slow = setup.again(blobs=FaultyBlobs(setup.blobs, lambda _: None, meet))
    assert compaction.compact(slow, repo, "main", Compaction.MINOR)
    assert len(shown(lake, repo, "main")) == 16


# ---------------------------------------------------------------------- in the background


def until(what: Callable[[], bool]) -> None:
    for _ in range(3000):
        if what():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came to that")


def test_what_is_noticed_is_compacted() -> None:
    lake, repo, *_ = new_setup()
    lay(lake, repo, 16)
    background.work(lake)
    record = lake.branches(repo).get("main")
    assert not record.sealed
    assert record.l2
    assert len(contents(lake, repo, "main")) == 16


def test_a_thread_does_it_as_soon_as_it_is_noticed() -> None:
    setup = new_setup()
    worker = Background(setup.lake)
    worker.start()
    try:
        lay(setup.lake, setup.repo, 16)
        until(lambda: setup.lake.branches(setup.repo).get("main").l2 is not None)
    finally:
        worker.stop()


def test_what_a_former_process_left_is_found_at_the_start() -> None:
    setup = new_setup()
    lake, repo, *_ = setup
    branches.create(lake, repo, "other", "main")
    lay(lake, repo, 16, "other")
    again = setup.again()
    background.look_at_all(again)
    background.work(again)
    assert lake.branches(repo).get("other").l2
    commit.commit(lake, repo, "other", "m")
    later = setup.again()
    background.look_at_all(later)
    while lake.branches(repo).get("other").dropped or lake.kv.scan(f"cleanup/{repo.uid}"):
        background.work(later)
    assert_nothing_leaked(setup)


def test_a_claim_of_the_dead_only_puts_it_off() -> None:
    clock = Clock()
    setup = new_setup(world=clock)
    lake, repo, *_ = setup
    lay(lake, repo, 16)
    dies(setup, Compaction.MINOR)
    background.work(lake)
    assert lake.branches(repo).get("main").sealed
    noticed = sensor.of(lake).noticed
    assert isinstance(noticed, threading.Event)
    assert not noticed.is_set(), "not again at once"
    clock.passed_s += CLAIM_STALE_S
    background.work(lake)
    assert not lake.branches(repo).get("main").sealed


def test_a_store_that_fails_only_puts_it_off() -> None:
    setup = new_setup()
    repo = setup.repo
    failing = True

    def fail(call: Call) -> None:
        if failing and call.method == "put" and "/L2/" in call.name:
            raise UnavailableError(Kind.STORE_UNAVAILABLE, "the store is away")

    lake = setup.again(blobs=FaultyBlobs(setup.blobs, lambda _: None, fail))
    lay(lake, repo, 16)
    background.work(lake)
    assert lake.branches(repo).get("main").sealed
    failing = False
    assert lake.branches(repo).get("main").claim is None, "who fails gives its claim back"
    background.work(lake)
    assert not lake.branches(repo).get("main").sealed


def test_a_mistake_of_ours_does_not_end_it(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    setup = new_setup()
    lake, repo, *_ = setup
    branches.create(lake, repo, "odd", "main")
    real = compaction.compact
    tried = threading.Event()

    def mistaken(lake: Lake, repo: Repository, branch: str, how: Compaction) -> bool:
        if branch == "odd":
            tried.set()
            raise KeyError("a mistake")
        return real(lake, repo, branch, how)

    monkeypatch.setattr(compaction, "compact", mistaken)
    worker = Background(lake)
    worker.start()
    try:
        lay(lake, repo, 16, "odd")
        assert tried.wait(30)
        lay(lake, repo, 16)
        until(lambda: lake.branches(repo).get("main").l2 is not None)
    finally:
        worker.stop()
    assert "a mistake" in caplog.text


def test_looking_at_the_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = new_setup()
    lay(setup.lake, setup.repo, 16)
    lake = setup.again()
    real, tries = background.look_at_all, 0

    def look(lake: Lake) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise UnavailableError(Kind.STORE_UNAVAILABLE, "the store is away")
        real(lake)

    monkeypatch.setattr(background, "look_at_all", look)
    monkeypatch.setattr(background, "_ROUND_S", 0.01)
    worker = Background(lake, look_first=True)
    worker.start()
    try:
        until(lambda: setup.lake.branches(setup.repo).get("main").l2 is not None)
    finally:
        worker.stop()
    assert tries == 2
