"""The engine under the simulator, and the simulator under its mutants. `make sim` goes on where this ends."""

import pytest

from esker.testing.simulation.linear import FOREVER, GONE, Kind, Step, explains, stale
from esker.testing.simulation.mutants import MUTANTS, hunt
from esker.testing.simulation.plans import THEMES, Wishes, draw
from esker.testing.simulation.run import simulate
from esker.testing.simulation.shrink import failing, shrink, story

SCHEDULES = 300
"""Of each kind: a second or two."""

MUTANT_SCHEDULES = 4_000
"""Most are caught within a hundred."""


@pytest.mark.parametrize("guards", [True, False], ids=["guards", "rechecks"])
@pytest.mark.parametrize("faults", [0.0, 0.03, 0.1])
def test_every_schedule_keeps_the_promises(guards: bool, faults: float) -> None:
    keep_the_promises(Wishes(guards=guards, faults=faults), SCHEDULES)


def test_the_promises_hold_with_real_trees_too() -> None:
    keep_the_promises(Wishes(stored=True), 100)


RARE = {"absence-outlives-the-grace-time", "reader-does-not-miss-the-compacted-tree"}
"""These take a good part of a minute, in `make sim`."""


@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - RARE))
def test_a_mutant_is_caught(name: str) -> None:
    assert hunt(MUTANTS[name], schedules=MUTANT_SCHEDULES) is not None, MUTANTS[name].what


@pytest.mark.parametrize("theme", THEMES)
def test_a_seed_decides_everything(theme: str) -> None:
    plan = draw(7, Wishes(theme=theme, faults=0.1))
    first, second = (simulate(plan, 7, trace=True) for _ in range(2))
    assert first.trace == second.trace
    assert first.trace != simulate(plan, 8, trace=True).trace


def test_a_failure_is_told_by_few_operations() -> None:
    mutant = MUTANTS["append-over-a-dirty-token"]
    caught = hunt(mutant, schedules=MUTANT_SCHEDULES)
    assert caught is not None
    with mutant.plant():
        smallest = shrink(caught.failure)
        told = story(smallest)
    assert sum(len(client.ops) for client in smallest.plan.clients) == 2
    assert "delete-prefix" in told


def test_reads_between_a_write_and_its_answer_may_see_either() -> None:
    write = Step(1, 10, Kind.WRITE, ("new",))
    assert explains("old", [write, Step(2, 3, Kind.READ, ("old",)), Step(4, 5, Kind.READ, ("new",))])
    assert not explains("old", [write, Step(2, 3, Kind.READ, ("new",)), Step(4, 5, Kind.READ, ("old",))])
    assert not explains("old", [write, Step(11, 12, Kind.READ, ("old",))])


def test_what_may_have_happened_happens_once_or_never() -> None:
    perhaps = Step(1, FOREVER, Kind.WRITE, ("new",), sure=False)
    assert explains("old", [perhaps, Step(5, 6, Kind.READ, ("old",))])
    assert explains("old", [perhaps, Step(5, 6, Kind.READ, ("old",)), Step(7, 8, Kind.READ, ("new",))])
    again = [Step(5, 6, Kind.READ, ("new",)), Step(7, 8, Kind.WRITE, ("newer",)), Step(9, 10, Kind.READ, ("new",))]
    assert not explains("old", [perhaps, *again])


def test_of_two_who_found_nothing_one_is_wrong() -> None:
    first, second = Step(1, 10, Kind.CREATE, ("a",)), Step(2, 9, Kind.CREATE, ("b",))
    assert not explains(None, [first, second])
    assert explains(None, [first, Step(2, 9, Kind.EXISTS)])
    assert not explains(None, [Step(1, 10, Kind.EXISTS), Step(2, 9, Kind.EXISTS)])


def test_nothing_is_written_where_there_is_no_branch() -> None:
    drop, write = Step(1, 2, Kind.DROP), Step(3, 4, Kind.WRITE, ("new",))
    assert not explains("old", [drop, write])
    assert explains("old", [drop, Step(3, 4, Kind.READ, (GONE,)), Step(5, 6, Kind.BRANCH, ("old",))])


def test_a_look_is_stale_only_when_what_it_saw_was_over() -> None:
    first, second = Step(1, 2, Kind.WRITE, ("a",)), Step(3, 6, Kind.WRITE, ("b",))
    assert stale("old", [first, second, Step(4, 5, Kind.READ, ("a",))]) is None
    look = Step(7, 8, Kind.READ, ("a",))
    assert stale("old", [first, second, look]) is look


def keep_the_promises(wishes: Wishes, schedules: int) -> None:
    for seed in range(schedules):
        failure = failing(draw(seed, wishes), seed)
        assert failure is None, f"seed {seed}, {wishes}\n{story(shrink(failure))}"
