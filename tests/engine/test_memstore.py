"""The memstore: what comes together is staged together, in order, and acknowledged when it is there."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from esker.engine import commit, compaction, entries, memstore, pressure, repositories
from esker.engine.cleaning import Cleaner
from esker.engine.lake import Lake
from esker.engine.memstore import Memstore
from esker.engine.policy import Compaction
from esker.errors import (
    ContentionError,
    EskerError,
    InvalidError,
    Kind,
    NotFoundError,
    OutcomeUnknownError,
    PreconditionError,
    UnavailableError,
)
from esker.model import Entry, Repository, Staging
from esker.settings import Settings
from esker.stores.blob_local import LocalBlobs
from esker.stores.kv_memory import MemoryKV
from esker.stores.kv_sqlite import SQLiteKV
from esker.streams.entries import changes_of, entries_in
from esker.streams.rows import Changes
from esker.testing.faults import Call, CountingBlobs, Decide, Fault, FaultyBlobs, FaultyKV
from esker.world import RealWorld
from tests.engine.lakes import NoGuardsKV, Setup, assert_nothing_leaked, contents, entry, kind_of, new_setup, shown

T = TypeVar("T")

Writer = Callable[[Lake, Repository], object]

LSM: Final = Settings(staging=Staging.LSM, grace_s=0.0)

AN_HOUR: Final = Settings(staging=Staging.LSM, grace_s=0.0, memstore_wait_ms=3_600_000)
"""Who waits for more than has to come waits too long for any test."""


def store_of(setup: Setup, branch: str = "main") -> Memstore:
    found = setup.lake.memstores[setup.repo.uid, branch]
    assert isinstance(found, Memstore)
    return found


def put(setup: Setup, *paths: str, content: int | str = 0) -> None:
    for path in paths:
        entries.put(setup.lake, setup.repo, "main", entry(path, content))


def together(count: int, work: Callable[[int], T]) -> list[T]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def putting(path: str, content: str = "0", branch: str = "main") -> Writer:
    return lambda lake, repo: entries.put(lake, repo, branch, entry(path, content))


def claim(path: str, content: str = "0") -> Writer:
    return lambda lake, repo: entries.put(lake, repo, "main", entry(path, content), if_absent=True)


class Gate:
    """Holds the first table that is written until it is opened."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.error = error

    def __call__(self, call: Call) -> None:
        if call.method == "put" and ".sst" in call.name and not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(30)
            if self.error:
                raise self.error


@contextmanager
def gathered(
    writers: Sequence[Writer],
    settings: Settings = AN_HOUR,
    error: BaseException | None = None,
) -> Iterator[tuple[Setup, list[Future[object]]]]:
    """These writers in one batch, in order: they came while a flush of `first` was under way, which then ends."""
    inner = new_setup(settings=settings)
    gate = Gate(error)
    lake = inner.again(blobs=FaultyBlobs(inner.blobs, lambda _: None, gate))
    setup = Setup(lake, inner.repo, inner.kv, inner.blobs)
    with ThreadPoolExecutor(len(writers) + 1) as pool:
        first = pool.submit(entries.put, lake, setup.repo, "main", entry("first"))
        assert gate.reached.wait(30)
        store = store_of(setup)
        futures: list[Future[object]] = []
        for writer in writers:
            came = store.came
            futures.append(pool.submit(writer, lake, setup.repo))
            while store.came == came and not futures[-1].done():
                pass
        gate.opened.set()
        found = first.exception()
        store.came = store.told  # nobody is waited for
        if store.gathering:
            store.gathering.woken.set()
        assert type(found) is type(error)
        yield setup, futures


def test_a_lone_writer_never_waits() -> None:
    setup = new_setup(settings=AN_HOUR)
    put(setup, "a", "b", "c")
    entries.delete(setup.lake, setup.repo, "main", "b")
    assert set(shown(setup.lake, setup.repo, "main")) == {"a", "c"}


def test_writers_that_come_during_a_flush_share_the_next() -> None:
    writers = [putting(f"p/{n:02d}") for n in range(20)]
    with gathered(writers) as (setup, futures):
        for future in futures:
            future.result()
    record = setup.lake.branches(setup.repo).get("main")
    assert [layer.count for layer in record.sealed] == [20, 1]
    assert record.seq == 2, "two flushes, two swaps"
    assert all(layer.tables[0].file.startswith("main/L1/") for layer in record.sealed)
    assert not record.dirty
    assert set(shown(setup.lake, setup.repo, "main")) == {"first", *(f"p/{n:02d}" for n in range(20))}


