"""Jobs: published in one commit or not at all, in some serial order, whatever is lost on the way.

`base` has what every test starts from: a table of two files, and a file beside it.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final

import pytest

from esker.engine import branches, commit, entries, jobs
from esker.engine.jobs import Job, JobState
from esker.engine.lake import Lake
from esker.errors import ConflictError, EskerError, InvalidError, Kind, NotFoundError, OutcomeUnknownError
from esker.model import CommitID, Entry, Repository
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from esker.testing.faults import Call, CountingKV, Fault, FaultyBlobs, FaultyKV
from esker.testing.kv_suite import together
from tests.engine.lakes import (
    Setup,
    contents,
    head,
    history_of,
    kind_of,
    new_setup,
    put,
    shown,
    uncommitted,
)

WRITERS: Final = 8
TABLE: Final = "t/"
START: Final = {"beside": "old", "t/x1": "old", "t/x2": "old"}


@pytest.fixture
def setup() -> Setup:
    return _base()


@pytest.fixture
def lake(setup: Setup) -> Lake:
    return setup.lake


@pytest.fixture
def repo(setup: Setup) -> Repository:
    return setup.repo


def _base(kv: MemoryKV | None = None) -> Setup:
    setup = new_setup(kv)
    for path, content in START.items():
        put(setup.lake, setup.repo, "main", path, content=content)
    commit.commit(setup.lake, setup.repo, "main", "base")
    return setup


def _written(lake: Lake, repo: Repository, job: Job, *names: str, deletes: Sequence[str] = ()) -> Changes:
    """What a job wrote: files of the table, whose content is the job's id."""
    made = [_file(lake, repo, job, name) for name in names]
    return Changes(changes_of(made), tuple(deletes))


def _file(lake: Lake, repo: Repository, job: Job, name: str) -> Entry:
    address = f"{job.data}{name}"
    lake.blobs(repo).put(address, job.id.encode())
    return Entry(path=TABLE + name, address=address, size=len(job.id), checksum=job.id, mtime_ms=0)


def _overwrite(lake: Lake, repo: Repository, job_id: str, *names: str) -> CommitID:
    job = jobs.start(lake, repo, "main", job_id=job_id)
    return jobs.publish(lake, repo, job.id, _written(lake, repo, job, *names, deletes=[TABLE]))


def _append(lake: Lake, repo: Repository, job_id: str, *names: str) -> CommitID:
    job = jobs.start(lake, repo, "main", job_id=job_id)
    return jobs.publish(lake, repo, job.id, _written(lake, repo, job, *names))


def _table(lake: Lake, repo: Repository, ref: str = "main") -> dict[str, str]:
    return {path: content for path, content in contents(lake, repo, ref).items() if path.startswith(TABLE)}


# one job


def test_a_job_is_one_commit_with_its_id_and_what_it_says(lake: Lake, repo: Repository) -> None:
    before = head(lake, repo)
    job = jobs.start(lake, repo, "main", job_id="j1")
    changes = _written(lake, repo, job, "a", "b")
    made = jobs.publish(lake, repo, "j1", changes, message="load", committer="ann", metadata={"spark.app": "nightly"})
    assert [*history_of(lake, repo)][:2] == [made, before]
    record = lake.commits(repo).get(made)
    assert (record.message, record.committer) == ("load", "ann")
    assert record.metadata == {"spark.app": "nightly", jobs.JOB: "j1"}
    assert contents(lake, repo, "main") == START | {"t/a": "j1", "t/b": "j1"}
    assert jobs.get(lake, repo, "j1").state is JobState.PUBLISHED
    assert not uncommitted(lake, repo)


def test_an_overwrite_leaves_nothing_of_the_old_and_touches_nothing_beside(lake: Lake, repo: Repository) -> None:
    _overwrite(lake, repo, "j1", "x2", "y")
    assert contents(lake, repo, "main") == {"beside": "old", "t/x2": "j1", "t/y": "j1"}


def test_until_it_is_published_nothing_of_a_job_is_seen(lake: Lake, repo: Repository) -> None:
    job = jobs.start(lake, repo, "main")
    _written(lake, repo, job, "a", deletes=[TABLE])
    assert contents(lake, repo, "main") == START
    assert not uncommitted(lake, repo)


