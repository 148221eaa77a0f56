"""The suite that defines the key-value port. A backend passes it, or is none:

    class TestMyKV(GuardedKVSuite):
        @pytest.fixture
        def connect(self, tmp_path: Path) -> Connect:
            return lambda: MyKV(tmp_path)

Partitions have fresh names, so the store behind `connect` need not be empty, and may be shared.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from esker.errors import InvalidError
from esker.stores.kv import (
    KEY_BYTES_MAX,
    PARTITION_CHARS_MAX,
    SCAN_LIMIT_MAX,
    VALUE_BYTES_MAX,
    Guard,
    Guarded,
    KVStore,
    Put,
    Version,
    items,
)
from esker.world import REAL

Connect = Callable[[], KVStore]
"""Opens the same store once more, as another process would. Memory may give the one instance again."""

KEYS: Final = [b"\0", b"\0\0", b"\0\xff", b"\n", b"A", b"a", b"a\0", b"a\0b", b"ab", "é".encode(), b"\x7f", b"\x80"]
KEYS_UNSORTED: Final = [b"\xff\xff", b"\xff", b"\xfe\xff", *KEYS[::-1], b"zz", b"z"]
THREADS: Final = 8


def together(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run the jobs at once, each in a thread; their results in order. The first exception passes through."""
    results: dict[int, Any] = {}
    errors: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(index: int, job: Callable[[], Any]) -> None:
        try:
            start.wait()
            results[index] = job()
        except BaseException as error:  # noqa: BLE001 - raised again, in the thread of the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index, job), daemon=True) for index, job in enumerate(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(jobs))]


