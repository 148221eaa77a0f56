"""The wrappers: invisible when they do nothing, exact when they count, and failing just as told."""

from collections.abc import Callable
from functools import partial

import pytest

from esker.errors import OutcomeUnknownError, UnavailableError
from esker.stores.blob import BlobStore
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.kv import Guard, Guarded, KVStore
from esker.stores.kv_memory import MemoryKV
from esker.testing.blob_suite import BlobSuite, names
from esker.testing.faults import (
    Call,
    CountingBlobs,
    CountingKV,
    Decide,
    Fault,
    FaultyBlobs,
    FaultyKV,
    at_random,
)
from esker.testing.kv_suite import Connect, GuardedKVSuite


def never(_: Call) -> None:
    return None


def always(fault: Fault) -> Decide:
    return lambda _: fault


class TestWatchedBlobs(BlobSuite):
    stream_memory_bytes = None

    @pytest.fixture
    def store(self) -> BlobStore:
        return CountingBlobs(FaultyBlobs(MemoryBlobs(), never))


class TestWatchedKV(GuardedKVSuite):
    @pytest.fixture
    def connect(self) -> Connect:
        store = CountingKV(FaultyKV(MemoryKV(), never))
        return lambda: store


def test_blob_calls_and_bytes_are_counted_exactly() -> None:
    store = CountingBlobs(MemoryBlobs())
    store.put("a", b"12345")
    store.put("b", memoryview(b"1234").cast("I"))
    store.put_stream("c", [b"12", b"3"])
    store.get("a")
    store.get("missing")
    store.get_range("a", 1, 2)
    b"".join(store.stream("c") or [])
    list(store.list("x"))
    store.delete(iter(["a", "b"]))
    assert store.calls == {"put": 2, "put_stream": 1, "get": 2, "get_range": 1, "stream": 1, "list": 1, "delete": 1}
    assert store.names["get", "missing"] == 1
    assert store.names["delete", "a"] == store.names["delete", "b"] == store.names["list", "x"] == 1
    assert (store.bytes_read, store.bytes_written) == (5 + 2 + 3, 5 + 4 + 3)
    store.reset()
    assert (store.calls, store.names, store.bytes_read, store.bytes_written) == ({}, {}, 0, 0)


def test_kv_calls_are_counted_by_full_partition_and_passed_on_once() -> None:
    inner = MemoryKV()
    kv = CountingKV(inner)
    kv.put("staging/1", b"k", b"v")
    kv.put("staging/2", b"k", b"v")
    kv.get("staging/2", b"k")
    kv.put_many("staging/2", [(b"a", b""), (b"b", b"")])
    assert kv.partitions == {
        ("put", "staging/1"): 1,
        ("put", "staging/2"): 1,
        ("get", "staging/2"): 1,
        ("put_many", "staging/2"): 1,
    }
    assert kv.calls["put"] == 2
    assert inner.counts.writes == kv.counts.writes == {"staging": 4}
    kv.reset()
    assert kv.calls == kv.partitions == {}


BLOB_WRITES: list[Callable[[BlobStore], object]] = [
    lambda store: store.put("new", b"x"),
    lambda store: store.put_stream("new", [b"x"]),
    lambda store: store.copy("old", "new"),
    lambda store: store.delete(["old"]),
]


@pytest.mark.parametrize("write", BLOB_WRITES)
@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST])
def test_a_blob_write_fails_before_its_effect_or_after(write: Callable[[BlobStore], object], fault: Fault) -> None:
    inner, expected = MemoryBlobs(), MemoryBlobs()
    for store in (inner, expected):
        store.put("old", b"x")
    if fault is Fault.LOST:
        write(expected)
    with pytest.raises(UnavailableError, match=f"{fault.value}, as injected"):
        write(FaultyBlobs(inner, lambda call: fault if call.writes else None))
    assert names(inner) == names(expected)


def test_reads_of_blobs_break_at_once_or_after_the_first_item() -> None:
    inner = MemoryBlobs()
    inner.put("a", bytes(3_000_000))
    inner.put("b", b"")
    for fault, first in ((Fault.REFUSED, []), (Fault.LOST, ["item"])):
        store = FaultyBlobs(inner, always(fault))
        for read in (partial(store.get, "a"), partial(store.head, "a"), partial(store.get_range, "a", 0, 1)):
            with pytest.raises(UnavailableError):
                read()
        arrived: list[str] = []
        for iterate in (store.list, partial(store.stream, "a")):
            with pytest.raises(UnavailableError):
                arrived.extend("item" for _ in iterate() or ())
        assert arrived == first * 2