def test_those_that_were_told_are_waited_for() -> None:
    """Three come, are told together, and come again one by one: one flush has all three."""
    writers = [putting(f"{n}") for n in range(3)]
    with gathered(writers) as (setup, futures):
        for future in futures:
            future.result()
    store = store_of(setup)
    assert store.told == 3
    with ThreadPoolExecutor(3) as pool:
        again: list[Future[None]] = []
        for n in range(3):
            assert not any(one.done() for one in again), "it waits for the others"
            again.append(pool.submit(put, setup, f"again {n}"))
            while store.came <= n and store.told == 3 and not again[-1].done():
                pass
        for told in again:
            told.result()
    assert [layer.count for layer in setup.lake.branches(setup.repo).get("main").sealed] == [3, 3, 1]


def test_who_waits_for_others_in_vain_waits_no_longer_than_was_said() -> None:
    setup = new_setup(settings=Settings(staging=Staging.LSM, memstore_wait_ms=1))
    put(setup, "a")
    store_of(setup).told = 1000
    put(setup, "b")
    assert set(shown(setup.lake, setup.repo, "main")) == {"a", "b"}


def test_the_order_of_arrival_is_the_order() -> None:
    def delete_prefix(prefix: str) -> Writer:
        return lambda lake, repo: entries.delete_prefix(lake, repo, "main", prefix)

    def write(path: str, content: str | None) -> Writer:
        if content is None:
            return lambda lake, repo: entries.delete(lake, repo, "main", path)
        return lambda lake, repo: entries.put(lake, repo, "main", entry(path, content))

    steps = [
        write("p/x", "risen"),
        write("q", "1"),
        delete_prefix("p/"),
        write("p/y", "after"),
        write("q", None),
        write("q", "2"),
        write("r", "gone"),
        delete_prefix("first"),
        write("r", None),
    ]
    with gathered(steps) as (setup, futures):
        for future in futures:
            future.result()
    assert contents(setup.lake, setup.repo, "main") == {"p/y": "after", "q": "2"}
    assert setup.lake.branches(setup.repo).get("main").seq == 2


PATHS: Final = ["a", "a/", "a/b", "a/b/c", "b", "b/c"]
some_step = st.one_of(
    st.sampled_from(["", "a", "a/", "a/b", "b"]),
    st.dictionaries(st.sampled_from(PATHS), st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=3),
)


@given(st.lists(some_step, max_size=12))
def test_a_batch_is_its_steps_one_after_another(steps: list[str | dict[str, int | None]]) -> None:
    batch = memstore._Batch(new_setup().lake)
    model = dict.fromkeys(PATHS, "below")
    for step in steps:
        if isinstance(step, str):
            batch.steps.append(step)
            model = {path: content for path, content in model.items() if not path.startswith(step)}
            continue
        batch.steps.append({path: None if c is None else entry(path, c) for path, c in step.items()})
        for path, content in step.items():
            model.pop(path, None)
            if content is not None:
                model[path] = str(content)
    below = Changes(changes_of(entry(path, "below") for path in PATHS))
    rows = batch.changes().over(below).rows
    alive = [not gone for gone in rows["tombstone"].to_pylist()]
    assert {found.path: found.checksum for found, lives in zip(entries_in(rows), alive, strict=True) if lives} == model


# ---------------------------------------------------------------------- if absent


def test_of_several_if_absent_puts_in_one_batch_the_first_wins() -> None:
    with gathered([claim("k", "one"), claim("k", "two"), claim("k", "three")]) as (setup, futures):
        assert futures[0].result() is None
        for future in futures[1:]:
            with pytest.raises(PreconditionError, match="already exists"):
                future.result()
    assert contents(setup.lake, setup.repo, "main") == {"first": "0", "k": "one"}


