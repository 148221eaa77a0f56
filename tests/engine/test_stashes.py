"""Stashes beyond what the model does to them: many layers, and a record that has to stay small."""

import pytest

from esker.engine import branches, commit, compaction, entries, layers, stashes
from esker.engine.policy import Compaction
from esker.errors import Kind
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from tests.engine.lakes import NoGuardsKV, Setup, assert_nothing_leaked, contents, entry, kind_of, new_setup, put


def staged(kv: type[MemoryKV], count: int) -> Setup:
    """Tables, deletions and a deleted prefix over a commit."""
    setup = new_setup(kv())
    lake, repo, *_ = setup
    put(lake, repo, "main", "p/gone", "q/gone", "stays")
    commit.commit(lake, repo, "main", "m")
    entries.delete_prefix(lake, repo, "main", "p/")
    for number in range(count):
        layers.append(lake, repo, "main", Changes(changes_of([entry(f"l/{number:02}", number)])))
    entries.delete(lake, repo, "main", "q/gone")
    return setup


@pytest.mark.parametrize("kv", [MemoryKV, NoGuardsKV])
@pytest.mark.parametrize("compacted", [False, True])
def test_many_layers_are_set_aside_as_one(kv: type[MemoryKV], compacted: bool) -> None:
    lake, repo, *_ = setup = staged(kv, 3 * stashes.LAYERS_MAX)
    if compacted:
        compaction.compact(lake, repo, "main", Compaction.MAJOR)
        for number in range(stashes.LAYERS_MAX + 1):
            layers.append(lake, repo, "main", Changes(changes_of([entry("stays", f"{number}")])))
    before = contents(lake, repo, "main")
    made = stashes.stash(lake, repo, "main", "s")
    assert len(made.layers) == 1
    assert contents(lake, repo, "main") == {"p/gone": "0", "q/gone": "0", "stays": "0"}
    stashes.pop(lake, repo, "main", "s")
    assert contents(lake, repo, "main") == before
    assert_nothing_leaked(setup)


def test_few_layers_are_set_aside_as_they_are() -> None:
    lake, repo, _, blobs = setup = staged(MemoryKV, 3)
    files = {info.name for info in blobs.list("_esker/staging/")}
    made = stashes.stash(lake, repo, "main", "s")
    assert len(made.layers) == 5
    assert {info.name for info in blobs.list("_esker/staging/")} == files
    stashes.drop(lake, repo, "main", "s")
    assert_nothing_leaked(setup)


def test_stashes_leave_the_record_room_for_the_work_of_the_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stashes, "STASHES_MAX", 20)
    lake, repo, *_ = new_setup()
    for number in range(stashes.STASHES_MAX):
        for turn in range(stashes.LAYERS_MAX + 1):
            layers.append(lake, repo, "main", Changes(changes_of([entry(f"{turn:04}")])))
        stashes.stash(lake, repo, "main", f"s{number}")
    record = lake.branches(repo).get("main")
    assert sum(len(stash.layers) for stash in record.stashes.values()) == stashes.STASHES_MAX
    layers.append(lake, repo, "main", Changes(changes_of([entry("x")])))
    assert kind_of(lambda: stashes.stash(lake, repo, "main", "one-more")) is Kind.TOO_MANY_LAYERS
    commit.commit(lake, repo, "main", "m")
    assert list(contents(lake, repo, "main")) == ["x"]


def test_a_stash_lies_on_its_commit_though_the_branch_went_on_and_came_back() -> None:
    lake, repo, *_ = setup = staged(MemoryKV, 2)
    before = contents(lake, repo, "main")
    stashes.stash(lake, repo, "main", "s")
    put(lake, repo, "main", "other")
    commit.commit(lake, repo, "main", "m")
    stashes.pop(lake, repo, "main", "s")
    assert contents(lake, repo, "main") == {**before, "other": "0"}
    assert [layer.level for layer in branches.staged(lake, repo, "main").layers] == ["L1"], "merged, it is one layer"
    assert_nothing_leaked(setup)