def test_the_base_of_a_job_is_the_head_that_it_started_at(lake: Lake, repo: Repository) -> None:
    first = head(lake, repo)
    job = jobs.start(lake, repo, "main")
    _append(lake, repo, "other", "o")
    assert job.base == first
    assert jobs.get(lake, repo, job.id).base == first


def test_single_paths_can_be_removed(lake: Lake, repo: Repository) -> None:
    jobs.start(lake, repo, "main", job_id="j1")
    jobs.publish(lake, repo, "j1", Changes(changes_of(deletes=["t/x1", "not/there"])))
    assert set(_table(lake, repo)) == {"t/x2"}


def test_a_job_that_changes_nothing_is_a_commit_all_the_same(lake: Lake, repo: Repository) -> None:
    tree = lake.commits(repo).get(head(lake, repo)).tree
    made = _append(lake, repo, "j1")
    assert head(lake, repo) == made
    assert lake.commits(repo).get(made).tree == tree


def test_a_blob_that_is_not_there_or_not_as_said_fails_the_job_and_changes_nothing(
    lake: Lake, repo: Repository
) -> None:
    job = jobs.start(lake, repo, "main")
    whole = _file(lake, repo, job, "a")
    for bad in (
        Entry(path="t/b", address=f"{job.data}b", size=1, checksum="", mtime_ms=0),
        Entry(path="t/a", address=whole.address, size=whole.size + 1, checksum="", mtime_ms=0),
    ):
        with pytest.raises(InvalidError, match=bad.address) as raised:
            jobs.publish(lake, repo, job.id, Changes(changes_of([bad])))
        assert raised.value.kind is Kind.BLOB_NOT_FOUND
    assert contents(lake, repo, "main") == START


def test_blobs_are_made_durable_before_one_of_them_is_shown(setup: Setup) -> None:
    """Tasks that write them as files leave that to the server: one call, however many there are."""
    lake, repo = setup.lake, setup.repo
    job = jobs.start(lake, repo, "main")
    changes = _written(lake, repo, job, "a", "b")
    made: list[str] = []

    def on_call(call: Call) -> None:
        if call.method == "settle" or (call.method == "put_if" and call.name.startswith("branches/")):
            made.append(call.method)

    watched = setup.again(FaultyKV(setup.kv, _no_fault, on_call), FaultyBlobs(setup.blobs, _no_fault, on_call))
    jobs.publish(watched, repo, job.id, changes)
    assert made == ["settle", "put_if"]


def test_what_must_be_empty_is_looked_at_where_the_job_lands(lake: Lake, repo: Repository) -> None:
    job = jobs.start(lake, repo, "main")
    other = jobs.start(lake, repo, "main")
    fresh = Changes(changes_of([_at(_file(lake, repo, job, "a"), "new/a")]))
    late = Changes(changes_of([_at(_file(lake, repo, other, "a"), "new/b")]))
    jobs.publish(lake, repo, job.id, fresh, expect_empty=["new/"])
    with pytest.raises(ConflictError, match="new/") as raised:
        jobs.publish(lake, repo, other.id, late, expect_empty=["new/"])
    assert raised.value.kind is Kind.OBJECT_EXISTS
    assert contents(lake, repo, "main") == START | {"new/a": job.id}
    assert jobs.get(lake, repo, other.id).state is JobState.RUNNING, "it may still be published otherwise"


def _at(entry: Entry, path: str) -> Entry:
    return Entry(path=path, address=entry.address, size=entry.size, checksum=entry.checksum, mtime_ms=entry.mtime_ms)


def test_a_branch_with_uncommitted_changes_takes_no_job(lake: Lake, repo: Repository) -> None:
    job = jobs.start(lake, repo, "main")
    put(lake, repo, "main", "staged")
    with pytest.raises(InvalidError, match="uncommitted"):
        jobs.start(lake, repo, "main")
    with pytest.raises(InvalidError, match="uncommitted"):
        jobs.publish(lake, repo, job.id, _written(lake, repo, job, "a"))
    entries.delete(lake, repo, "main", "staged")
    jobs.publish(lake, repo, job.id, _written(lake, repo, job, "a"))
    assert "t/a" in contents(lake, repo, "main")