def in_forked_child(action: Callable[[], object]) -> str:
    """The name of what `action` raises in a forked child, or nothing."""
    readable, writable = os.pipe()
    if (child := os.fork()) == 0:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            os.write(writable, type(error).__name__.encode())
        finally:
            os._exit(0)  # without clean-up: all there is to clean up is the parent's
    os.close(writable)
    with open(readable, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


class KVSuite:
    """What every backend promises."""

    examples: ClassVar[int] = 50
    """Sequences that the property test tries. Fewer for a slow store."""

    @pytest.fixture
    def connect(self) -> Connect:
        raise NotImplementedError("a backend's test class says how to open it")

    @pytest.fixture
    def kv(self, connect: Connect) -> Iterator[KVStore]:
        store = connect()
        yield store
        store.close()

    @pytest.fixture
    def partition(self) -> str:
        return fresh_partition()

    def test_what_was_put_is_read_and_what_was_not_is_none(self, kv: KVStore, partition: str) -> None:
        assert kv.get(partition, b"k") is None
        kv.put(partition, b"k", b"one")
        kv.put(partition, b"k", b"two")
        kv.put(partition, b"empty", b"")
        assert value(kv, partition, b"k") == b"two"
        assert value(kv, partition, b"empty") == b""
        assert kv.get(partition + "x", b"k") is None
        assert kv.get(partition, b"kk") is None

    def test_deleting_is_idempotent(self, kv: KVStore, partition: str) -> None:
        kv.put(partition, b"k", b"v")
        kv.delete(partition, b"k")
        kv.delete(partition, b"k")
        assert kv.get(partition, b"k") is None
        assert kv.scan(partition) == []

    def test_put_if_absent_stores_once(self, kv: KVStore, partition: str) -> None:
        assert kv.put_if(partition, b"k", b"one", None)
        assert not kv.put_if(partition, b"k", b"two", None)
        assert value(kv, partition, b"k") == b"one"

    def test_put_if_stores_at_the_expected_version_only(self, kv: KVStore, partition: str) -> None:
        kv.put(partition, b"k", b"one")
        first = version(kv, partition, b"k")
        assert kv.put_if(partition, b"k", b"two", first)
        assert not kv.put_if(partition, b"k", b"three", first)
        assert value(kv, partition, b"k") == b"two"
        assert not kv.put_if(partition, b"absent", b"v", first)
        assert kv.get(partition, b"absent") is None

    def test_every_write_has_a_version_of_its_own(self, kv: KVStore, partition: str) -> None:
        seen = []
        for write in range(3):
            kv.put(partition, b"k", b"same")
            seen.append(version(kv, partition, b"k"))
            assert kv.put_if(partition, b"k", b"same", seen[-1])
            seen.append(version(kv, partition, b"k"))
            kv.put_many(partition, [(b"k", b"same")])
            seen.append(version(kv, partition, b"k"))
            if write:
                kv.delete(partition, b"k")
        assert len(set(seen)) == len(seen)

    def test_reading_leaves_a_version_as_it_is(self, kv: KVStore, partition: str) -> None:
        kv.put(partition, b"k", b"v")
        [item] = kv.scan(partition)
        assert item.record == kv.get(partition, b"k") == kv.get(partition, b"k")

    def test_an_old_version_stays_old_when_the_old_value_is_back(self, kv: KVStore, partition: str) -> None:
        kv.put(partition, b"k", b"a")
        first = version(kv, partition, b"k")
        kv.put(partition, b"k", b"b")
        kv.put(partition, b"k", b"a")
        assert not kv.put_if(partition, b"k", b"c", first)
        assert not kv.delete_if(partition, b"k", first)
        assert value(kv, partition, b"k") == b"a"

    def test_an_old_version_stays_old_when_the_record_is_made_again(self, kv: KVStore, partition: str) -> None:
        assert kv.put_if(partition, b"k", b"a", None)
        first = version(kv, partition, b"k")
        kv.delete(partition, b"k")
        assert not kv.put_if(partition, b"k", b"b", first)
        assert not kv.delete_if(partition, b"k", first)
        assert kv.put_if(partition, b"k", b"a", None)
        assert not kv.put_if(partition, b"k", b"b", first)
        assert not kv.delete_if(partition, b"k", first)
        assert value(kv, partition, b"k") == b"a"

    def test_delete_if_deletes_at_the_expected_version_only(self, kv: KVStore, partition: str) -> None:
        kv.put(partition, b"k", b"one")
        first = version(kv, partition, b"k")
        kv.put(partition, b"k", b"two")
        assert not kv.delete_if(partition, b"k", first)
        assert kv.delete_if(partition, b"k", version(kv, partition, b"k"))
        assert kv.get(partition, b"k") is None
        assert not kv.delete_if(partition, b"k", first)

    def test_keys_are_ordered_as_bytes(self, kv: KVStore, partition: str) -> None:
        kv.put_many(partition, [(key, b"v" + key) for key in KEYS_UNSORTED])
        kv.put(partition + "/other", b"m", b"not here")
        found = kv.scan(partition)
        assert [item.key for item in found] == sorted(KEYS_UNSORTED)
        assert [item.record.value for item in found] == [b"v" + key for key in sorted(KEYS_UNSORTED)]

    def test_a_scan_begins_at_its_start_and_ends_at_its_limit(self, kv: KVStore, partition: str) -> None:
        ordered = sorted(KEYS_UNSORTED)
        kv.put_many(partition, [(key, b"") for key in ordered])
        for start in [b"", *ordered, b"\0\0\0", b"b", b"\xff\xff\xff"]:
            after = [key for key in ordered if key >= start]
            assert [item.key for item in kv.scan(partition, start, 3)] == after[:3]
        assert len(kv.scan(partition, limit=len(ordered))) == len(ordered)
        assert len(kv.scan(partition, limit=SCAN_LIMIT_MAX)) == len(ordered)
        assert [item.key for item in items(kv, partition, page=3)] == ordered
        assert kv.scan(partition + "/none") == []

    def test_the_longest_keys_come_back_and_pages_go_on_behind_them(self, kv: KVStore) -> None:
        partition = fresh_partition().ljust(PARTITION_CHARS_MAX, "~")
        keys = [byte * KEY_BYTES_MAX for byte in (b"\0", b"a", b"\xff")]
        keys += [b"a" * (KEY_BYTES_MAX - 1), b"a" * (KEY_BYTES_MAX - 1) + b"b"]
        for key in keys:
            assert kv.put_if(partition, key, b"v", None)
        assert [item.key for item in items(kv, partition, page=1)] == sorted(keys)

    def test_the_largest_records_come_back_also_in_batches_and_scans(self, kv: KVStore) -> None:
        partition = fresh_partition().ljust(PARTITION_CHARS_MAX, "~")
        large = bytes(range(256)) * (VALUE_BYTES_MAX // 256) + b"x" * (VALUE_BYTES_MAX % 256)
        keys = [b"%d" % number + b"k" * (KEY_BYTES_MAX - 1) for number in range(6)]
        kv.put(partition, keys[0], large)
        assert value(kv, partition, keys[0]) == large
        kv.put_many(partition, [(key, large) for key in keys[1:]])
        assert kv.put_if(partition, keys[5], large[::-1], version(kv, partition, keys[5]))
        found = kv.scan(partition)
        assert [item.key for item in found] == keys
        assert [item.record.value for item in found] == [large] * 5 + [large[::-1]]

    def test_batches_put_and_delete_any_number(self, kv: KVStore, partition: str) -> None:
        keys = [b"%04d" % number for number in range(1203)]
        kv.put_many(partition, ((key, b"v" + key) for key in keys))
        assert [(item.key, item.record.value) for item in kv.scan(partition, limit=2000)] == [
            (key, b"v" + key) for key in keys
        ]
        kv.delete_many(partition, [*keys[1:], *keys[1:3], b"absent"])
        assert [item.key for item in kv.scan(partition)] == keys[:1]
        kv.put_many(partition, [])
        kv.delete_many(partition, [])

    def test_of_two_items_of_a_batch_with_one_key_the_later_wins(self, kv: KVStore, partition: str) -> None:
        kv.put_many(partition, [(b"k", b"one"), (b"l", b"x"), (b"k", b"two")])
        assert value(kv, partition, b"k") == b"two"

    def test_a_write_changes_no_other_record(self, kv: KVStore, partition: str) -> None:
        places = [(partition + name, key) for name in ("", "/a", "a") for key in (b"k", b"ka", b"k\0")]
        for number, (name, key) in enumerate(places):
            kv.put(name, key, b"%d" % number)
        kv.delete(partition, b"k")
        assert kv.delete_if(partition + "/a", b"ka", version(kv, partition + "/a", b"ka"))
        assert kv.put_if(partition + "a", b"k\0", b"new", version(kv, partition + "a", b"k\0"))
        found = {place: kv.get(*place) for place in places}
        assert {place: record and record.value for place, record in found.items()} == {
            **{place: b"%d" % number for number, place in enumerate(places)},
            (partition, b"k"): None,
            (partition + "/a", b"ka"): None,
            (partition + "a", b"k\0"): b"new",
        }

    @pytest.mark.parametrize("name", ["", "ü", "a\nb", "a\0b", "a" * (PARTITION_CHARS_MAX + 1)])
    def test_a_partition_needs_a_proper_name(self, kv: KVStore, name: str) -> None:
        for call in (lambda: kv.get(name, b"k"), lambda: kv.scan(name), lambda: kv.put(name, b"k", b"v")):
            with pytest.raises(InvalidError):
                call()

    @pytest.mark.parametrize("key", [b"", b"k" * (KEY_BYTES_MAX + 1)])
    def test_a_key_out_of_limits_is_refused(self, kv: KVStore, partition: str, key: bytes) -> None:
        calls: list[Callable[[], object]] = [
            lambda: kv.get(partition, key),
            lambda: kv.put(partition, key, b"v"),
            lambda: kv.put_if(partition, key, b"v", None),
            lambda: kv.delete(partition, key),
            lambda: kv.delete_if(partition, key, Version(b"v")),
            lambda: kv.put_many(partition, [(b"fine", b"v"), (key, b"v")]),
            lambda: kv.delete_many(partition, [key]),
        ]
        for call in calls:
            with pytest.raises(InvalidError):
                call()
        assert kv.scan(partition) == []

    def test_a_value_or_a_scan_over_the_limit_is_refused(self, kv: KVStore, partition: str) -> None:
        large = b"x" * (VALUE_BYTES_MAX + 1)
        calls: list[Callable[[], object]] = [
            lambda: kv.put(partition, b"k", large),
            lambda: kv.put_if(partition, b"k", large, None),
            lambda: kv.put_many(partition, [(b"k", large)]),
            lambda: kv.scan(partition, limit=0),
            lambda: kv.scan(partition, limit=SCAN_LIMIT_MAX + 1),
        ]
        for call in calls:
            with pytest.raises(InvalidError):
                call()
        assert kv.scan(partition) == []

    def test_reads_and_writes_are_counted_by_kind_of_partition(self, kv: KVStore) -> None:
        kv.put("counted/" + REAL.token(8), b"k", b"v")
        kv.put_many("counted/" + REAL.token(8), [(b"%d" % number, b"v") for number in range(5)])
        partition = "scanned/" + REAL.token(8)
        assert kv.put_if(partition, b"k", b"v", None)
        assert not kv.put_if(partition, b"k", b"v", None)
        kv.scan(partition)
        kv.scan(partition + "/none")
        kv.get(partition, b"k")
        assert kv.counts.writes == {"counted": 6, "scanned": 2}
        assert kv.counts.reads == {"scanned": 3}

    def test_an_acknowledged_write_is_seen_by_all_who_have_the_store_open(
        self, kv: KVStore, connect: Connect, partition: str
    ) -> None:
        other = connect()
        for number in range(20):
            kv.put(partition, b"k", b"%d" % number)
            assert value(other, partition, b"k") == b"%d" % number
            assert other.put_if(partition, b"k", b"back %d" % number, version(kv, partition, b"k"))
            assert value(kv, partition, b"k") == b"back %d" % number
            assert [item.record.value for item in kv.scan(partition)] == [b"back %d" % number]
        other.close()

    def test_acknowledged_writes_outlive_the_instance(self, connect: Connect, partition: str) -> None:
        first = connect()
        first.put(partition, b"put", b"1")
        first.put_many(partition, [(b"batch", b"2"), (b"gone", b"3")])
        assert first.put_if(partition, b"swapped", b"4", None)
        first.delete(partition, b"gone")
        old = version(first, partition, b"swapped")
        first.close()
        second = connect()
        assert [(item.key, item.record.value) for item in second.scan(partition)] == [
            (b"batch", b"2"),
            (b"put", b"1"),
            (b"swapped", b"4"),
        ]
        assert second.put_if(partition, b"swapped", b"5", old)
        second.close()

    def test_of_racers_for_an_absent_record_exactly_one_wins(
        self, kv: KVStore, connect: Connect, partition: str
    ) -> None:
        other = connect()
        for number in range(5):
            key = b"%d" % number

            def race(racer: int, key: bytes = key) -> bool:
                return (kv, other)[racer % 2].put_if(partition, key, b"%d" % racer, None)

            won = together([partial(race, racer) for racer in range(THREADS)])
            assert won.count(True) == 1
            assert value(kv, partition, key) == b"%d" % won.index(True)
        other.close()

    def test_increments_by_compare_and_swap_lose_no_update(self, kv: KVStore, connect: Connect, partition: str) -> None:
        other = connect()
        kv.put(partition, b"n", b"0")

        def count(store: KVStore) -> None:
            for _ in range(10):
                while True:
                    record = store.get(partition, b"n")
                    assert record is not None
                    if store.put_if(partition, b"n", b"%d" % (int(record.value) + 1), record.version):
                        break

        together([partial(count, store) for store in [kv, other] * (THREADS // 2)])
        assert value(kv, partition, b"n") == b"%d" % (THREADS * 10)
        other.close()

    def test_writers_of_different_records_all_get_what_they_were_told(self, kv: KVStore, partition: str) -> None:
        def write(writer: int) -> None:
            for number in range(10):
                key = b"%d" % writer
                if number % 3 == 0:
                    kv.put(partition, key, b"%d" % number)
                elif number % 3 == 1:
                    assert kv.put_if(partition, key, b"%d" % number, version(kv, partition, key))
                else:
                    assert not kv.put_if(partition, key, b"never", None)
                    kv.delete(partition, key)
                    assert kv.get(partition, key) is None

        together([partial(write, writer) for writer in range(THREADS)])
        assert {item.key: item.record.value for item in kv.scan(partition)} == {
            b"%d" % writer: b"9" for writer in range(THREADS)
        }

    def test_any_sequence_of_calls_does_as_a_dict_would(self, kv: KVStore) -> None:
        keys = st.sampled_from(KEYS)
        values = st.binary(max_size=4)
        calls = st.one_of(
            st.tuples(st.just("put"), keys, values),
            st.tuples(st.just("put_if"), keys, values, st.sampled_from(["current", "absent", "old"])),
            st.tuples(st.just("delete"), keys),
            st.tuples(st.just("delete_if"), keys, st.sampled_from(["current", "old"])),
            st.tuples(st.just("put_many"), st.lists(st.tuples(keys, values), max_size=4)),
            st.tuples(st.just("delete_many"), st.lists(keys, max_size=4)),
            st.tuples(st.just("scan"), st.binary(max_size=2), st.integers(1, 4)),
        )

        @settings(max_examples=self.examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(st.lists(calls, max_size=20))
        def check(sequence: list[tuple[object, ...]]) -> None:
            _Model(kv).follow(sequence)

        check()


class _Model:
    """A dict beside a partition: each call is made on both, and both must answer the same."""

    def __init__(self, kv: KVStore) -> None:
        self.kv = kv
        self.partition = fresh_partition()
        self.values: dict[bytes, bytes] = {}
        self.old: list[Version] = []  # versions that were current once, of any record

    def follow(self, sequence: list[tuple[object, ...]]) -> None:
        for call, *arguments in sequence:
            getattr(self, call)(*arguments)  # type: ignore[call-overload]
            for key in {argument for argument in arguments if isinstance(argument, bytes) and argument}:
                record = self.kv.get(self.partition, key)
                assert (record and record.value) == self.values.get(key)
        assert [(item.key, item.record.value) for item in items(self.kv, self.partition)] == sorted(self.values.items())

    def put(self, key: bytes, value: bytes) -> None:
        self.kv.put(self.partition, key, value)
        self.values[key] = value

    def put_if(self, key: bytes, value: bytes, which: str) -> None:
        expected, holds = self._expected(key, which)
        assert self.kv.put_if(self.partition, key, value, expected) is holds
        if holds:
            self.values[key] = value

    def delete(self, key: bytes) -> None:
        self.kv.delete(self.partition, key)
        self.values.pop(key, None)

    def delete_if(self, key: bytes, which: str) -> None:
        expected, holds = self._expected(key, which)
        if expected is not None:
            assert self.kv.delete_if(self.partition, key, expected) is holds
            if holds:
                del self.values[key]

    def put_many(self, batch: list[tuple[bytes, bytes]]) -> None:
        self.kv.put_many(self.partition, batch)
        self.values.update(batch)

    def delete_many(self, keys: list[bytes]) -> None:
        self.kv.delete_many(self.partition, keys)
        for key in keys:
            self.values.pop(key, None)

    def scan(self, start: bytes, limit: int) -> None:
        found = self.kv.scan(self.partition, start, limit)
        expected = sorted(item for item in self.values.items() if item[0] >= start)[:limit]
        assert [(item.key, item.record.value) for item in found] == expected

    def _expected(self, key: bytes, which: str) -> tuple[Version | None, bool]:
        """A version to expect, and whether the condition holds."""
        record = self.kv.get(self.partition, key)
        current = None if record is None else record.version
        if which == "absent":
            return None, current is None
        old = [known for known in self.old if known != current]
        if current is not None:
            self.old.append(current)
        if which == "old" and old:
            return old[-1], False
        return current, True


class GuardedKVSuite(KVSuite):
    """What backends promise that have `guards`."""

    def test_guards_are_offered(self, kv: KVStore) -> None:
        assert kv.guards

    def test_a_guarded_put_stores_while_its_guard_holds(self, kv: KVStore, partition: str) -> None:
        guard = Guard(partition + "/guards", b"g", b"open")
        assert kv.put_guarded(partition, b"k", b"v", guard=guard) is Guarded.REFUSED
        kv.put(guard.partition, guard.key, b"sealed")
        assert kv.put_guarded(partition, b"k", b"v", guard=guard) is Guarded.REFUSED
        kv.put(guard.partition, guard.key, b"open ")
        assert kv.put_guarded(partition, b"k", b"v", guard=guard) is Guarded.REFUSED
        assert kv.get(partition, b"k") is None
        kv.put(guard.partition, guard.key, b"open")
        before = kv.get(guard.partition, guard.key)
        assert kv.put_guarded(partition, b"k", b"v", guard=guard) is Guarded.STORED
        assert kv.put_guarded(partition, b"k", b"w", guard=guard) is Guarded.STORED
        assert value(kv, partition, b"k") == b"w"
        assert kv.get(guard.partition, guard.key) == before, "a guard is looked at, not written"
        kv.delete(guard.partition, guard.key)
        assert kv.put_guarded(partition, b"k", b"x", guard=guard) is Guarded.REFUSED
        assert value(kv, partition, b"k") == b"w"

    def test_an_empty_guard_is_not_an_absent_one(self, kv: KVStore, partition: str) -> None:
        guard = Guard(partition + "/guards", b"g", b"")
        assert kv.put_guarded(partition, b"k", b"v", guard=guard) is Guarded.REFUSED
        kv.put(guard.partition, guard.key, b"")
        assert kv.put_guarded(partition, b"k", b"v", guard=guard) is Guarded.STORED

    def test_a_guarded_put_tells_a_broken_guard_from_a_taken_record(self, kv: KVStore, partition: str) -> None:
        guard = Guard(partition + "/guards", b"g", b"open")
        kv.put(guard.partition, guard.key, b"open")
        assert kv.put_guarded(partition, b"k", b"1", guard=guard, expected=None) is Guarded.STORED
        assert kv.put_guarded(partition, b"k", b"2", guard=guard, expected=None) is Guarded.TAKEN
        first = version(kv, partition, b"k")
        assert kv.put_guarded(partition, b"k", b"2", guard=guard, expected=first) is Guarded.STORED
        assert kv.put_guarded(partition, b"k", b"3", guard=guard, expected=first) is Guarded.TAKEN
        assert kv.put_guarded(partition, b"absent", b"3", guard=guard, expected=first) is Guarded.TAKEN
        kv.put(guard.partition, guard.key, b"sealed")
        current = version(kv, partition, b"k")
        for expected in (None, first, current):
            refused = kv.put_guarded(partition, b"k", b"4", guard=guard, expected=expected)
            assert refused is Guarded.REFUSED, "the guard is looked at first"
        assert [(item.key, item.record.value) for item in kv.scan(partition)] == [(b"k", b"2")]

    def test_also_is_written_exactly_when_the_swap_is(self, kv: KVStore, partition: str) -> None:
        also = [Put(partition, b"a", b"1"), Put(partition + "/other", b"\0", b""), Put(partition, b"b", b"2")]
        assert kv.put_if(partition, b"k", b"v", None, also)
        assert [(item.key, item.record.value) for item in kv.scan(partition)] == [
            (b"a", b"1"),
            (b"b", b"2"),
            (b"k", b"v"),
        ]
        assert value(kv, partition + "/other", b"\0") == b""
        old = version(kv, partition, b"k")
        assert not kv.put_if(partition, b"k", b"w", None, [Put(partition, b"a", b"never"), Put(partition, b"c", b"")])
        assert kv.put_if(partition, b"k", b"w", old, [Put(partition, b"a", b"3")])
        assert not kv.put_if(partition, b"k", b"x", old, [Put(partition, b"a", b"never"), Put(partition, b"c", b"")])
        assert [(item.key, item.record.value) for item in kv.scan(partition)] == [
            (b"a", b"3"),
            (b"b", b"2"),
            (b"k", b"w"),
        ]

    def test_a_record_is_written_once_by_one_call(self, kv: KVStore, partition: str) -> None:
        for also in ([Put(partition, b"k", b"w")], [Put(partition, b"a", b"1"), Put(partition, b"a", b"2")]):
            with pytest.raises(InvalidError):
                kv.put_if(partition, b"k", b"v", None, also)
        assert kv.scan(partition) == []

    def test_swaps_that_write_each_others_records_all_end(self, kv: KVStore, partition: str) -> None:
        keys = [b"%d" % number for number in range(4)]

        def swap(racer: int) -> None:
            for turn in range(10):
                mine, *others = keys[racer % 4 :] + keys[: racer % 4]
                if racer % 2:
                    others.reverse()
                record = kv.get(partition, mine)
                also = [Put(partition, other, b"%d %d" % (racer, turn)) for other in others]
                kv.put_if(partition, mine, b"%d %d" % (racer, turn), record and record.version, also)
                found = kv.scan(partition)
                assert len({item.record.value for item in found}) == 1, "all four are written at once"

        together([partial(swap, racer) for racer in range(THREADS)])

    def test_after_a_seal_no_guarded_put_lands_and_none_that_landed_is_lost(
        self, kv: KVStore, connect: Connect, partition: str
    ) -> None:
        """Writers put under the guard's value of the moment; a sealer changes it, again and again. What lies under an
        old value when the change is acknowledged is what was acknowledged under it, for ever.
        """
        other = connect()
        guards, rounds = partition + "/guards", 15
        kv.put(guards, b"g", b"0")
        stored: list[set[tuple[bytes, bytes]]] = [set() for _ in range(rounds + 1)]
        frozen: list[set[tuple[bytes, bytes]]] = []
        refused = []
        wrote = threading.Semaphore(0)

        def contents(token: int) -> set[tuple[bytes, bytes]]:
            return {(item.key, item.record.value) for item in items(other, f"{partition}/{token}")}

        def write(writer: int) -> None:
            store, number = (kv, other)[writer % 2], 0
            while (token := int(value(store, guards, b"g"))) < rounds:
                key = b"%d %d" % (writer, number)
                guard = Guard(guards, b"g", b"%d" % token)
                if store.put_guarded(f"{partition}/{token}", key, b"v", guard=guard) is Guarded.STORED:
                    stored[token].add((key, b"v"))
                    wrote.release()
                else:
                    refused.append(key)
                number += 1

        def seal() -> None:
            for token in range(rounds):
                for _ in range(5):  # writers are in full swing
                    wrote.acquire(timeout=5)
                assert kv.put_if(guards, b"g", b"%d" % (token + 1), version(kv, guards, b"g"))
                frozen.append(contents(token))

        together([seal, *(partial(write, writer) for writer in range(THREADS - 1))])
        for token in range(rounds):
            assert frozen[token] == stored[token] == contents(token)
        assert any(frozen)
        other.close()


class UnguardedKVSuite(KVSuite):
    """What backends promise that have none: to say so."""

    def test_guards_are_refused(self, kv: KVStore, partition: str) -> None:
        assert not kv.guards
        guard = Guard(partition, b"g", b"open")
        kv.put(*guard)
        with pytest.raises(InvalidError):
            kv.put_guarded(partition, b"k", b"v", guard=guard)
        with pytest.raises(InvalidError):
            kv.put_if(partition, b"k", b"v", None, [Put(partition, b"l", b"v")])
        assert [item.key for item in kv.scan(partition)] == [b"g"]


def fresh_partition() -> str:
    return "suite/" + REAL.token(8)


def value(kv: KVStore, partition: str, key: bytes) -> bytes:
    """Of a record that must be there."""
    record = kv.get(partition, key)
    assert record is not None
    return record.value


def version(kv: KVStore, partition: str, key: bytes) -> Version:
    """Of a record that must be there."""
    record = kv.get(partition, key)
    assert record is not None
    return record.version
