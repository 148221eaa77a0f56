"""What workers remember of repositories: never one that was deleted, once that was answered."""

import pytest

from esker.engine import repositories
from esker.engine.opening import open_stores
from esker.errors import NotFoundError
from esker.server.known import AGE_S, Known
from esker.world import RealWorld


class Clock(RealWorld):
    """Goes on by sleeping alone."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_deleted_repository_is_known_to_no_worker_and_not_taken_for_its_successor() -> None:
    lake, close = open_stores("memory://", world=Clock())
    here, there = Known(lake), Known(lake)
    made = repositories.create(lake, "sales", "memory://sales")
    assert here.get("sales") == there.get("sales") == made
    here.delete("sales")
    for known in (here, there):
        with pytest.raises(NotFoundError):
            known.get("sales")
    again = repositories.create(lake, "sales", "memory://sales")
    assert again.uid != made.uid
    assert here.get("sales") == there.get("sales") == again
    close()


def test_what_another_program_deletes_is_gone_soon() -> None:
    clock = Clock()
    lake, close = open_stores("memory://", world=clock)
    known = Known(lake)
    repositories.create(lake, "sales", "memory://sales")
    assert known.get("sales").name == "sales"
    repositories.delete(lake, "sales")
    clock.sleep(AGE_S)
    with pytest.raises(NotFoundError):
        known.get("sales")
    close()


def test_a_repository_is_found_as_soon_as_it_is_there() -> None:
    lake, close = open_stores("memory://", world=Clock())
    known = Known(lake)
    with pytest.raises(NotFoundError):
        known.get("sales")
    made = repositories.create(lake, "sales", "memory://sales")
    assert known.get("sales") == made
    close()