def test_marks_of_directories_are_no_uncommitted_changes(lake: Lake, repo: Repository) -> None:
    """They are committed along, before the job: whoever writes files makes directories on the way."""
    job = jobs.start(lake, repo, "main")
    for mark in ("t/", "new/"):
        entries.put(lake, repo, "main", Entry(path=mark, address="data/0", size=0, checksum="", mtime_ms=0))
    jobs.publish(lake, repo, job.id, _written(lake, repo, job, "a", deletes=[TABLE]))
    assert set(contents(lake, repo, "main")) == {"beside", "new/", "t/a"}
    assert not uncommitted(lake, repo)
    other = jobs.start(lake, repo, "main")
    put(lake, repo, "main", "staged")
    entries.put(lake, repo, "main", Entry(path="another/", address="data/0", size=0, checksum="", mtime_ms=0))
    assert kind_of(lambda: jobs.publish(lake, repo, other.id, _written(lake, repo, other, "b"))) is Kind.DIRTY_BRANCH
    assert uncommitted(lake, repo) == ["another/", "staged"]


# the same again


def test_publishing_again_gives_the_same_commit(lake: Lake, repo: Repository) -> None:
    job = jobs.start(lake, repo, "main")
    changes = _written(lake, repo, job, "a")
    made = jobs.publish(lake, repo, job.id, changes)
    _append(lake, repo, "other", "o")
    before = head(lake, repo)
    assert jobs.publish(lake, repo, job.id, changes) == made
    assert head(lake, repo) == before


def test_starting_again_by_the_same_id_is_the_same_job(lake: Lake, repo: Repository) -> None:
    job = jobs.start(lake, repo, "main", job_id="j1")
    _append(lake, repo, "other", "o")
    assert jobs.start(lake, repo, "main", job_id="j1") == job


@pytest.mark.parametrize("transaction", [False, True])
def test_an_id_is_good_for_one_branch_and_kind_of_job(lake: Lake, repo: Repository, transaction: bool) -> None:
    branches.create(lake, repo, "side", "main")
    jobs.start(lake, repo, "main", job_id="j1", transaction=transaction)
    assert kind_of(lambda: jobs.start(lake, repo, "side", job_id="j1", transaction=transaction)) is Kind.JOB_EXISTS
    assert kind_of(lambda: jobs.start(lake, repo, "main", job_id="j1", transaction=not transaction)) is Kind.JOB_EXISTS


def test_an_id_that_was_published_is_not_started_again(lake: Lake, repo: Repository) -> None:
    _append(lake, repo, "batch-7", "a")
    with pytest.raises(ConflictError) as raised:
        jobs.start(lake, repo, "main", job_id="batch-7")
    assert raised.value.kind is Kind.JOB_EXISTS


def test_an_aborted_id_begins_anew_at_the_head_of_now(lake: Lake, repo: Repository) -> None:
    jobs.start(lake, repo, "main", job_id="batch-7")
    jobs.abort(lake, repo, "batch-7")
    put(lake, repo, "main", "t/x1", content="others")
    now = commit.commit(lake, repo, "main", "others")
    assert jobs.start(lake, repo, "main", job_id="batch-7").base == now
    _overwrite(lake, repo, "batch-7", "a")  # what others did is older than this life of the job
    assert _table(lake, repo) == {"t/a": "batch-7"}


def test_a_job_is_not_published_while_it_begins_anew_and_then_once_more(setup: Setup) -> None:
    """A publication that stalled through an abort lands in the job's next life: the next life's own is then that."""
    lake, repo = setup.lake, setup.repo
    job = jobs.start(lake, repo, "main", job_id="batch-7")
    changes = _written(lake, repo, job, "a")
    stalled = _Stalls(lambda call: call.method == "put_if" and call.name.startswith("branches/"))

    def meanwhile() -> None:
        jobs.abort(lake, repo, "batch-7")
        jobs.start(lake, repo, "main", job_id="batch-7")

    stalled.then = meanwhile
    late = jobs.publish(setup.again(FaultyKV(setup.kv, _no_fault, stalled)), repo, "batch-7", changes)
    assert jobs.publish(setup.again(), repo, "batch-7", changes) == late
    assert len([*history_of(lake, repo)]) == len([*history_of(setup.lake, repo, "main")])
    assert [name for name in history_of(lake, repo) if lake.commits(repo).get(name).metadata.get(jobs.JOB)] == [late]


class _Stalls:
    """Does something else, once, just before the first call that is meant."""

    def __init__(self, meant: Callable[[Call], bool]) -> None:
        self.meant = meant
        self.then: Callable[[], object] = lambda: None
        self.done = False

    def __call__(self, call: Call) -> None:
        if not self.done and self.meant(call):
            self.done = True
            self.then()


