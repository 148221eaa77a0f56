"""Layers laid on a branch: as many as its record holds, and never more than it can be read with."""

from functools import partial

import pytest

from esker.engine import commit, compaction, layers, reset
from esker.engine.policy import Compaction
from esker.errors import Kind
from esker.settings import Settings
from esker.stores.kv import VALUE_BYTES_MAX
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from tests.engine.lakes import Clock, Setup, contents, entry, kind_of, new_setup


def _fill(setup: Setup) -> int:
    """Lay layers with the longest paths until there is no room."""
    lake, repo, _, _ = setup
    for number in range(10_000):
        path = f"{number:04}" + "x" * 1020
        layer = layers.write(lake, repo, "main/L1", Changes(changes_of([entry(path)])))
        if kind_of(partial(layers.lay, lake, repo, "main", layer)) is Kind.TOO_MANY_LAYERS:
            return number
    raise AssertionError("there was room for all")


@pytest.mark.parametrize("way", ["commit", "minor", "major", "reset"])
def test_a_record_without_room_for_a_layer_has_room_for_every_way_out(way: str) -> None:
    setup = new_setup(settings=Settings(), world=Clock())
    lake, repo, kv, _ = setup
    laid = _fill(setup)
    assert laid > 50
    match way:
        case "commit":
            commit.commit(lake, repo, "main", "all")
        case "reset":
            reset.reset(lake, repo, "main")
        case _:
            assert compaction.compact(lake, repo, "main", Compaction(way))
    assert len(contents(lake, repo, "main")) == (0 if way == "reset" else laid)
    layers.append(lake, repo, "main", Changes(changes_of([entry("one more")])))
    record = kv.get(f"branches/{repo.uid}", b"main")
    assert record is not None
    assert len(record.value) < VALUE_BYTES_MAX / 2


def test_what_fell_off_is_handed_over_though_nobody_cleans() -> None:
    lake, repo, _, _ = new_setup(settings=Settings(), world=Clock())
    for number in range(300):
        layers.append(lake, repo, "main", Changes(changes_of([entry(f"{number}")])))
        if number % 3:
            compaction.compact(lake, repo, "main", Compaction.MINOR)
        else:
            reset.reset(lake, repo, "main")
    assert len(lake.branches(repo).get("main").dropped) <= 110
