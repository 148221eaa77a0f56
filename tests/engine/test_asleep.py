"""A process that sleeps for days before its last swap, while others collect what it wrote and nothing names yet."""

from collections.abc import Callable, Iterator
from contextvars import Context
from typing import Any, Final

import pytest

from esker.engine import (
    branches,
    commit,
    compaction,
    entries,
    garbage,
    layers,
    merge,
    objects,
    prepared,
    reset,
    stashes,
)
from esker.engine.lake import Lake
from esker.engine.policy import Compaction
from esker.errors import ContentionError
from esker.model import Repository
from esker.settings import DEFAULTS, Settings
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import as_changes, table_of
from esker.streams.rows import Changes
from tests.engine.lakes import Clock, Setup, entry, new_setup, put, shown

NIGHT_S: Final = garbage.GRACE_S + 1


def lived_in(settings: Settings = DEFAULTS) -> tuple[Setup, Clock]:
    """Branches that have gone their own ways, with staged tables, a compacted tree below, and a stash."""
    clock = Clock()
    setup = new_setup(MemoryKV(), MemoryBlobs(clock), settings, clock)
    lake, repo = setup.lake, setup.repo
    put(lake, repo, "main", "a", "b", "p/1")
    commit.commit(lake, repo, "main", "base")
    branches.create(lake, repo, "side", "main")
    put(lake, repo, "side", "side", "b", content=1)
    commit.commit(lake, repo, "side", "side")
    put(lake, repo, "main", "later")
    commit.commit(lake, repo, "main", "later")
    put(lake, repo, "main", "aside")
    stashes.stash(lake, repo, "main", "same-base")
    branches.create(lake, repo, "work", "main")
    put(lake, repo, "work", "aside")
    stashes.stash(lake, repo, "work", "other-base")
    put(lake, repo, "work", "moved on")
    commit.commit(lake, repo, "work", "moved on")
    put(lake, repo, "work", "compacted")
    compaction.compact(lake, repo, "work", Compaction.MAJOR)
    layers.append(lake, repo, "work", Changes(as_changes(table_of([entry("p/2"), entry("t")]))))
    return setup, clock


VERBS: Final[dict[str, Callable[[Lake, Repository], Any]]] = {
    "append": lambda lake, repo: prepared.append(lake, repo, "work", table_of([entry("new")])),
    "append if absent": lambda lake, repo: prepared.append(
        lake, repo, "work", table_of([entry("new")]), expect_absent=["new"]
    ),
    "write many": lambda lake, repo: entries.write_many(lake, repo, "work", [entry(f"n/{n}") for n in range(100)]),
    "commit": lambda lake, repo: commit.commit(lake, repo, "work", "asleep"),
    "merge": lambda lake, repo: merge.merge(lake, repo, "side", "main"),
    "revert": lambda lake, repo: merge.revert(lake, repo, "main", "main~1"),
    "minor compaction": lambda lake, repo: compaction.compact(lake, repo, "work", Compaction.MINOR, force=True),
    "major compaction": lambda lake, repo: compaction.compact(lake, repo, "work", Compaction.MAJOR, force=True),
    "reset of a prefix": lambda lake, repo: reset.reset_prefix(lake, repo, "work", "p/"),
    "stash": lambda lake, repo: stashes.stash(lake, repo, "work", "another"),
    "pop": lambda lake, repo: stashes.pop(lake, repo, "work", "other-base"),
}


def files(setup: Setup) -> set[str]:
    return {info.name for info in setup.lake.blobs(setup.repo).list()}


@pytest.mark.parametrize("verb", VERBS)
def test_it_is_told_that_it_took_too_long_and_nothing_is_damaged(verb: str) -> None:
    setup, clock = lived_in()
    repo, other, asleep = setup.repo, setup.again(), setup.again()
    real = asleep.branches(repo).update
    swept = []
    there = files(setup)

    def sleep(name: str, change: Callable[..., Any]) -> Any:
        if files(setup) - there:
            for _ in range(3):
                clock.ms += int(NIGHT_S * 1000)
                clock.passed_s += NIGHT_S
                swept.append(Context().run(garbage.collect, other, repo).deleted)  # another process
        return real(name, change)

    asleep.branches(repo).update = sleep  # type: ignore[method-assign]
    before = {ref: shown(setup.lake, repo, ref) for ref in ("main", "side", "work")}
    with pytest.raises(ContentionError):
        VERBS[verb](asleep, repo)
    assert sum(swept), "what it wrote is gone"
    fresh = setup.again()
    assert {ref: shown(fresh, repo, ref) for ref in before} == before
    VERBS[verb](fresh, repo)
    assert {ref: shown(setup.again(), repo, ref) for ref in before}.keys() == before.keys()


def test_what_was_set_aside_long_ago_is_laid_on_top_again() -> None:
    setup, clock = lived_in()
    clock.ms += int(10 * NIGHT_S * 1000)
    stashes.pop(setup.lake, setup.repo, "main", "same-base")
    assert "aside" in shown(setup.lake, setup.repo, "main")


def test_bytes_that_took_days_to_store_are_not_staged() -> None:
    setup, clock = lived_in()

    def slow() -> Iterator[bytes]:
        yield b"one"
        clock.ms += int(NIGHT_S * 1000)
        yield b"two"

    with pytest.raises(ContentionError):
        objects.put(setup.lake, setup.repo, "main", "slow", slow())
    assert "slow" not in shown(setup.lake, setup.repo, "main")


def test_bytes_that_were_stored_a_day_before_others_are_not_staged_with_them() -> None:
    setup, clock = lived_in(Settings(threads=1))

    def slow() -> Iterator[bytes]:
        clock.ms += int(NIGHT_S * 1000 / 6)
        yield b"x"

    with pytest.raises(ContentionError):
        objects.put_many(setup.lake, setup.repo, "main", {f"n/{number}": slow() for number in range(9)})
    assert not {path for path in shown(setup.lake, setup.repo, "main") if path.startswith("n/")}


@pytest.mark.parametrize(
    "verb",
    [
        lambda lake, repo: objects.put(lake, repo, "side", "late", [b"x"]),
        lambda lake, repo: objects.copy(lake, repo, "side", "source", "side", "late"),
    ],
)
def test_bytes_are_not_staged_a_day_after_they_were_stored(verb: Callable[[Lake, Repository], object]) -> None:
    setup, clock = lived_in()
    lake, repo = setup.lake, setup.repo
    objects.put(lake, repo, "side", "source", [b"x"])
    commit.commit(lake, repo, "side", "nothing is staged, so a write has to open the branch")
    real, woken = lake.branches(repo).update, setup.again()

    def sleep(name: str, change: Callable[..., Any]) -> Any:
        clock.ms += int(NIGHT_S * 1000)
        return real(name, change)

    woken.branches(repo).update = sleep  # type: ignore[method-assign]
    with pytest.raises(ContentionError):
        verb(woken, repo)
    assert "late" not in shown(setup.again(), repo, "side")


def test_a_merge_that_waits_for_days_to_be_checked_does_not_land() -> None:
    setup, clock = lived_in()

    def wait(_: object) -> None:
        clock.ms += int(NIGHT_S * 1000)

    with pytest.raises(ContentionError) as caught:
        merge.merge(setup.lake, setup.repo, "side", "main", check=wait)
    assert caught.value.hint == ""