def _no_fault(_: Call) -> None:
    return None


# others at the same time


def test_concurrent_appends_all_land(lake: Lake, repo: Repository) -> None:
    made = together([partial(_append, lake, repo, f"j{n}", f"f{n}") for n in range(WRITERS)])
    assert len(set(made)) == WRITERS
    assert _table(lake, repo) == {"t/x1": "old", "t/x2": "old"} | {f"t/f{n}": f"j{n}" for n in range(WRITERS)}


def test_of_concurrent_overwrites_the_last_wins_whole(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    other = setup.again()
    started = [jobs.start(lake, repo, "main", job_id=f"j{n}") for n in range(WRITERS)]

    def publish(at: int, job: Job) -> CommitID:
        mine = (lake, other)[at % 2]
        names = [f"own{at}", "shared"]
        return jobs.publish(mine, repo, job.id, _written(mine, repo, job, *names, deletes=[TABLE]))

    made = together([partial(publish, at, job) for at, job in enumerate(started)])
    for name in made:
        shown_then = _table(lake, repo, name)
        (writer,) = set(shown_then.values())
        assert shown_then == {"t/shared": writer, f"t/own{writer[1:]}": writer}
    assert head(lake, repo) in made


@pytest.mark.parametrize("first", ["append", "overwrite"])
def test_an_append_and_an_overwrite_equal_the_order_of_landing(lake: Lake, repo: Repository, first: str) -> None:
    appending = jobs.start(lake, repo, "main", job_id="add")
    overwriting = jobs.start(lake, repo, "main", job_id="over")
    steps = {
        "append": lambda: jobs.publish(lake, repo, "add", _written(lake, repo, appending, "a")),
        "overwrite": lambda: jobs.publish(lake, repo, "over", _written(lake, repo, overwriting, "o", deletes=[TABLE])),
    }
    steps.pop(first)()
    next(iter(steps.values()))()
    assert _table(lake, repo) == ({"t/o": "over"} if first == "append" else {"t/o": "over", "t/a": "add"})


@pytest.mark.parametrize("files", [1, 64])
def test_the_branch_is_swapped_once_a_job_whatever_its_size(files: int) -> None:
    setup = _base()
    counting = CountingKV(setup.kv)
    lake, repo = setup.again(counting), setup.repo
    job = jobs.start(lake, repo, "main")
    changes = _written(lake, repo, job, *(f"f{n:03}" for n in range(files)))
    counting.reset()
    jobs.publish(lake, repo, job.id, changes)
    assert counting.partitions["put_if", f"branches/{repo.uid}"] == 1
    assert counting.partitions["put_if", f"jobs/{repo.uid}"] == 1


def test_what_others_changed_under_a_job_is_told_with_the_paths(lake: Lake, repo: Repository) -> None:
    job = jobs.start(lake, repo, "main")
    changes = _written(lake, repo, job, "a", deletes=[TABLE])
    put(lake, repo, "main", "t/x1", "t/new", "beside", content="others")
    theirs = commit.commit(lake, repo, "main", "others")
    with pytest.raises(ConflictError, match="'t/new', 't/x1'") as raised:
        jobs.publish(lake, repo, job.id, changes)
    assert (raised.value.kind, raised.value.paths) == (Kind.JOB_OVERLAP, ["t/new", "t/x1"])
    assert head(lake, repo) == theirs
    jobs.publish(lake, repo, job.id, changes, force=True)
    assert contents(lake, repo, "main") == {"beside": "others", "t/a": job.id}


def test_what_others_changed_beside_is_no_overlap(lake: Lake, repo: Repository) -> None:
    job = jobs.start(lake, repo, "main")
    put(lake, repo, "main", "beside", "t", "t0", content="others")
    commit.commit(lake, repo, "main", "others")
    jobs.publish(lake, repo, job.id, _written(lake, repo, job, "a", deletes=[TABLE]))
    assert contents(lake, repo, "main") == {"beside": "others", "t": "others", "t0": "others", "t/a": job.id}


def test_an_append_that_names_a_path_of_another_commit_is_an_overlap(lake: Lake, repo: Repository) -> None:
    job = jobs.start(lake, repo, "main")
    put(lake, repo, "main", "t/a", content="others")
    commit.commit(lake, repo, "main", "others")
    with pytest.raises(ConflictError) as raised:
        jobs.publish(lake, repo, job.id, _written(lake, repo, job, "a"))
    assert raised.value.paths == ["t/a"]


def test_an_overlap_that_lands_while_the_job_does_is_told(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    job = jobs.start(lake, repo, "main")
    changes = _written(lake, repo, job, "a", deletes=[TABLE])
    stalled = _Stalls(lambda call: call.method == "put_if" and call.name.startswith("branches/"))

    def meanwhile() -> None:
        put(lake, repo, "main", "t/x1", content="others")
        commit.commit(lake, repo, "main", "others")

    stalled.then = meanwhile
    late = setup.again(FaultyKV(setup.kv, _no_fault, stalled))
    assert kind_of(lambda: jobs.publish(late, repo, job.id, changes)) is Kind.JOB_OVERLAP
    assert stalled.done
    assert _table(lake, repo) == {"t/x1": "others", "t/x2": "old"}


# lost answers


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST])
def test_a_publication_that_failed_anywhere_is_repeated_and_lands_once(fault: Fault) -> None:
    """At each call in turn: whatever the first try says, the second leaves the job in the history once."""
    for number in count():
        setup = _base()
        lake, repo = setup.lake, setup.repo
        job = jobs.start(lake, repo, "main", job_id="j1")
        changes = _written(lake, repo, job, "a", deletes=[TABLE])
        calls = count()
        hit: list[Call] = []

        def decide(
            call: Call, calls: "count[int]" = calls, hit: list[Call] = hit, number: int = number
        ) -> Fault | None:
            if next(calls) != number:
                return None
            hit.append(call)
            return fault

        faulty = setup.again(FaultyKV(setup.kv, decide), FaultyBlobs(setup.blobs, decide))
        told = kind_of(partial(jobs.publish, faulty, repo, "j1", changes))
        if not hit:
            assert number > 5
            return
        assert told in (None, Kind.STORE_UNAVAILABLE, Kind.OUTCOME_UNKNOWN), f"{hit[0]}: {told}"
        assert _table(lake, repo) in ({"t/x1": "old", "t/x2": "old"}, {"t/a": "j1"})
        made = jobs.publish(setup.again(), repo, "j1", changes)
        assert _table(setup.again(), repo) == {"t/a": "j1"}
        assert [name for name in history_of(lake, repo) if lake.commits(repo).get(name).metadata] == [made]


