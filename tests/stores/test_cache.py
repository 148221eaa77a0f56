"""Caches: each thing loaded once, no more kept than allowed, nothing lost when a cache is."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from esker.errors import Kind, UnavailableError
from esker.stores.blob import BlobStore
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.cache import DiskCache, MemoryCache
from esker.testing.blob_suite import BlobSuite
from esker.testing.faults import CountingBlobs
from esker.testing.kv_suite import together


def value(of: str, size: int = 1) -> Callable[[], tuple[str, int]]:
    return lambda: (of, size)


def never() -> tuple[str, int]:
    raise AssertionError("this should have been cached")


class Slow:
    """A load that waits until it may end, and counts."""

    def __init__(self, outcome: str | BaseException) -> None:
        self.outcome = outcome
        self.calls = 0
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self) -> tuple[str, int]:
        self.calls += 1
        self.begun.set()
        assert self.may_end.wait(10)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome, 1


def outcome_of(action: Callable[[], str]) -> str | BaseException:
    try:
        return action()
    except BaseException as error:  # noqa: BLE001 - it is looked at
        return error


def run_while_loading(cache: MemoryCache[str, str], slow: Slow, readers: int = 4) -> list[str | BaseException]:
    """What readers get who come while another is loading; the first is the loader."""
    results: list[str | BaseException] = []
    threads = [
        threading.Thread(target=lambda: results.append(outcome_of(lambda: cache.get_or_load("key", slow))))
        for _ in range(readers)
    ]
    threads[0].start()
    assert slow.begun.wait(10)
    for thread in threads[1:]:
        thread.start()
    threads[-1].join(0.05)  # they are at the door by now
    slow.may_end.set()
    for thread in threads:
        thread.join()
    return results


def test_a_value_is_loaded_once() -> None:
    cache = MemoryCache[str, str](10)
    assert cache.get_or_load("key", value("loaded")) == "loaded"
    assert cache.get_or_load("key", never) == "loaded"
    assert (cache.hits, cache.misses, cache.bytes_used, len(cache)) == (1, 1, 1, 1)


def test_the_least_recently_used_goes_first() -> None:
    cache = MemoryCache[str, str](10)
    for key in "abc":
        cache.get_or_load(key, value(key, 3))
    cache.get_or_load("a", never)
    cache.get_or_load("d", value("d", 4))
    assert cache.bytes_used == 10
    for key in "acd":
        assert cache.get_or_load(key, never) == key
    assert cache.get_or_load("b", value("again", 1)) == "again"
    assert cache.bytes_used <= 10


def test_what_is_larger_than_the_cache_passes_through() -> None:
    cache = MemoryCache[str, str](10)
    cache.get_or_load("small", value("small", 10))
    assert cache.get_or_load("large", value("large", 11)) == "large"
    assert cache.get_or_load("large", value("anew", 11)) == "anew"
    assert cache.get_or_load("small", never) == "small"


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 7), st.booleans())))
def test_never_more_than_the_limit_and_never_a_wrong_value(steps: list[tuple[int, int, bool]]) -> None:
    cache = MemoryCache[int, int](20)
    for key, size, drop in steps:
        if drop:
            cache.drop(key)
        assert cache.get_or_load(key, lambda key=key, size=size: (key, size)) == key  # type: ignore[misc]
        assert 0 < cache.bytes_used <= 20
    cache.clear()
    assert cache.bytes_used == len(cache) == 0


@pytest.mark.parametrize("bytes_max", [10, 0])
def test_readers_at_the_same_time_load_once(bytes_max: int) -> None:
    slow = Slow("loaded")
    assert run_while_loading(MemoryCache(bytes_max), slow) == ["loaded"] * 4
    assert slow.calls == 1


def test_a_failing_load_fails_all_who_waited_and_is_not_remembered() -> None:
    cache = MemoryCache[str, str](10)
    error = UnavailableError(Kind.STORE_UNAVAILABLE, "away")
    slow = Slow(error)
    assert run_while_loading(cache, slow) == [error] * 4
    assert slow.calls == 1
    assert cache.get_or_load("key", value("back")) == "back"


def test_an_interrupt_hits_only_the_thread_it_was_meant_for() -> None:
    cache = MemoryCache[str, str](10)
    slow = Slow(KeyboardInterrupt())
    loader = threading.Thread(target=lambda: outcome_of(lambda: cache.get_or_load("key", slow)))
    loader.start()
    assert slow.begun.wait(10)
    results: list[str] = []
    waiter = threading.Thread(target=lambda: results.append(cache.get_or_load("key", value("mine"))))
    waiter.start()
    waiter.join(0.05)
    slow.may_end.set()
    loader.join()
    waiter.join()
    assert results == ["mine"]


def test_what_is_dropped_while_it_is_loaded_is_not_cached() -> None:
    cache = MemoryCache[str, str](10)
    slow = Slow("old")
    results: list[str] = []
    loader = threading.Thread(target=lambda: results.append(cache.get_or_load("key", slow)))
    loader.start()
    assert slow.begun.wait(10)
    cache.drop("key")
    assert cache.get_or_load("key", value("new")) == "new"
    slow.may_end.set()
    loader.join()
    assert results == ["old"]
    assert cache.get_or_load("key", never) == "new"
    assert cache.bytes_used == 1


def test_a_load_may_load_other_keys_and_does_not_wait_for_itself() -> None:
    cache = MemoryCache[str, str](10)

    def outer() -> tuple[str, int]:
        return cache.get_or_load("inner", value("inner")) + cache.get_or_load("outer", value("itself")), 1

    assert cache.get_or_load("outer", outer) == "inneritself"


def test_threads_agree() -> None:
    cache = MemoryCache[int, int](30)

    def work(seed: int) -> None:
        for step in range(3000):
            key = (step * (seed + 7)) % 40
            assert cache.get_or_load(key, lambda key=key: (key, 1 + key % 5)) == key  # type: ignore[misc]
            if step % 100 == seed:
                cache.drop(key)

    together([partial(work, seed) for seed in range(4)])
    assert cache.bytes_used == sum(size for _, size in cache._entries.values()) <= 30
    assert not cache._flights


class TestDiskCache(BlobSuite):
    stream_memory_bytes = None

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        return DiskCache(MemoryBlobs(), tmp_path / "cache", 1_000_000)


class TestDiskCacheWithoutADirectory(BlobSuite):
    """A file is where the directory should be: nothing can be kept, and nothing else is different."""

    examples = 10
    stream_memory_bytes = None

    @pytest.fixture
    def store(self, tmp_path: Path) -> BlobStore:
        (tmp_path / "cache").write_bytes(b"")
        return DiskCache(MemoryBlobs(), tmp_path / "cache", 1_000_000)


@pytest.fixture
def remote() -> CountingBlobs:
    remote = CountingBlobs(MemoryBlobs())
    for index in range(40):
        remote.put(f"blob{index}", bytes([index]) * 1000)
    remote.put("large", bytes(50_000))
    remote.reset()
    return remote


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_a_blob_is_fetched_once_even_by_the_next_process(remote: CountingBlobs, directory: Path) -> None:
    for _ in range(2):
        cache = DiskCache(remote, directory, 100_000)
        for _ in range(3):
            assert cache.get("blob7") == b"\7" * 1000
        assert cache.get_range("blob7", 990, 100) == b"\7" * 10
        assert cache.get_range("blob7", 2000, 1) == b""
    assert remote.calls == {"get": 1}


def test_a_range_of_what_is_not_kept_is_fetched_alone(remote: CountingBlobs, directory: Path) -> None:
    cache = DiskCache(remote, directory, 100_000)
    assert cache.get_range("large", 5, 10) == bytes(10)
    assert (remote.calls, remote.bytes_read) == ({"get_range": 1}, 10)


def test_missing_is_not_remembered(remote: CountingBlobs, directory: Path) -> None:
    cache = DiskCache(remote, directory, 100_000)
    assert cache.get("new") is None
    remote.put("new", b"x")
    assert cache.get("new") == b"x"


def test_stores_that_share_a_directory_do_not_mix(directory: Path) -> None:
    for url in ("s3://a", "s3://b"):
        store = MemoryBlobs()
        store.url = url
        store.put("name", url.encode())
        assert DiskCache(store, directory, 100_000).get("name") == url.encode()


def test_the_least_recently_read_goes_first(remote: CountingBlobs, directory: Path) -> None:
    cache = DiskCache(remote, directory, 16_000)
    for index in range(14):
        cache.get(f"blob{index}")
        for path in directory.iterdir():  # a clock that is finer than the file system's
            os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 10**9))
    cache.get("blob0")
    for index in range(20, 23):
        cache.get(f"blob{index}")
    remote.reset()
    for name in ("blob0", "blob13", "blob20", "blob22"):
        cache.get(name)
    assert remote.calls == {}
    cache.get("blob1")
    assert remote.calls == {"get": 1}
    assert size_of(directory) <= 16_000


def test_the_directory_stays_within_its_limit(remote: CountingBlobs, directory: Path) -> None:
    caches = [DiskCache(remote, directory, 16_000) for _ in range(2)]  # as two processes would
    for round_ in range(3):
        for index in range(40):
            caches[(index + round_) % 2].get(f"blob{index}")
            assert size_of(directory) <= 16_000 + 2_000
    assert caches[0].get("large") == bytes(50_000)
    assert size_of(directory) <= 18_000


def test_files_of_others_are_left_alone(remote: CountingBlobs, directory: Path) -> None:
    directory.mkdir()
    (directory / "thesis.tex").write_bytes(bytes(1_000_000))
    cache = DiskCache(remote, directory, 4_000)
    for index in range(40):
        cache.get(f"blob{index}")
    assert (directory / "thesis.tex").stat().st_size == 1_000_000


def test_a_reader_that_found_damage_reads_again(remote: CountingBlobs, directory: Path) -> None:
    cache = DiskCache(remote, directory, 100_000)
    cache.get("blob7")
    (file,) = directory.iterdir()
    file.write_bytes(b"damage")
    assert cache.get("blob7") == b"damage"
    assert cache.drop_cached("blob7")
    assert cache.drop_cached("blob7"), "another reader of the same damage must read again too"
    assert cache.get("blob7") == b"\7" * 1000
    assert cache.get("blob7") == b"\7" * 1000
    assert remote.calls["get"] == 2


def test_whatever_happens_to_the_files_the_store_has_them(remote: CountingBlobs, directory: Path) -> None:
    def removed(file: Path) -> None:
        file.unlink()

    def turned_into_a_directory(file: Path) -> None:
        file.unlink()
        file.mkdir()

    def turned_into_a_link(file: Path) -> None:
        file.unlink()
        file.symlink_to("/etc/passwd")

    def turned_into_a_fifo(file: Path) -> None:
        file.unlink()
        os.mkfifo(file)

    def gone_with_its_directory(file: Path) -> None:
        file.unlink()
        file.parent.rmdir()

    for index, happens in enumerate(
        [removed, turned_into_a_directory, turned_into_a_link, turned_into_a_fifo, gone_with_its_directory]
    ):
        cache = DiskCache(remote, directory / happens.__name__, 100_000)
        cache.get(f"blob{index}")
        (file,) = (directory / happens.__name__).iterdir()
        happens(file)
        for _ in range(2):
            assert cache.get(f"blob{index}") == bytes([index]) * 1000, happens.__name__


def test_a_blob_that_many_miss_at_once_is_fetched_once(directory: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()

    class Slow(MemoryBlobs):
        def get(self, name: str) -> bytes | None:
            begun.set()
            assert may_end.wait(10)
            return super().get(name)

    slow = Slow()
    slow.put("blob", b"x")
    remote = CountingBlobs(slow)
    cache = DiskCache(remote, directory, 100_000)
    readers = [threading.Thread(target=cache.get, args=("blob",)) for _ in range(4)]
    for reader in readers:
        reader.start()
    assert begun.wait(10)
    readers[-1].join(0.05)  # the others are at the door by now; one that comes later finds the file
    may_end.set()
    for reader in readers:
        reader.join()
    assert remote.calls["get"] == 1


def test_a_reader_that_looked_a_moment_too_early_does_not_fetch_again(
    remote: CountingBlobs, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saw no file; then another reader's fetch began and ended; then it goes on."""
    cache = DiskCache(remote, directory, 100_000)
    look = cache._kept
    looks = 0

    def kept(name: str, start: int = 0, length: int | None = None) -> bytes | None:
        nonlocal looks
        looks += 1
        if looks > 1:
            return look(name, start, length)
        DiskCache(remote, directory, 100_000).get(name)  # the other, from beginning to end
        return None

    monkeypatch.setattr(cache, "_kept", kept)
    assert cache.get("blob7") == b"\7" * 1000
    assert remote.calls["get"] == 1


READER = """
import sys
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.cache import DiskCache
store = MemoryBlobs()
for index in range(40):
    store.put(f"blob{index}", bytes([index]) * 1000)
cache = DiskCache(store, sys.argv[1], 16_000)
for step in range(2000):
    index = step * 7 % 40
    assert cache.get(f"blob{index}") == bytes([index]) * 1000
"""


def test_processes_share_a_directory(directory: Path) -> None:
    readers = [subprocess.Popen([sys.executable, "-c", READER, str(directory)]) for _ in range(3)]
    assert [reader.wait(60) for reader in readers] == [0, 0, 0]
    assert size_of(directory) <= 16_000 + 3 * 2_000
