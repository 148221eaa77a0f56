"""Threads share what they ask for, and nobody is forgotten."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from esker.errors import Kind, UnavailableError
from esker.stores.together import RUN_MAX, Together


def test_each_is_answered_by_the_run_that_took_it_along() -> None:
    runs: list[tuple[str, int]] = []

    def run(key: str, items: Sequence[int]) -> frozenset[int]:
        assert len(items) <= RUN_MAX
        runs.append((key, len(items)))
        return frozenset(items)

    together = Together(run)
    with ThreadPoolExecutor(32) as pool:
        found = [*pool.map(lambda number: (number, together.ask("ab"[number % 2], number)), range(5000))]
    assert all(number in taken for number, taken in found)
    assert sum(count for _, count in runs) == 5000
    assert not together._lines


def test_what_comes_meanwhile_goes_together_and_a_failure_is_everybodys() -> None:
    begun, go_on = threading.Event(), threading.Event()
    runs: list[list[int]] = []

    def run(_: str, items: Sequence[int]) -> None:
        runs.append([*items])
        if len(runs) == 1:
            begun.set()
            go_on.wait()
            raise UnavailableError(Kind.STORE_UNAVAILABLE, "gone")
        if len(runs) == 2:
            raise KeyError("of the one who leads")

    together = Together(run)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(together.ask, "a", 0)
        begun.wait()
        others = [pool.submit(together.ask, "a", number) for number in range(1, 6)]
        while len(together._lines["a"].waiting) < 5:
            pass
        go_on.set()
        assert isinstance(first.exception(), UnavailableError)
        raised = [type(other.exception()) for other in others]
    assert sorted(runs[1]) == [1, 2, 3, 4, 5]
    assert sorted(kind.__name__ for kind in raised) == ["KeyError", *["UnavailableError"] * 4]
    assert not together._lines
    together.ask("a", 9)
    assert runs[2] == [9]