def test_if_absent_puts_go_into_one_table_and_see_the_others_of_their_batch() -> None:
    writers = [claim(f"n/{n}") for n in range(5)]
    plain = [putting("n/3", "plain")]
    with gathered([*writers, *plain]) as (setup, futures):
        outcomes = [future.exception() for future in futures]
    assert [type(error) for error in outcomes] == [
        type(None),
        type(None),
        type(None),
        PreconditionError,
        type(None),
        type(None),
    ]
    assert [layer.count for layer in setup.lake.branches(setup.repo).get("main").sealed] == [4, 1, 1]
    assert contents(setup.lake, setup.repo, "main")["n/3"] == "plain"


@pytest.mark.parametrize("kv", [MemoryKV, NoGuardsKV])
def test_one_of_many_if_absent_puts_wins_whichever_way_they_come(kv: type[MemoryKV]) -> None:
    """Two servers with memstores, and one without."""
    setup = new_setup(kv(), settings=LSM)
    plain = setup.again()
    object.__setattr__(plain, "settings", Settings(grace_s=0.0))
    lakes = [setup.lake, setup.again(), plain]

    def claim_all(number: int) -> list[int]:
        won = []
        for key in range(8):
            try:
                entries.put(lakes[number % 3], setup.repo, "main", entry(f"k/{key}", number), if_absent=True)
                won.append(key)
            except PreconditionError:
                pass
        return won

    with ThreadPoolExecutor(9) as pool:
        won = dict(enumerate(pool.map(claim_all, range(9))))
    assert sorted(key for keys in won.values() for key in keys) == list(range(8))
    winners = {f"k/{key}": str(number) for number, keys in won.items() for key in keys}
    assert contents(setup.lake, setup.repo, "main") == winners


def test_what_was_deleted_is_absent() -> None:
    setup = new_setup(settings=LSM)
    put(setup, "a", "p/b")
    commit.commit(setup.lake, setup.repo, "main", "m")
    entries.delete(setup.lake, setup.repo, "main", "a")
    entries.delete_prefix(setup.lake, setup.repo, "main", "p/")
    for path in ("a", "p/b"):
        entries.put(setup.lake, setup.repo, "main", entry(path, "new"), if_absent=True)
        with pytest.raises(PreconditionError):
            entries.put(setup.lake, setup.repo, "main", entry(path, "newer"), if_absent=True)
    assert contents(setup.lake, setup.repo, "main") == {"a": "new", "p/b": "new"}


# ---------------------------------------------------------------------- what goes wrong


def no_fault(_: Call) -> Fault | None:
    return None


def faulty(setup: Setup, kv: Decide = no_fault, blobs: Decide = no_fault) -> Lake:
    return setup.again(kv=FaultyKV(setup.kv, kv), blobs=FaultyBlobs(setup.blobs, blobs))


def test_a_failed_upload_fails_all_of_its_writers_and_changes_nothing() -> None:
    error = UnavailableError(Kind.STORE_UNAVAILABLE, "as injected")
    setup = new_setup(settings=LSM)
    broken = faulty(setup, blobs=lambda call: Fault.REFUSED if call.method == "put" else None)
    outcomes = together(8, lambda n: kind_of(lambda: entries.put(broken, setup.repo, "main", entry(str(n)))))
    assert set(outcomes) == {error.kind}
    assert setup.lake.branches(setup.repo).get("main").seq == 0
    put(setup, "later")
    assert set(shown(setup.lake, setup.repo, "main")) == {"later"}


def test_the_batch_behind_one_that_failed_is_flushed() -> None:
    error = UnavailableError(Kind.STORE_UNAVAILABLE, "as injected")
    with gathered([putting("behind")], error=error) as (
        setup,
        futures,
    ):
        futures[0].result()
    assert set(shown(setup.lake, setup.repo, "main")) == {"behind"}


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST])
@pytest.mark.parametrize("if_absent", [False, True])
def test_every_call_of_a_flush_may_fail(fault: Fault, if_absent: bool) -> None:
    """Refused, nothing has changed. With its answer lost, it is settled, or said to be unknown."""
    for failing in range(20):
        setup = new_setup(settings=LSM)
        calls = 0

        def decide(_: Call, failing: int = failing) -> Fault | None:
            nonlocal calls
            calls += 1
            return fault if calls == failing + 1 else None

        lake = faulty(setup, decide, decide)
        found: EskerError | None = None
        try:
            entries.put(lake, setup.repo, "main", entry("k"), if_absent=if_absent)
        except EskerError as error:
            found = error
        now = set(shown(setup.again(), setup.repo, "main"))
        if found is None:
            assert now == {"k"}
        elif not isinstance(found, OutcomeUnknownError):
            assert isinstance(found, UnavailableError)
            assert not now
        if calls <= failing:
            assert failing > 4, "it got to every call"
            return
    raise AssertionError("a flush has fewer calls")


