"""The task list: what work says of itself, what others see of it, and what is forgotten."""

import msgspec
import pytest

from esker.engine import tasks
from esker.engine.tasks import HISTORY_MAX, SILENT_MS, Task, TaskState
from esker.errors import CorruptError, InvalidError, Kind, NotFoundError
from esker.model import Repository
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.kv_memory import MemoryKV
from tests.engine.lakes import AT_ONCE, Clock, Setup, kind_of, new_setup


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def setup(clock: Clock) -> Setup:
    return new_setup(MemoryKV(), MemoryBlobs(clock), AT_ONCE, clock)


def test_what_ends_well_is_done_and_keeps_its_counts_and_summary(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    with tasks.running(lake, repo, "export", about="to there", details={"a": [1, "b"]}) as work:
        shown = tasks.get(lake, repo, work.task.id)
        assert (shown.state, shown.about, shown.details, shown.over) == ("running", "to there", {"a": [1, "b"]}, False)
        work.add(objects=2)
        work.add(objects=3, bytes=10)
        work.reached(ranges=7)
        work.summary = {"objects": 5, "where": "there"}
    assert list(tasks.every(lake, repo)) == [work.task]
    assert (work.task.state, work.task.summary) == (TaskState.DONE, {"objects": 5, "where": "there"})
    assert work.task.progress == {"objects": 5, "bytes": 10, "ranges": 7}


@pytest.mark.parametrize(
    ("error", "state", "said", "noted"),
    [
        (
            InvalidError(Kind.INVALID_ARGUMENT, "not so"),
            TaskState.FAILED,
            "not so",
            ("invalid-argument", "InvalidError"),
        ),
        (ValueError("oops"), TaskState.FAILED, "mistake", ("outcome-unknown", "OutcomeUnknownError")),
        (KeyboardInterrupt(), TaskState.CANCELLED, "interrupted", ("task-cancelled", "ConflictError")),
    ],
)
def test_what_raises_has_failed_and_the_error_goes_on(
    setup: Setup, error: BaseException, state: TaskState, said: str, noted: tuple[str, str]
) -> None:
    def fail() -> None:
        with tasks.running(setup.lake, setup.repo, "gc") as work:
            work.add(listed=1)
            raise error

    with pytest.raises(type(error)):
        fail()
    (found,) = tasks.every(setup.lake, setup.repo)
    assert (found.state, found.progress) == (state, {"listed": 1})
    assert said in found.error
    assert (found.error_kind, found.error_class) == noted


def test_a_record_that_tells_no_kind_of_its_error_is_read(setup: Setup) -> None:
    """As it was written before kinds were kept."""
    older = {"id": "x", "kind": "gc", "started_ms": 1, "seen_ms": 2, "state": "failed", "error": "no"}
    setup.lake.kv.put(f"tasks/{setup.repo.uid}", b"x", msgspec.msgpack.encode(older))
    found = tasks.get(setup.lake, setup.repo, "x")
    assert (found.error, found.error_kind, found.error_class) == ("no", "", "")


def test_signs_of_life_are_rare_however_much_there_is_to_tell(setup: Setup, clock: Clock) -> None:
    lake, repo = setup.lake, setup.repo
    with tasks.running(lake, repo, "gc") as work:
        before = lake.kv.counts.writes["tasks"]
        for _ in range(1000):
            work.add(listed=1)
        assert lake.kv.counts.writes["tasks"] == before
        clock.passed_s += tasks.BEAT_S
        work.add(listed=1)
        assert lake.kv.counts.writes["tasks"] == before + 1
        assert tasks.get(lake, repo, work.task.id).progress == {"listed": 1001}


def test_what_is_told_to_stop_stops_when_it_next_looks(setup: Setup, clock: Clock) -> None:
    lake, repo = setup.lake, setup.repo

    def work_on(task: Task) -> None:
        with tasks.working(lake, repo, task) as work:
            work.add(listed=1)
            clock.passed_s += tasks.BEAT_S
            work.add(listed=1)

    task = tasks.start(lake, repo, "gc")
    assert tasks.cancel(lake, repo, task.id).cancelled
    assert tasks.cancel(lake, repo, task.id).state is TaskState.RUNNING, "again is no error"
    assert kind_of(lambda: work_on(task)) is Kind.TASK_CANCELLED
    assert tasks.get(lake, repo, task.id).state is TaskState.CANCELLED
    assert kind_of(lambda: tasks.cancel(lake, repo, task.id)) is Kind.TASK_OVER


def test_who_is_silent_is_taken_for_dead_until_it_speaks(setup: Setup, clock: Clock) -> None:
    lake, repo = setup.lake, setup.repo
    task = tasks.start(lake, repo, "gc")
    clock.ms += SILENT_MS + 1
    assert tasks.get(lake, repo, task.id).state is TaskState.FAILED
    assert "start it again" in tasks.get(lake, repo, task.id).error
    assert tasks.get(lake, repo, task.id).error_kind == "task-stopped"
    tasks.update(lake, repo, task.id, listed=3)
    assert tasks.get(lake, repo, task.id).state is TaskState.RUNNING


def test_the_oldest_that_are_over_are_forgotten_and_what_runs_is_not(setup: Setup, clock: Clock) -> None:
    lake, repo = setup.lake, setup.repo
    runs = tasks.start(lake, repo, "gc")
    other = tasks.start(lake, repo, "import")
    tasks.finish(lake, repo, other.id)
    done = []
    for _ in range(HISTORY_MAX + 5):
        clock.ms += 1
        done.append(tasks.start(lake, repo, "gc").id)
        tasks.finish(lake, repo, done[-1])
    assert {task.id for task in tasks.every(lake, repo)} == {runs.id, other.id, *done[-HISTORY_MAX - 1 :]}


def test_a_page_goes_on_where_the_one_before_ended(setup: Setup) -> None:
    ids = sorted(tasks.start(setup.lake, setup.repo, "gc").id for _ in range(3))
    assert [task.id for task in tasks.every(setup.lake, setup.repo, after=ids[0])] == ids[1:]


@pytest.mark.parametrize("name", ["", "nothing", "\ud800", "x" * 5000])
def test_what_is_not_known_is_not_found(setup: Setup, name: str) -> None:
    with pytest.raises(NotFoundError):
        tasks.get(setup.lake, setup.repo, name)


def test_a_damaged_record_is_told_as_such(setup: Setup) -> None:
    repo: Repository = setup.repo
    setup.lake.kv.put(f"tasks/{repo.uid}", b"x", b"nonsense")
    with pytest.raises(CorruptError):
        tasks.get(setup.lake, repo, "x")