# aborting


def test_an_aborted_job_is_not_published_and_can_be_aborted_again(lake: Lake, repo: Repository) -> None:
    job = jobs.start(lake, repo, "main")
    changes = _written(lake, repo, job, "a")
    assert jobs.abort(lake, repo, job.id).state is JobState.ABORTED
    assert jobs.abort(lake, repo, job.id).state is JobState.ABORTED
    assert kind_of(lambda: jobs.publish(lake, repo, job.id, changes)) is Kind.JOB_ABORTED
    assert kind_of(lambda: jobs.beat(lake, repo, job.id)) is Kind.JOB_ABORTED
    assert contents(lake, repo, "main") == START


def test_an_abort_after_the_publication_tells_its_commit_and_undoes_nothing(lake: Lake, repo: Repository) -> None:
    made = _append(lake, repo, "j1", "a")
    ended = jobs.abort(lake, repo, "j1")
    assert (ended.state, ended.commit) == (JobState.PUBLISHED, made)
    assert "t/a" in contents(lake, repo, "main")


def test_an_abort_finds_a_publication_whose_answer_was_lost(setup: Setup) -> None:
    """The swap landed, and the server died before it wrote that down."""
    lake, repo = setup.lake, setup.repo
    job = jobs.start(lake, repo, "main")
    changes = _written(lake, repo, job, "a")

    def decide(call: Call) -> Fault | None:
        return Fault.REFUSED if call.method == "put_if" and call.name.startswith("jobs/") else None

    assert kind_of(lambda: jobs.publish(setup.again(FaultyKV(setup.kv, decide)), repo, job.id, changes))
    assert jobs.get(lake, repo, job.id).state is JobState.RUNNING
    ended = jobs.abort(lake, repo, job.id)
    assert (ended.state, ended.commit) == (JobState.PUBLISHED, head(lake, repo))


