"""Read-ahead: what appears on a branch that is read often is there when it is asked for."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from esker.engine import entries, layers, readahead
from esker.engine.lake import Lake
from esker.model import Repository
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from esker.testing.faults import Call, CountingBlobs, Fault, FaultyBlobs
from tests.engine.lakes import Setup, entry, kind_of, new_setup, put


class Pool(ThreadPoolExecutor):
    """Of which one can tell when it has done all there was."""

    def __init__(self) -> None:
        super().__init__(2)
        self.futures: list[Future[Any]] = []

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.futures.append(super().submit(*args, **kwargs))
        return self.futures[-1]

    def finish(self) -> None:
        for future in self.futures:
            future.exception(30)


@pytest.fixture
def pool() -> Iterator[Pool]:
    with Pool() as pool:
        yield pool


def reader_of(setup: Setup, blobs: CountingBlobs | FaultyBlobs, pool: Pool) -> Lake:
    return replace(setup.again(blobs=blobs), pool=pool)


def append(setup: Setup, number: int) -> None:
    new = changes_of(entry(f"{number}/{n}") for n in range(9))
    layers.append(setup.lake, setup.repo, "main", Changes(new))


def read(lake: Lake, repo: Repository, times: int) -> None:
    for _ in range(times):
        entries.get(lake, repo, "main", "there")


def test_new_tables_of_a_branch_that_is_read_often_are_there_when_asked_for(pool: Pool) -> None:
    setup = new_setup()
    put(setup.lake, setup.repo, "main", "there")
    blobs = CountingBlobs(setup.blobs)
    lake = reader_of(setup, blobs, pool)
    read(lake, setup.repo, 100)
    assert not pool.futures, "there is no table"
    for number in range(3):
        append(setup, number)
    read(lake, setup.repo, 1)
    pool.finish()
    assert len(pool.futures) == blobs.calls["get"] == 3
    filters = lake.kv.counts.reads["filters"]
    for number in range(3):
        entries.get(lake, setup.repo, "main", f"{number}/5")
    assert blobs.calls["get"] == 3
    assert lake.kv.counts.reads["filters"] == filters
    read(lake, setup.repo, 100)
    assert len(pool.futures) == 3, "once is enough"


def test_branches_that_are_read_now_and_then_are_left_alone(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = new_setup()
    put(setup.lake, setup.repo, "main", "there")
    append(setup, 1)
    blobs = CountingBlobs(setup.blobs)
    lake = reader_of(setup, blobs, pool)
    read(lake, setup.repo, 10)
    assert not pool.futures
    monkeypatch.setattr(readahead, "_WITHIN_S", -1.0)
    read(lake, setup.repo, 100)
    assert not pool.futures


def test_what_is_large_or_too_much_at_once_is_left_out(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = new_setup()
    put(setup.lake, setup.repo, "main", "there")
    for number in range(10):
        append(setup, number)
    monkeypatch.setattr(readahead, "_FETCHES_MAX", 0)
    read(reader_of(setup, CountingBlobs(setup.blobs), pool), setup.repo, 100)
    monkeypatch.undo()
    monkeypatch.setattr(readahead, "_BYTES_MAX", 10)
    read(reader_of(setup, CountingBlobs(setup.blobs), pool), setup.repo, 100)
    assert not pool.futures


def test_a_fetch_that_fails_fails_nobody_else(pool: Pool) -> None:
    setup = new_setup()
    put(setup.lake, setup.repo, "main", "there")
    failing = True

    def decide(call: Call) -> Fault | None:
        return Fault.REFUSED if failing and call.method == "get" else None

    lake = reader_of(setup, FaultyBlobs(setup.blobs, decide), pool)
    read(lake, setup.repo, 100)
    for number in range(40):
        append(setup, number)
        read(lake, setup.repo, 1)
        pool.finish()
    assert len(pool.futures) == 40, "failed ones make room, too"
    assert all(future.exception() for future in pool.futures)
    failing = False
    assert kind_of(lambda: entries.get(lake, setup.repo, "main", "7/3")) is None


def test_branches_are_forgotten_before_they_are_too_many(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readahead, "_BRANCHES_MAX", 2)
    setup = new_setup()
    lake = replace(setup.again(), pool=pool)
    record = setup.lake.branches(setup.repo).get("main")
    for number in range(10):
        readahead.of(lake).was_read(setup.repo, f"b-{number}", record)
        assert len(readahead.of(lake)._branches) <= 2
