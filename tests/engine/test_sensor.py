"""The Sensor and its policy: which branches have become slow to read, told from what passes through a process."""

from typing import Final

import pytest
from prometheus_client import REGISTRY

from esker.engine import commit, compaction, entries, layers, sensor
from esker.engine.lake import Lake
from esker.engine.policy import Compaction, Load, due
from esker.engine.reset import reset
from esker.model import Repository
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from tests.engine.lakes import NoGuardsKV, Setup, entry, new_setup, put

FEW: Final = 40
"""Tombstones, in these tests, that call for a major compaction."""

KINDS: Final = [MemoryKV, NoGuardsKV]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esker.engine.policy._TOMBSTONES_MAX", FEW)
    monkeypatch.setattr("esker.engine.sensor._LOOK_AFTER", FEW)


def delete(lake: Lake, repo: Repository, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        entries.delete(lake, repo, "main", f"{number:04}")


def noticed(lake: Lake) -> list[str]:
    return [found.branch for found in sensor.of(lake).take()]


def verdict(lake: Lake, repo: Repository, branch: str = "main") -> Compaction | None:
    return sensor.of(lake).verdict(repo, branch, lake.branches(repo).get(branch))


def lay(setup: Setup, count: int) -> None:
    for number in range(count):
        layers.append(setup.lake, setup.repo, "main", Changes(changes_of([entry(f"l/{number}")])))


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (Load(0, 0, 0, 0), None),
        (Load(15, FEW - 1, 99_999, 0), None),
        (Load(16, 0, 0, 10), Compaction.MINOR),
        (Load(16, FEW, 0, 10), Compaction.MAJOR),
        (Load(0, FEW, 0, 10**9), Compaction.MAJOR),
        (Load(1, 0, 100_000, 400_000), Compaction.MAJOR),
        (Load(1, 0, 100_000, 400_004), None),
        (Load(16, 0, 100_000, 400_004), Compaction.MINOR),
    ],
)
def test_many_layers_are_folded_and_many_tombstones_or_a_large_level_2_go_into_a_tree(
    load: Load, expected: Compaction | None
) -> None:
    assert due(load) is expected


@pytest.mark.parametrize("kv", KINDS)
def test_single_deletes_are_counted_as_they_are_made(kv: type[MemoryKV]) -> None:
    lake, repo, *_ = new_setup(kv())
    delete(lake, repo, FEW - 1)
    assert noticed(lake) == []
    assert verdict(lake, repo) is None
    delete(lake, repo, 1, first=FEW)
    assert noticed(lake) == ["main"]
    assert verdict(lake, repo) is Compaction.MAJOR


@pytest.mark.parametrize("kv", KINDS)
def test_if_absent_puts_are_writes_like_others(kv: type[MemoryKV]) -> None:
    lake, repo, *_ = new_setup(kv())
    for number in range(FEW):
        entries.put(lake, repo, "main", entry(f"{number}"), if_absent=True)
    assert noticed(lake) == ["main"]


def test_what_is_counted_is_not_read() -> None:
    lake, repo, kv, _ = new_setup()
    delete(lake, repo, FEW)
    scans = kv.counts.reads[f"staging/{lake.branches(repo).get('main').token}"]
    assert verdict(lake, repo) is Compaction.MAJOR
    assert kv.counts.reads[f"staging/{lake.branches(repo).get('main').token}"] == scans


def test_layers_are_noticed_as_they_are_laid() -> None:
    setup = new_setup()
    lay(setup, 15)
    assert noticed(setup.lake) == []
    lay(setup, 1)
    assert noticed(setup.lake) == ["main"]
    assert verdict(setup.lake, setup.repo) is Compaction.MINOR


def test_a_sensor_of_a_new_process_counts_what_it_finds() -> None:
    setup = new_setup()
    delete(setup.lake, setup.repo, FEW)
    assert verdict(setup.again(), setup.repo) is Compaction.MAJOR
    others = setup.again()
    entries.delete(others, setup.repo, "main", "one more")
    assert verdict(others, setup.repo) is Compaction.MAJOR, "what it counts itself comes on top of what it found"


@pytest.mark.parametrize("what", ["commit", "reset", "compact"])
def test_commits_resets_and_compactions_begin_a_new_count(what: str) -> None:
    lake, repo, *_ = new_setup()
    put(lake, repo, "main", "there")
    delete(lake, repo, FEW)
    assert verdict(lake, repo) is Compaction.MAJOR
    match what:
        case "commit":
            commit.commit(lake, repo, "main", "m")
        case "reset":
            reset(lake, repo, "main")
        case _:
            compaction.compact(lake, repo, "main", Compaction.MAJOR)
    assert verdict(lake, repo) is None
    delete(lake, repo, FEW - 1)
    assert verdict(lake, repo) is None


def test_after_a_compaction_the_branch_is_looked_at_again() -> None:
    """Few tables may still be too many deletions."""
    setup = new_setup()
    lay(setup, 16)
    gone = changes_of([], [f"{number:04}" for number in range(FEW)])
    layers.append(setup.lake, setup.repo, "main", Changes(gone))
    noticed(setup.lake)
    compaction.compact(setup.lake, setup.repo, "main", Compaction.MINOR)
    assert noticed(setup.lake) == ["main"]
    compaction.compact(setup.lake, setup.repo, "main", Compaction.MAJOR)
    assert noticed(setup.lake) == []


def test_tombstones_of_a_transaction_which_is_never_folded_into_a_tree_call_for_nothing() -> None:
    lake, repo, *_ = new_setup()
    lake.branches(repo).create("tx", lake.branches(repo).get("main").commit, layers_only=True)
    gone = changes_of([], [f"{number:04}" for number in range(FEW)])
    layers.append(lake, repo, "tx", Changes(gone))
    assert verdict(lake, repo, "tx") is None


def test_how_deep_a_branch_is_is_measured_whatever_changes_it() -> None:
    setup = new_setup()
    lake, repo = setup.lake, setup.repo

    def depth() -> list[float | None]:
        of = {"repo": repo.name, "branch": "main"}
        levels = [REGISTRY.get_sample_value("esker_layers", {**of, "level": level}) for level in ("token", "L1", "L2")]
        return [*levels, REGISTRY.get_sample_value("esker_tombstones", of)]

    put(lake, repo, "main", "a")
    layers.append(lake, repo, "main", Changes(changes_of([entry("b")], ["c", "d"])))
    assert depth() == [1, 1, 0, 2]
    compaction.compact(lake, repo, "main", Compaction.MINOR)
    assert depth() == [0, 0, 1, 2]
    count = REGISTRY.get_sample_value("esker_compaction_seconds_count", {"repo": repo.name, "kind": "minor"})
    assert count == 1
    layers.append(lake, repo, "main", Changes(changes_of([entry("e")])))
    commit.commit(lake, repo, "main", "m")
    assert depth() == [0, 0, 0, 0]
    layers.append(lake, repo, "main", Changes(changes_of([entry("e", 1)])))
    reset(lake, repo, "main")
    assert depth() == [0, 0, 0, 0]