@pytest.mark.parametrize("at", range(40))
def test_an_abort_at_any_call_of_a_publication_tells_what_became_of_it(at: int) -> None:
    setup = _base()
    lake, repo = setup.lake, setup.repo
    job = jobs.start(lake, repo, "main")
    changes = _written(lake, repo, job, "a")
    calls = count()
    ended: list[Job] = []

    def on_call(_: Call) -> None:
        if next(calls) == at:
            ended.append(jobs.abort(lake, repo, job.id))

    late = setup.again(FaultyKV(setup.kv, _no_fault, on_call), FaultyBlobs(setup.blobs, _no_fault, on_call))
    told = kind_of(lambda: jobs.publish(late, repo, job.id, changes))
    landed = "t/a" in contents(setup.again(), repo, "main")
    if not ended:  # it has fewer calls
        assert told is None
        assert landed
        return
    assert landed == (ended[0].state is JobState.PUBLISHED)
    if ended[0].state is JobState.ABORTED:
        assert told is Kind.JOB_ABORTED
    else:
        assert ended[0].commit == head(setup.again(), repo)


def test_aborts_and_publications_in_threads_agree(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    other = setup.again()
    for number in range(20):
        job = jobs.start(lake, repo, "main", job_id=f"j{number}")
        changes = _written(lake, repo, job, f"f{number}")
        told, ended = together(
            [
                partial(_answer, partial(jobs.publish, lake, repo, job.id, changes)),
                partial(jobs.abort, other, repo, job.id),
            ]
        )
        landed = f"t/f{number}" in contents(lake, repo, "main")
        assert landed == (ended.state is JobState.PUBLISHED)
        assert (told == ended.commit) if landed else (told is Kind.JOB_ABORTED)


def _answer(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except EskerError as error:
        return error.kind


# leftovers


def test_jobs_without_a_sign_of_life_are_aborted_and_ended_ones_forgotten(lake: Lake, repo: Repository) -> None:
    for name in ("dead", "done", "given-up"):
        jobs.start(lake, repo, "main", job_id=name)
    jobs.publish(lake, repo, "done", Changes(changes_of()))
    jobs.abort(lake, repo, "given-up")
    assert jobs.clean(lake, repo, older_than_s=3600) == []
    assert [job.id for job in jobs.every(lake, repo)] == ["dead", "done", "given-up"]
    assert [job.id for job in jobs.clean(lake, repo, older_than_s=-1)] == ["dead"]
    assert [(job.id, job.state) for job in jobs.every(lake, repo)] == [("dead", JobState.ABORTED)]
    jobs.clean(lake, repo, older_than_s=-1)
    assert [*jobs.every(lake, repo)] == []


def test_the_last_batch_of_a_stream_is_remembered_however_long_ago_it_was(lake: Lake, repo: Repository) -> None:
    """It comes again if its driver died before it noted that it was done, and may do so after a long week-end."""
    for number in (8, 9, 10, 11):
        jobs.start(lake, repo, "main", job_id=f"stream-{number}")
    made = {n: jobs.publish(lake, repo, f"stream-{n}", Changes(changes_of())) for n in (8, 9, 10)}
    jobs.abort(lake, repo, "stream-11")
    jobs.clean(lake, repo, older_than_s=-1)
    assert [job.id for job in jobs.every(lake, repo)] == ["stream-10"]
    assert jobs.publish(lake, repo, "stream-10", Changes(changes_of())) == made[10]


def test_a_beat_keeps_a_job(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    job = jobs.start(lake, repo, "main")
    assert jobs.beat(lake, repo, job.id).seen_ms >= job.seen_ms
    assert jobs.clean(lake, repo, older_than_s=60) == []


def test_jobs_are_listed_from_behind_one(lake: Lake, repo: Repository) -> None:
    for name in ("a", "b", "b-1", "c"):
        jobs.start(lake, repo, "main", job_id=name)
    assert [job.id for job in jobs.every(lake, repo, after="b")] == ["b-1", "c"]


def test_a_mistyped_id_is_told_what_was_meant(lake: Lake, repo: Repository) -> None:
    jobs.start(lake, repo, "main", job_id="nightly")
    with pytest.raises(NotFoundError, match="nightly"):
        jobs.get(lake, repo, "nigthly")


# transactions


def _stage(lake: Lake, repo: Repository, outer: Job, table: str, *, overwrite: bool = False) -> Job:
    inner = jobs.start(lake, repo, outer.own_branch)
    address = f"{inner.data}f"
    lake.blobs(repo).put(address, b"12345")
    made = Entry(path=f"{table}/f", address=address, size=5, checksum=outer.id, mtime_ms=0)
    jobs.publish(lake, repo, inner.id, Changes(changes_of([made]), (f"{table}/",) if overwrite else ()))
    return inner


def test_a_transaction_is_seen_whole_or_not_at_all(lake: Lake, repo: Repository) -> None:
    before = head(lake, repo)
    outer = jobs.start(lake, repo, "main", transaction=True)
    _stage(lake, repo, outer, "t", overwrite=True)
    _stage(lake, repo, outer, "u")
    assert contents(lake, repo, "main") == START
    assert contents(lake, repo, outer.own_branch) == {"beside": "old", "t/f": outer.id, "u/f": outer.id}
    made = jobs.publish_transaction(lake, repo, outer.id, message="both")
    assert [*history_of(lake, repo)][:2] == [made, before]
    assert contents(lake, repo, "main") == {"beside": "old", "t/f": outer.id, "u/f": outer.id}
    assert lake.branches(repo).find(outer.own_branch) is None
    assert jobs.publish_transaction(lake, repo, outer.id) == made


def test_a_transaction_lands_on_what_others_published_meanwhile(lake: Lake, repo: Repository) -> None:
    outer = jobs.start(lake, repo, "main", transaction=True)
    _stage(lake, repo, outer, "t", overwrite=True)
    _append(lake, repo, "other", "late")
    _overwrite(lake, repo, "another", "later")
    jobs.publish_transaction(lake, repo, outer.id)
    assert _table(lake, repo) == {"t/f": outer.id}


def test_a_transaction_is_started_again_by_its_id(lake: Lake, repo: Repository) -> None:
    outer = jobs.start(lake, repo, "main", job_id="tx1", transaction=True)
    _stage(lake, repo, outer, "t")
    assert jobs.start(lake, repo, "main", job_id="tx1", transaction=True).base == outer.base
    jobs.publish_transaction(lake, repo, "tx1")
    assert "t/f" in contents(lake, repo, "main")


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST])
def test_starting_a_transaction_is_repeated_after_a_fault_at_any_call(fault: Fault) -> None:
    for number in count():
        setup = _base()
        calls = count()
        hit: list[Call] = []

        def decide(call: Call, calls: "count[int]" = calls, hit: list[Call] = hit, number: int = number) -> Any:
            if next(calls) == number:
                hit.append(call)
                return fault
            return None

        faulty = setup.again(FaultyKV(setup.kv, decide))
        kind_of(partial(jobs.start, faulty, setup.repo, "main", job_id="tx", transaction=True))
        if not hit:
            return
        lake = setup.again()
        outer = jobs.start(lake, setup.repo, "main", job_id="tx", transaction=True)
        _stage(lake, setup.repo, outer, "t")
        jobs.publish_transaction(lake, setup.repo, "tx")
        assert "t/f" in contents(lake, setup.repo, "main")


def test_an_aborted_transaction_leaves_nothing(lake: Lake, repo: Repository) -> None:
    outer = jobs.start(lake, repo, "main", transaction=True)
    _stage(lake, repo, outer, "t", overwrite=True)
    jobs.abort(lake, repo, outer.id)
    assert contents(lake, repo, "main") == START
    assert lake.branches(repo).find(outer.own_branch) is None
    assert kind_of(lambda: jobs.publish_transaction(lake, repo, outer.id)) is Kind.JOB_ABORTED
    assert kind_of(lambda: jobs.start(lake, repo, outer.own_branch)) is Kind.BRANCH_NOT_FOUND


def test_what_was_written_in_an_aborted_life_of_a_transaction_is_not_part_of_the_next(
    lake: Lake, repo: Repository
) -> None:
    outer = jobs.start(lake, repo, "main", job_id="batch-7", transaction=True)
    _stage(lake, repo, outer, "t")
    late = jobs.start(lake, repo, outer.own_branch)
    written = _written(lake, repo, late, "late")
    jobs.abort(lake, repo, outer.id)
    again = jobs.start(lake, repo, "main", job_id="batch-7", transaction=True)
    assert kind_of(lambda: jobs.publish(lake, repo, late.id, written)) is Kind.JOB_ABORTED
    _stage(lake, repo, again, "u")
    jobs.publish_transaction(lake, repo, again.id)
    assert contents(lake, repo, "main") == START | {"u/f": "batch-7"}


def test_a_transaction_in_which_nothing_was_written_is_no_commit(lake: Lake, repo: Repository) -> None:
    before = head(lake, repo)
    outer = jobs.start(lake, repo, "main", transaction=True)
    assert jobs.publish_transaction(lake, repo, outer.id) == before
    assert head(lake, repo) == before


def test_what_others_changed_under_a_transaction_is_told(lake: Lake, repo: Repository) -> None:
    outer = jobs.start(lake, repo, "main", transaction=True)
    _stage(lake, repo, outer, "t", overwrite=True)
    put(lake, repo, "main", "t/x1", content="others")
    commit.commit(lake, repo, "main", "others")
    with pytest.raises(ConflictError, match="t/x1"):
        jobs.publish_transaction(lake, repo, outer.id)
    assert contents(lake, repo, outer.own_branch)["t/f"] == outer.id, "it can still be forced"
    jobs.publish_transaction(lake, repo, outer.id, force=True)
    assert _table(lake, repo) == {"t/f": outer.id}


def test_what_had_to_be_empty_in_a_transaction_has_to_be_when_it_lands(lake: Lake, repo: Repository) -> None:
    outer = jobs.start(lake, repo, "main", transaction=True)
    inner = jobs.start(lake, repo, outer.own_branch)
    made = _at(_file(lake, repo, inner, "f"), "new/f")
    jobs.publish(lake, repo, inner.id, Changes(changes_of([made])), expect_empty=["new/"])
    again = jobs.start(lake, repo, outer.own_branch)
    assert kind_of(lambda: jobs.publish(lake, repo, again.id, Changes(changes_of()), expect_empty=["new/"]))
    other = jobs.start(lake, repo, "main")
    theirs = _at(_file(lake, repo, other, "g"), "new/g")
    jobs.publish(lake, repo, other.id, Changes(changes_of([theirs])))
    assert kind_of(lambda: jobs.publish_transaction(lake, repo, outer.id)) is Kind.OBJECT_EXISTS
    assert set(shown(lake, repo, "main")) == {*START, "new/g"}


def test_tables_of_one_transaction_are_written_at_once(lake: Lake, repo: Repository) -> None:
    outer = jobs.start(lake, repo, "main", transaction=True)
    together([partial(_stage, lake, repo, outer, f"t{n}") for n in range(WRITERS)])
    jobs.publish_transaction(lake, repo, outer.id)
    assert {f"t{n}/f" for n in range(WRITERS)} <= set(contents(lake, repo, "main"))


def test_a_reader_sees_old_or_new_through_every_call_of_a_publication() -> None:
    setup = _base()
    lake, repo = setup.lake, setup.repo
    job = jobs.start(lake, repo, "main")
    changes = _written(lake, repo, job, "a", "b", deletes=[TABLE])
    seen: list[dict[str, str]] = []
    reading = threading.local()

    def on_call(_: Call) -> None:
        if not getattr(reading, "now", False):
            reading.now = True
            seen.append(_table(lake, repo))
            reading.now = False

    watched = setup.again(FaultyKV(setup.kv, _no_fault, on_call), FaultyBlobs(setup.blobs, _no_fault, on_call))
    jobs.publish(watched, repo, job.id, changes)
    old, new = {"t/x1": "old", "t/x2": "old"}, {"t/a": job.id, "t/b": job.id}
    assert old in seen
    assert all(state in (old, new) for state in seen)
    assert _table(lake, repo) == new


def test_two_lakes_start_one_id_at_once_and_both_have_the_job() -> None:
    setup = _base()
    lakes = [setup.lake, *(setup.again() for _ in range(WRITERS - 1))]
    started = together([partial(jobs.start, one, setup.repo, "main", job_id="j") for one in lakes])
    assert len({(job.id, job.started_ms) for job in started}) == 1


def test_the_outcome_of_a_swap_that_nobody_can_know_is_told_as_that(setup: Setup) -> None:
    lake, repo = setup.lake, setup.repo
    job = jobs.start(lake, repo, "main")
    changes = _written(lake, repo, job, "a")
    lost = threading.Event()

    def decide(call: Call) -> Fault | None:
        if lost.is_set():
            return Fault.REFUSED
        if call.method == "put_if" and call.name.startswith("branches/"):
            lost.set()
            return Fault.LOST
        return None

    with pytest.raises(OutcomeUnknownError):
        jobs.publish(setup.again(FaultyKV(setup.kv, decide)), repo, job.id, changes)
    assert jobs.abort(lake, repo, job.id).state is JobState.PUBLISHED
