"""What is noted of what is being done."""

from collections.abc import Iterator

import pytest

from esker import activity
from esker.activity import STEPS_MAX, Activity, Pool, count, step, verb


class Kept:
    def __init__(self) -> None:
        self.all: list[Activity] = []

    def ended(self, activity: Activity) -> str:
        self.all.append(activity)
        return "told"


@pytest.fixture
def kept() -> Iterator[Kept]:
    found = Kept()
    activity.watch(found)
    yield found
    activity.watch(None)


def test_nothing_is_noted_unless_somebody_watches() -> None:
    assert activity.begin("request") is None
    with verb("commit"), step("fold"):
        count("kv_reads")
        assert activity.current() is None


def test_a_verb_is_a_step_of_what_is_being_done_and_else_an_activity(kept: Kept) -> None:
    with verb("compaction", repo="sales"):
        assert activity.current() is not None
    assert activity.current() is None
    begun = activity.begin("request")
    assert begun
    with verb("commit", repo="sales"), step("fold"):
        count("kv_reads", 2)
    assert activity.end(begun) == "told"
    alone, request = kept.all
    assert (alone.whole.name, alone.whole.attributes) == ("compaction", {"repo": "sales"})
    commit, fold = request.steps
    assert (commit.name, commit.parent, fold.name, fold.parent) == ("commit", request.whole, "fold", commit)
    assert (request.calls, fold.attributes, commit.attributes) == (
        {"kv_reads": 2},
        {"kv_reads": 2},
        {"repo": "sales"},
    )
    assert request.whole.took_s >= commit.took_s >= fold.took_s


def test_what_the_pool_does_belongs_to_whoever_asked_for_it(kept: Kept) -> None:
    queued: list[int] = []
    busy: list[int] = []
    pool = Pool(1, on_queued=queued.append, on_busy=busy.append, name="test")
    with verb("merge"):
        pool.submit(count, "ranges_read").result()
    pool.submit(count, "ranges_read").result()
    pool.shutdown()
    [merge] = kept.all
    assert merge.calls == {"ranges_read": 1}
    assert (sum(queued), sum(busy), queued.count(1), busy.count(1)) == (0, 0, 2, 2)


def test_a_failure_is_noted_and_passes_through(kept: Kept) -> None:
    @step("fold")
    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError), verb("commit"):
        fails()
    [commit] = kept.all
    assert (commit.whole.failed, commit.steps[0].failed) == ("KeyError", "KeyError")


def test_steps_without_end_are_only_counted(kept: Kept) -> None:
    with verb("commit"):
        for _ in range(STEPS_MAX + 10):
            with step("seal"):
                count("kv_reads")
    [commit] = kept.all
    assert (len(commit.steps), commit.steps_left_out, commit.calls) == (STEPS_MAX, 10, {"kv_reads": STEPS_MAX + 10})
