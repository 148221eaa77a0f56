"""Merges tried again, by every combination: the result is that of a merge from scratch, and the simulator's trees merge
as the real ones do."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from esker.format.names import digest_of
from esker.model import Digest, Entry, FileName
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.cache import MemoryCache
from esker.streams.entries import table_of
from esker.testing.simulation.past import DictPast, Inline
from esker.testing.simulation.run import entries_of
from esker.testing.simulation.scheduler import Scheduler, SimWorld
from esker.testing.simulation.stores import NO_FAULTS, Network
from esker.testing.simulation.watch import three_way
from esker.tree.cutting import Cutting
from esker.tree.merge import Memo, Strategy
from esker.tree.past import Past, StoredPast
from esker.tree.trees import Trees

Value = tuple[str, int] | None
"""Absent, or a content and when it was touched."""

CONTENTS: tuple[Value, ...] = (None, ("A", 1), ("B", 1), ("C", 1))
TOUCHED: tuple[Value, ...] = (None, ("A", 1), ("A", 2), ("B", 1))

BASE, SOURCE, DEST, NEW_DEST, NEW_BASE = range(5)
CONFLICT = "conflict"
TRIES = ((BASE, DEST), (BASE, NEW_DEST), (NEW_BASE, NEW_DEST), (NEW_BASE, DEST), (BASE, NEW_DEST))
"""The destination moves, the base with it, and both go back."""


@pytest.mark.parametrize("values", [CONTENTS, TOUCHED], ids=["contents", "touched"])
@pytest.mark.parametrize("strategy", Strategy)
def test_every_combination_tried_again_is_as_from_scratch(strategy: Strategy, values: tuple[Value, ...]) -> None:
    retried_is_fresh(real(), strategy, list(product(values, repeat=5)))


@pytest.mark.parametrize("strategy", Strategy)
def test_so_it_is_in_the_simulator(strategy: Strategy) -> None:
    retried_is_fresh(simulated(), strategy, list(product(CONTENTS, repeat=5)))


@pytest.mark.parametrize("strategy", Strategy)
def test_so_it_is_when_some_ranges_were_worked_at_ahead_of_each_try(strategy: Strategy) -> None:
    retried_is_fresh(real(), strategy, list(product(CONTENTS, repeat=5)), is_mine=lambda digest: digest < "8")


def test_every_combination_without_conflict_comes_to_the_same_tree() -> None:
    peaceful = [
        combination
        for combination in product(CONTENTS, repeat=5)
        if not any(merged(combination, *sides, Strategy.NONE) == CONFLICT for sides in TRIES)
    ]
    assert len(peaceful) > 100
    assert retried_is_fresh(real(), Strategy.NONE, peaceful) == len(TRIES)


def retried_is_fresh(
    past: Past,
    strategy: Strategy,
    combinations: Sequence[tuple[Value, ...]],
    is_mine: Callable[[Digest], bool] = lambda _: False,
) -> int:
    """How many of the tries came to a tree."""
    paths = {f"{number:04}": combination for number, combination in enumerate(combinations)}
    sides = [build(past, {path: combination[side] for path, combination in paths.items()}) for side in range(5)]
    memo = Memo()
    trees = 0
    for base, dest in TRIES:
        past.merge_ahead(sides[base], sides[SOURCE], sides[dest], strategy, memo, is_mine)
        again = past.merge(sides[base], sides[SOURCE], sides[dest], strategy, memo)
        fresh = past.merge(sides[base], sides[SOURCE], sides[dest], strategy)
        expected = {path: merged(combination, base, dest, strategy) for path, combination in paths.items()}
        conflicts = [path for path, content in expected.items() if content == CONFLICT]
        assert again.conflicts == fresh.conflicts == (conflicts if strategy is Strategy.NONE else [])
        if again.tree is None or fresh.tree is None:
            assert again.tree is None
            assert fresh.tree is None
            continue
        trees += 1
        assert digest_of(again.tree) == digest_of(fresh.tree)
        assert entries_of(past, again.tree) == {path: content for path, content in expected.items() if content}
    return trees


def merged(combination: tuple[Value, ...], base: int, dest: int, strategy: Strategy) -> str | None:
    """The content that a path comes to."""
    values = (combination[side] for side in (base, SOURCE, dest))
    before, theirs, ours = ({"": value[0]} if value else {} for value in values)
    result, conflicts = three_way(before, theirs, ours, strategy.value)
    return CONFLICT if conflicts else result.get("")


def build(past: Past, values: dict[str, Value]) -> FileName:
    return past.build(
        [
            table_of(
                Entry(path=path, address=path, size=1, checksum=value[0], mtime_ms=value[1])
                for path, value in values.items()
                if value
            )
        ]
    )


def real() -> Past:
    return StoredPast(Trees(MemoryBlobs(), Cutting(entries_mean=16), cache=MemoryCache(64 << 20), pool=Inline()))


def simulated() -> Past:
    scheduler = Scheduler(0)
    scheduler.quiet = True
    return DictPast(Network(scheduler, NO_FAULTS, lambda _: None), {}, SimWorld(scheduler, 0))