def test_an_outcome_that_nobody_knows_is_told_to_all() -> None:
    setup = new_setup(settings=LSM)
    lost = threading.Event()

    def decide(call: Call) -> Fault | None:
        if call.name.startswith("branches/") and (lost.is_set() or call.method == "put_if"):
            lost.set()
            return Fault.LOST
        return None

    lake = faulty(setup, decide)
    with pytest.raises(OutcomeUnknownError):
        entries.put(lake, setup.repo, "main", entry("k"))
    assert set(shown(setup.again(), setup.repo, "main")) == {"k"}, "it was applied, this time"


def test_a_lost_swap_is_swapped_again_and_nothing_is_uploaded_again() -> None:
    setup = new_setup(settings=LSM)
    blobs = CountingBlobs(setup.blobs)
    rival = setup.again()
    interfering = 3

    def interfere(call: Call) -> None:
        nonlocal interfering
        if call.method == "put_if" and interfering:
            interfering -= 1
            entries.put(rival, setup.repo, "main", entry(f"rival/{interfering}"))

    lake = setup.again(kv=FaultyKV(setup.kv, lambda _: None, interfere), blobs=blobs)
    entries.put(lake, setup.repo, "main", entry("mine"))
    assert blobs.calls["put"] == 1
    assert set(shown(setup.lake, setup.repo, "main")) == {"mine", *(f"rival/{n}" for n in range(3))}


def test_writing_to_no_branch_uploads_nothing() -> None:
    setup = new_setup(settings=LSM)
    with pytest.raises(NotFoundError):
        entries.put(setup.lake, setup.repo, "nowhere", entry("k"))
    assert not list(setup.blobs.list("_esker/staging/"))


def test_an_interrupted_leader_fails_its_batch_and_lets_the_next_go_on() -> None:
    setup = new_setup(settings=LSM)
    gate = Gate(KeyboardInterrupt())
    lake = setup.again(blobs=FaultyBlobs(setup.blobs, lambda _: None, gate))
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(entries.put, lake, setup.repo, "main", entry("first"))
        assert gate.reached.wait(30)
        second = pool.submit(entries.put, lake, setup.repo, "main", entry("second"))
        while not lake.memstores[setup.repo.uid, "main"].gathering:
            pass
        gate.opened.set()
        with pytest.raises(KeyboardInterrupt):
            first.result()
        second.result()
    assert set(shown(lake, setup.repo, "main")) == {"second"}


def test_a_leader_that_is_interrupted_before_its_turn_fails_only_its_batch() -> None:
    setup = new_setup(settings=LSM)
    lake, repo = setup.lake, setup.repo
    put(setup, "a")
    store = store_of(setup)
    store.is_flushing = True  # for ever

    class Interrupted(RealWorld):
        def event(self) -> threading.Event:
            event = threading.Event()
            event.wait = interrupt  # type: ignore[method-assign]
            return event

    def interrupt(timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    object.__setattr__(lake, "world", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        entries.put(lake, repo, "main", entry("b"))
    object.__setattr__(lake, "world", RealWorld())
    assert store.gathering is None
    assert store.is_flushing, "that was not ours"
    store.is_flushing = False
    put(setup, "c")
    assert set(shown(lake, repo, "main")) == {"a", "c"}


def test_a_writer_s_error_is_its_own() -> None:
    setup = new_setup(settings=LSM)
    broken = faulty(setup, blobs=lambda call: Fault.REFUSED if call.method == "put" else None)

    def failing(number: int) -> EskerError:
        with pytest.raises(UnavailableError) as caught:
            entries.put(broken, setup.repo, "main", entry(str(number)))
        return caught.value

    assert len({id(error) for error in together(8, failing)}) == 8


# ---------------------------------------------------------------------- bounds


def test_who_finds_the_batch_full_goes_into_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memstore, "ENTRIES_MAX", 4)
    setup = new_setup(settings=LSM)
    outcomes = together(30, lambda n: put(setup, f"k/{n:02d}"))
    assert outcomes == [None] * 30
    record = setup.lake.branches(setup.repo).get("main")
    assert max(layer.count for layer in record.sealed) <= 4
    assert len(shown(setup.lake, setup.repo, "main")) == 30


def test_bytes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memstore, "BYTES_MAX", 10_000)
    setup = new_setup(settings=LSM)
    together(10, lambda n: put(setup, f"{n}/" + "x" * 1000, content="y" * 3000))
    record = setup.lake.branches(setup.repo).get("main")
    assert max(layer.count for layer in record.sealed) <= 2
    assert len(shown(setup.lake, setup.repo, "main")) == 10