def test_half_a_batch() -> None:
    blobs = MemoryBlobs()
    for name in "abcd":
        blobs.put(name, b"")
    with pytest.raises(UnavailableError):
        FaultyBlobs(blobs, lambda _: Fault.HALF).delete("abcd")
    assert names(blobs) == ["c", "d"]

    inner = MemoryKV()
    kv = FaultyKV(inner, lambda _: Fault.HALF)
    with pytest.raises(OutcomeUnknownError):
        kv.put_many("p", [(b"%d" % index, b"") for index in range(4)])
    assert [item.key for item in inner.scan("p")] == [b"0", b"1"]
    with pytest.raises(OutcomeUnknownError):
        kv.delete_many("p", [b"0", b"1"])
    assert [item.key for item in inner.scan("p")] == [b"1"]


KV_WRITES: list[Callable[[KVStore], object]] = [
    lambda kv: kv.put("p", b"new", b"x"),
    lambda kv: kv.put_if("p", b"new", b"x", None),
    lambda kv: kv.put_guarded("p", b"new", b"x", guard=Guard("p", b"old", b"x")),
    lambda kv: kv.put_many("p", [(b"new", b"x"), (b"newer", b"x")]),
    lambda kv: kv.delete("p", b"old"),
    lambda kv: kv.delete_many("p", [b"old"]),
]


@pytest.mark.parametrize("write", KV_WRITES)
def test_a_kv_write_is_refused_or_its_outcome_unknown(write: Callable[[KVStore], object]) -> None:
    refused, lost, expected = MemoryKV(), MemoryKV(), MemoryKV()
    for kv in (refused, lost, expected):
        kv.put("p", b"old", b"x")
    before = [item.key for item in expected.scan("p")]
    write(expected)
    with pytest.raises(UnavailableError):
        write(FaultyKV(refused, lambda _: Fault.REFUSED))
    assert [item.key for item in refused.scan("p")] == before
    with pytest.raises(OutcomeUnknownError):
        write(FaultyKV(lost, lambda _: Fault.LOST))
    assert [item.key for item in lost.scan("p")] == [item.key for item in expected.scan("p")]


def test_a_kv_read_is_only_ever_unavailable() -> None:
    for fault in Fault:
        kv = FaultyKV(MemoryKV(), always(fault))
        with pytest.raises(UnavailableError):
            kv.get("p", b"k")
        with pytest.raises(UnavailableError):
            kv.scan("p")


def test_a_wrapper_offers_guards_just_if_its_store_does() -> None:
    class Unguarded(MemoryKV):
        guards = False

    assert CountingKV(MemoryKV()).put_guarded("p", b"k", b"", guard=Guard("p", b"x", b"")) is Guarded.REFUSED
    assert not CountingKV(FaultyKV(Unguarded(), never)).guards
    assert MemoryKV.guards


def test_a_seed_decides_and_about_as_often_as_asked() -> None:
    def draw(seed: int) -> list[Fault | None]:
        decide = at_random(seed, 0.1)
        return [decide(Call("put", "x")) for _ in range(3000)]

    assert draw(1) == draw(1) != draw(2)
    assert 200 < sum(fault is not None for fault in draw(1)) < 400
    assert {*draw(1)} == {None, *Fault}
    assert not any(map(at_random(3, 0.0), [Call("put", "x")] * 100))


def test_each_call_gives_up_the_turn_first() -> None:
    turns: list[Call] = []
    kv = FaultyKV(MemoryKV(), lambda _: Fault.REFUSED, turns.append)
    with pytest.raises(UnavailableError):
        kv.put("p", b"k", b"v")
    assert turns == [Call("put", "p", b"k")]
    turns.clear()
    inner = MemoryBlobs()
    blobs = FaultyBlobs(inner, never, turns.append)
    blobs.put("a", b"")
    assert names(blobs) == ["a"]
    assert [call.method for call in turns] == ["put", "list", "list"]