def test_who_finds_no_room_for_long_is_told_to_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memstore, "ENTRIES_MAX", 1)
    monkeypatch.setattr(memstore, "_FULL_WAIT_S", 0.0)
    waiting = [putting(str(n)) for n in range(2)]
    with gathered(waiting) as (setup, futures):
        futures[0].result()
        with pytest.raises(ContentionError, match="more is written"):
            futures[1].result()
    assert set(shown(setup.lake, setup.repo, "main")) == {"first", "0"}


def test_layers_are_bounded_by_compacting_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "COMPACT_AT", 5)
    setup = new_setup(settings=LSM)
    for n in range(40):
        put(setup, f"k/{n:02d}", content=n)
        assert len(setup.lake.branches(setup.repo).get("main").sealed) <= 5
    assert setup.lake.branches(setup.repo).get("main").l2
    assert contents(setup.lake, setup.repo, "main") == {f"k/{n:02d}": str(n) for n in range(40)}


def test_a_claim_of_the_dead_holds_nobody_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "COMPACT_AT", 3)
    monkeypatch.setattr(pressure, "WAIT_AT", 6)
    monkeypatch.setattr(pressure, "_WAIT_S", 0.0)
    setup = new_setup(settings=LSM)
    put(setup, "a")

    def dies(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "_minor", dies)
        with pytest.raises(KeyboardInterrupt):
            compaction.compact(setup.lake, setup.repo, "main", Compaction.MINOR)
    for n in range(20):
        put(setup, f"k/{n:02d}")
        assert len(setup.lake.branches(setup.repo).get("main").sealed) <= 6
    assert len(shown(setup.lake, setup.repo, "main")) == 21


def test_a_compaction_that_fails_fails_no_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "COMPACT_AT", 1)
    setup = new_setup(settings=LSM)
    broken = faulty(setup, blobs=lambda call: Fault.REFUSED if "/L2/" in call.name else None)
    for n in range(3):
        entries.put(broken, setup.repo, "main", entry(str(n)))
    assert set(shown(setup.lake, setup.repo, "main")) == {"0", "1", "2"}


# ---------------------------------------------------------------------- many at once


@pytest.mark.parametrize("staging", Staging)
@pytest.mark.parametrize("amount", [3, 100])
def test_many_writes_are_the_same_as_one_by_one(staging: Staging, amount: int) -> None:
    setup = new_setup(settings=Settings(staging=staging, grace_s=0.0))
    put(setup, "gone", "stays", "k/01")
    entries.write_many(
        setup.lake, setup.repo, "main", [entry(f"k/{n:02d}", n) for n in range(amount)], ["gone", "never", "k/00"]
    )
    assert contents(setup.lake, setup.repo, "main") == {"stays": "0", **{f"k/{n:02d}": str(n) for n in range(amount)}}
    record = setup.lake.branches(setup.repo).get("main")
    assert record.dirty == (staging is Staging.KV and amount == 3)
    entries.write_many(setup.lake, setup.repo, "main")
    assert setup.lake.branches(setup.repo).get("main") == record


def test_a_bad_one_among_many_refuses_all() -> None:
    setup = new_setup(settings=LSM)
    good = entry("good")
    negative = Entry(path="p", address="a", size=-1, checksum="", mtime_ms=0)
    no_text = Entry(path="p", address="a", size=0, checksum=b"", mtime_ms=0)  # type: ignore[arg-type]
    for bad in (entry(""), entry("x" * 1025), entry("\ud800"), negative, no_text):
        with pytest.raises(InvalidError):
            entries.write_many(setup.lake, setup.repo, "main", [good, bad])
    assert kind_of(lambda: entries.write_many(setup.lake, setup.repo, "main", [good], [""])) is Kind.INVALID_PATH
    assert not shown(setup.lake, setup.repo, "main")


def test_more_than_one_writers_share_is_laid_as_a_layer_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memstore, "SHARE_MAX", 50)
    setup = new_setup(settings=LSM)
    entries.write_many(setup.lake, setup.repo, "main", [entry(f"k/{n:03d}") for n in range(120)])
    assert [layer.count for layer in setup.lake.branches(setup.repo).get("main").sealed] == [120]


# ---------------------------------------------------------------------- several processes, other verbs


def test_two_servers_write_to_one_branch_while_a_third_commits(tmp_path: Path) -> None:
    """One with a memstore, one without. Nothing is lost, and each path has the last of its values."""
    blobs = LocalBlobs(tmp_path / "blobs")
    setup = new_setup(SQLiteKV(tmp_path / "kv.db"), blobs, LSM)
    other = setup.again(kv=SQLiteKV(tmp_path / "kv.db"))
    plain = setup.again(kv=SQLiteKV(tmp_path / "kv.db"))
    object.__setattr__(plain, "settings", Settings(grace_s=0.0))
    lakes = [setup.lake, other, plain]
    done = threading.Event()

    def write(number: int) -> None:
        for turn in range(12):
            entries.put(lakes[number % 3], setup.repo, "main", entry(f"w/{number}/{turn % 4}", turn))
            if turn % 5 == 4:
                entries.delete_prefix(lakes[number % 3], setup.repo, "main", f"w/{number}/{turn % 4}")

    def commit_all() -> None:
        cleaner = Cleaner(plain, setup.repo)
        while not done.is_set():
            kind_of(lambda: commit.commit(plain, setup.repo, "main", "m"))
            cleaner.run()

    with ThreadPoolExecutor(10) as pool:
        committing = pool.submit(commit_all)
        try:
            for future in [pool.submit(write, number) for number in range(9)]:
                future.result()
        finally:
            done.set()
        committing.result()
    expected = {}
    for number in range(9):
        for turn in range(12):
            expected[f"w/{number}/{turn % 4}"] = str(turn)
            if turn % 5 == 4:
                del expected[f"w/{number}/{turn % 4}"]
    assert contents(setup.again(), setup.repo, "main") == expected
    for lake in lakes:
        lake.kv.close()


def test_a_repository_says_where_writes_go_and_a_process_may_overrule_it() -> None:
    setup = new_setup()
    lake = setup.lake
    repo = repositories.create(lake, "lsm-one", "memory://lsm-one", staging=Staging.LSM)
    entries.put(lake, repo, "main", entry("a"))
    assert not lake.branches(repo).get("main").dirty
    assert repositories.get(lake, "lsm-one").staging is Staging.LSM
    plain = setup.again()
    object.__setattr__(plain, "settings", Settings(staging=Staging.KV))
    entries.put(plain, repo, "main", entry("b"))
    assert plain.branches(repo).get("main").dirty
    put(setup, "c")
    assert lake.branches(setup.repo).get("main").dirty


def test_nothing_is_left_of_flushes_that_were_committed() -> None:
    setup = new_setup(settings=LSM)
    together(8, lambda n: put(setup, f"k/{n}"))
    entries.delete_prefix(setup.lake, setup.repo, "main", "k/3")
    commit.commit(setup.lake, setup.repo, "main", "m")
    assert_nothing_leaked(setup)
    assert setup.lake.branches(setup.repo).get("main").clean


def test_flushes_are_measured() -> None:
    setup = new_setup(settings=LSM)
    entries.write_many(setup.lake, setup.repo, "main", [entry(f"{n}") for n in range(7)])
    put(setup, "a")
    labels = {"repo": setup.repo.name, "branch": "main"}

    def sample(name: str) -> float | None:
        return REGISTRY.get_sample_value(name, labels)

    assert sample("esker_flush_entries_sum") == 8
    assert sample("esker_flush_entries_count") == sample("esker_flush_seconds_count") == 2
    assert (sample("esker_flush_bytes_sum") or 0) > 8 * 100
    assert sample("esker_flush_writers") == 0
