"""Collecting garbage: after any history, what refs reach is there, and what they do not reach goes, when it is time."""

import dataclasses
import itertools
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import esker
from esker import activity
from esker.engine import (
    branches,
    commit,
    dumps,
    entries,
    garbage,
    jobs,
    merge,
    objects,
    reset,
    retention,
    stashes,
    steps,
    tasks,
    tenure,
)
from esker.engine.cleaning import Cleaner
from esker.engine.retention import BranchRetention, Retention
from esker.errors import ConflictError, ContentionError, EskerError, ForbiddenError, InvalidError, Kind
from esker.model import Entry
from esker.refs import history, tags
from esker.stores.open_kv import sqlite_url
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from tests.engine.lakes import Clock, committed, head, history_of, kind_of, shown
from tests.engine.worn import DAY_S, GRACE_S, Worn, files, live_through


@pytest.mark.parametrize("seed", range(12))
def test_what_refs_reach_stays_and_all_else_goes_after_any_history(seed: int) -> None:
    dice = random.Random(seed)
    worn = Worn()
    cleaner = Cleaner(worn.lake, worn.repo)
    for _ in range(120):
        with suppress(EskerError):  # there is no such branch, say
            live_through(worn.lake, worn.repo, dice)
        if dice.random() < 0.1:
            worn.wait(dice.choice([1.0, GRACE_S / 2, GRACE_S * 1.5]))
            worn.collect()
            assert worn.reachable() <= worn.files()
        if dice.random() < 0.1:
            cleaner.run()
    while cleaner.run():
        pass
    reached = worn.reachable()
    worn.collect_all()
    assert worn.files() == reached == worn.reachable()


def test_nothing_goes_that_was_found_dead_only_once() -> None:
    worn = Worn()
    gone = worn.put("a/1")
    worn.commit()
    worn.put("a/1", text="new")
    reset.reset(worn.lake, worn.repo, "main")
    entries.delete(worn.lake, worn.repo, "main", "a/1")
    branches.create(worn.lake, worn.repo, "old", "main")
    worn.commit()
    merge.move(worn.lake, worn.repo, "main", "main~1")
    dead = worn.put("b/1")
    reset.reset(worn.lake, worn.repo, "main")
    worn.wait(GRACE_S * 3)
    first = worn.collect()
    assert (first.deleted, worn.there(dead), worn.there(gone)) == (0, True, True)
    assert first.dead > 0
    assert first.next_ms is not None
    worn.wait(GRACE_S / 2)
    assert worn.collect().deleted == 0
    worn.wait(GRACE_S / 2 + 1)
    dry = worn.collect(dry_run=True)
    assert dry.deleted > 0
    assert worn.there(dead)
    done = worn.collect()
    assert (done.deleted, done.deleted_bytes) == (dry.deleted, dry.deleted_bytes)
    assert not worn.there(dead)
    assert worn.there(gone), "the branch still shows it"


def test_what_came_back_to_life_between_two_marks_starts_over() -> None:
    worn = Worn()
    entry = worn.put("a/1")
    reset.reset(worn.lake, worn.repo, "main")
    worn.wait(GRACE_S + 1)
    worn.collect()
    entries.put(worn.lake, worn.repo, "main", entry)
    worn.wait(GRACE_S + 1)
    worn.collect()
    reset.reset(worn.lake, worn.repo, "main")
    worn.collect()
    assert worn.there(entry)
    worn.wait(GRACE_S + 1)
    worn.collect()
    assert not worn.there(entry)


def test_rules_let_go_of_commits_that_ceased_to_be_a_head_long_ago() -> None:
    worn = Worn()
    old = worn.put("a/1", text="old")
    worn.commit()
    branches.create(worn.lake, worn.repo, "slow", "main")
    worn.wait(10 * DAY_S)
    newer = worn.put("a/1", text="newer")
    worn.commit()
    worn.put("a/1", text="newest")
    worn.commit()
    retention.set_rules(worn.lake, worn.repo, Retention(default_days=5, branches=(BranchRetention("slow", 30),)))
    worn.collect_all()
    assert worn.there(old), "the head of another branch"
    branches.delete(worn.lake, worn.repo, "slow")
    worn.collect_all()
    assert worn.there(newer), "it was the head less than five days ago"
    assert worn.there(old), "and so was the one before it"
    worn.wait(6 * DAY_S)
    worn.collect_all()
    assert not worn.there(old)
    assert not worn.there(newer)
    assert list(shown(worn.lake, worn.repo, "main")) == ["a/1"]
    _, *history = history_of(worn.lake, worn.repo)
    assert len(history) == 3, "commits stay in the log"
    again = worn.setup.again()
    assert kind_of(lambda: committed(again, worn.repo, history[0])) is Kind.MISSING_FILE


def test_blobs_of_a_running_job_stay_and_those_of_an_aborted_one_go() -> None:
    worn = Worn()
    job = jobs.start(worn.lake, worn.repo, "main", job_id="job")
    address = f"{job.data}part-0"
    worn.blobs.put(address, b"x")
    worn.collect_all()
    entry = Entry(path="t/0", address=address, size=1, checksum="c", mtime_ms=0)
    assert worn.there(entry)
    jobs.publish(worn.lake, worn.repo, "job", Changes(changes_of([entry])))
    worn.collect_all()
    assert worn.there(entry)
    other = jobs.start(worn.lake, worn.repo, "main", job_id="other")
    worn.blobs.put(f"{other.data}part-0", b"x")
    jobs.abort(worn.lake, worn.repo, "other")
    worn.collect_all()
    assert worn.blobs.head(f"{other.data}part-0") is None


def test_a_swap_that_was_stalled_since_before_the_mark_is_refused() -> None:
    worn = Worn()
    made = worn.lake.branches(worn.repo)
    found = worn.lake.kv.get(f"branches/{worn.repo.uid}", b"main")
    assert found is not None
    garbage.touch(worn.lake, worn.repo)
    assert not worn.lake.kv.put_if(f"branches/{worn.repo.uid}", b"main", found.value, found.version)
    assert made.get("main").seq == 1


def test_a_stash_can_be_popped_though_its_commit_is_on_no_branch_any_more() -> None:
    worn = Worn()
    worn.put("a/1")
    worn.commit()
    worn.put("b/1")
    stashes.stash(worn.lake, worn.repo, "main", "s")
    merge.move(worn.lake, worn.repo, "main", "main~1")
    worn.collect_all()
    worn.lake = worn.setup.again()
    stashes.pop(worn.lake, worn.repo, "main", "s")
    assert list(shown(worn.lake, worn.repo, "main")) == ["b/1"]


@pytest.mark.parametrize("seed", range(6))
def test_rules_of_any_kind_keep_what_they_say_after_any_history(seed: int) -> None:
    """Days pass between the steps, so that some commits are let go of and others are not."""
    dice = random.Random(100 + seed)
    worn = Worn()
    cleaner = Cleaner(worn.lake, worn.repo)
    for _ in range(80):
        with suppress(EskerError):
            live_through(worn.lake, worn.repo, dice)
        if dice.random() < 0.2:
            worn.wait(dice.choice([0.2, 1, 3]) * DAY_S)
    slow = (BranchRetention("dev", dice.choice([0, 2, 30])),)
    retention.set_rules(worn.lake, worn.repo, Retention(default_days=dice.choice([0, 1, 5]), branches=slow))
    while cleaner.run():
        pass
    worn.collect_all()
    assert worn.files() == worn.reachable()
    for branch in ("main", "dev", "x"):
        if worn.lake.branches(worn.repo).find(branch):
            assert list(history_of(worn.lake, worn.repo, branch)), "every log can be followed to its end"
    kept, get = garbage.reach(worn.lake, worn.repo, worn.clock.ms).commits, worn.lake.commits(worn.repo).get
    heads = [record.commit for _, record in worn.lake.branches(worn.repo).page("", 100)]
    assert {history.merge_base(get, *two) for two in itertools.combinations(heads, 2)} <= kept, "all can be merged"


def test_with_zero_days_only_heads_and_tags_are_kept() -> None:
    worn = Worn()
    made = {}
    for name in ("first", "tagged", "third", "head"):
        made[name] = worn.put("a/1", text=name)
        worn.commit()
        if name == "tagged":
            tags.create(worn.lake.kv, worn.repo.uid, "v1", head(worn.lake, worn.repo))
    retention.set_rules(worn.lake, worn.repo, Retention(default_days=0))
    worn.collect_all()
    assert {name for name, entry in made.items() if worn.there(entry)} == {"tagged", "head"}


def test_what_was_uploaded_and_is_not_linked_yet_stays_for_the_grace_time_and_then_twice() -> None:
    worn = Worn()
    worn.collect()
    address = objects.fresh_address(worn.lake)
    worn.blobs.put(address, b"x")
    worn.wait(GRACE_S - 10)
    assert worn.collect().dead == 0, "too young to be looked at"
    worn.wait(20)
    assert worn.collect().dead == 1
    worn.wait(GRACE_S - 20)
    assert worn.collect().deleted == 0, "found dead not so long ago"
    worn.wait(30)
    assert worn.collect().by_prefix == {"data/": (1, 1)}
    assert worn.blobs.head(address) is None


def test_files_elsewhere_are_never_touched_and_own_ones_are_known_by_their_url_too() -> None:
    worn = Worn()
    inside, outside = objects.fresh_address(worn.lake), "elsewhere/data/00/x"
    worn.blobs.put(inside, b"x")
    worn.blobs.put(outside, b"x")
    for path, address in (("own", f"{worn.repo.namespace}/{inside}"), ("other", "s3://bucket/elsewhere/data/00/x")):
        entry = Entry(path=path, address=address, size=1, checksum="c", mtime_ms=0)
        entries.put(worn.lake, worn.repo, "main", entry)
    worn.commit()
    worn.collect_all()
    assert worn.blobs.head(inside) is not None
    assert worn.blobs.head(outside) is not None


def test_a_running_task_keeps_its_files_and_one_that_died_does_not() -> None:
    worn = Worn()
    task = tasks.start(worn.lake, worn.repo, "import")
    worn.blobs.put(f"{task.data}part", b"x")
    worn.wait(GRACE_S + 1)
    tasks.update(worn.lake, worn.repo, task.id)
    assert worn.collect().dead == 0
    worn.collect_all()
    worn.collect_all()
    assert worn.blobs.head(f"{task.data}part") is None


def test_it_leaves_a_task_and_no_files_of_its_own_but_its_note() -> None:
    worn = Worn()
    worn.put("a/1")
    reset.reset(worn.lake, worn.repo, "main")
    worn.wait(GRACE_S + 1)
    found = worn.collect()
    (task,) = tasks.every(worn.lake, worn.repo)
    assert (task.kind, task.state, task.summary["dead"]) == ("gc", "done", found.dead)
    assert task.progress["listed"] == found.listed - 1, "commits are not listed as files are"
    own = [info.name for info in worn.blobs.list("_esker/gc/") if info.name not in (tenure.FILE, dumps.RELEASED)]
    assert len(own) == 1
    worn.wait(GRACE_S + 1)
    worn.collect()
    assert not [name for name in own if worn.blobs.head(name)], "its place was taken"


def test_what_a_killed_one_left_goes_with_the_next_one_days_later() -> None:
    worn = Worn()
    worn.blobs.put("_esker/gc/killed/listed-1", b"x")
    worn.wait(GRACE_S + 1)
    worn.collect()
    assert worn.blobs.head("_esker/gc/killed/listed-1"), "it may be at work"
    worn.wait(garbage.GRACE_S + 1)
    worn.collect()
    assert worn.blobs.head("_esker/gc/killed/listed-1") is None


def test_one_that_is_told_to_stop_deletes_nothing() -> None:
    worn = Worn()
    dead = worn.put("a/1")
    reset.reset(worn.lake, worn.repo, "main")
    worn.wait(GRACE_S + 1)
    worn.collect()
    worn.wait(GRACE_S + 1)

    def stop(what: str, _: int) -> None:
        for task in tasks.every(worn.lake, worn.repo):
            if what == "compared" and not task.over:
                tasks.cancel(worn.lake, worn.repo, task.id)

    with pytest.raises(ConflictError):
        garbage.collect(worn.lake, worn.repo, grace_s=GRACE_S, progress=stop)
    assert worn.there(dead)
    assert worn.collect().deleted > 0


def test_one_may_take_days() -> None:
    worn = Worn()
    dead = worn.put("a/1")
    reset.reset(worn.lake, worn.repo, "main")
    kept = worn.put("a/2")

    def slow(what: str, _: int) -> None:
        if what == "listed":
            worn.wait(DAY_S + 1)

    worn.wait(GRACE_S + 1)
    for _ in range(2):
        garbage.collect(worn.lake, worn.repo, grace_s=GRACE_S, progress=slow)
    assert (worn.there(dead), worn.there(kept)) == (False, True)


@pytest.mark.parametrize("buckets", [1, 7])
def test_many_buckets_delete_what_one_does(buckets: int) -> None:
    class Several(steps.InTurn):
        parallel = buckets

    dice = random.Random(5)
    worn = Worn()
    for _ in range(120):
        with suppress(EskerError):
            live_through(worn.lake, worn.repo, dice)
    for _ in range(2):
        worn.wait(GRACE_S + 1)
        report = garbage.collect(worn.lake, worn.repo, grace_s=GRACE_S, run=Several())
    assert worn.files() == worn.reachable()
    assert sum(count for count, _ in report.by_prefix.values()) == report.deleted > 20
    assert list(report.by_prefix) == sorted(report.by_prefix)


def test_repositories_that_share_a_place_know_nothing_of_each_other(tmp_path: Path) -> None:
    with esker.open_lake(tmp_path.as_uri()) as lake:
        shared = f"{tmp_path.as_uri()}/shared"
        one, other = (lake.create_repository(name, namespace=f"{shared}/{name}") for name in ("one", "other"))
        kept = one.branch("main").put("a", b"x")
        one.branch("main").commit("m")
        other.branch("main").put("b", b"x")
        other.branch("main").reset()
        before = files(one.engine, one.record)
        for _ in range(2):
            other.collect_garbage(grace_s=0)
        assert files(one.engine, one.record) == before
        assert one.ref("main").get("a") == b"x"
        assert kept.address in before


def test_a_repository_that_is_read_only_is_not_collected(tmp_path: Path) -> None:
    with esker.open_lake(tmp_path.as_uri()) as lake, pytest.raises(ForbiddenError):
        lake.create_repository("fixed", read_only=True).collect_garbage()


def test_a_repository_whose_refs_are_not_restored_yet_is_not_collected() -> None:
    worn = Worn()
    bare = dumps.create_bare(worn.lake, "bare", "memory://elsewhere")
    with pytest.raises(InvalidError, match="restore"):
        garbage.collect(worn.lake, bare)


def test_what_lay_there_before_the_repository_did_is_none_of_its_garbage() -> None:
    """A place may have had a directory of that name."""
    worn = Worn()
    theirs = ["data/2024/orders.csv", "data/ab/notes.txt", "data/ab/" + "a" * 31, "data/x", "_other/ranges/x"]
    ours = [objects.fresh_address(worn.lake), f"{objects.fresh_address(worn.lake)}-18c,signed", "data/jobs/x/part"]
    for name in theirs + ours:
        worn.blobs.put(name, b"x")
    worn.collect_all()
    assert [name for name in theirs + ours if worn.blobs.head(name)] == theirs


@pytest.mark.parametrize("ahead_s", [10 * GRACE_S, -10 * GRACE_S])
def test_it_goes_by_the_clock_of_the_store_that_dated_the_files(ahead_s: float) -> None:
    """A machine whose clock is wrong finds nothing dead for longer than it was."""
    worn = Worn()
    dead = worn.put("a/1")
    reset.reset(worn.lake, worn.repo, "main")
    worn.wait(20 * GRACE_S)
    wrong = Clock()
    wrong.ms = worn.clock.ms + int(ahead_s * 1000)
    right, other = worn.lake, dataclasses.replace(worn.setup.again(), world=wrong)
    for lake in (right, other) if ahead_s > 0 else (other, right):
        garbage.collect(lake, worn.repo, grace_s=GRACE_S)
        assert worn.there(dead), "found dead just now"
    worn.wait(GRACE_S + 1)
    garbage.collect(other, worn.repo, grace_s=GRACE_S)
    assert not worn.there(dead)


def test_a_copy_of_the_records_that_lags_behind_collects_nothing(tmp_path: Path) -> None:
    """Of what came since, it knows nothing: all of that would be garbage to it."""
    place = f"{tmp_path.as_uri()}/place"

    def collected(kv: Path, *, dry_run: bool = False) -> garbage.Report:
        with esker.open_lake(f"{tmp_path.as_uri()}/lake", kv=sqlite_url(kv)) as lake:
            return lake.repository("repo").collect_garbage(grace_s=-1, dry_run=dry_run)

    real, copy = tmp_path / "real.db", tmp_path / "copy.db"
    with esker.open_lake(f"{tmp_path.as_uri()}/lake", kv=sqlite_url(real)) as lake:
        lake.create_repository("repo", namespace=place)
    shutil.copy(real, copy)
    with esker.open_lake(f"{tmp_path.as_uri()}/lake", kv=sqlite_url(real)) as lake:
        main = lake.repository("repo").branch("main")
        main.put("a", b"x")
        main.commit("m")
    collected(copy, dry_run=True)
    collected(real)
    for _ in range(3):
        with pytest.raises(ForbiddenError, match="newer records") as caught:
            collected(copy)
        assert caught.value.kind is Kind.OTHER_RECORDS
        collected(real)
    with esker.open_lake(f"{tmp_path.as_uri()}/lake", kv=sqlite_url(real)) as lake:
        assert lake.repository("repo").ref("main").get("a") == b"x"


def test_a_place_is_collected_by_one_repository_until_its_records_are_restored_into_another(tmp_path: Path) -> None:
    lake_url, where = f"{tmp_path.as_uri()}/lake", f"{tmp_path.as_uri()}/place"
    with esker.open_lake(lake_url, kv=sqlite_url(tmp_path / "lost.db")) as lost:
        first = lost.create_repository("first", namespace=where)
        first.branch("main").put("a", b"x")
        first.branch("main").commit("m")
        first.collect_garbage(grace_s=-1)
        made = dumps.dump(first.engine, first.record)
    with esker.open_lake(lake_url, kv=sqlite_url(tmp_path / "new.db")) as lake:
        with pytest.raises(ForbiddenError, match="another repository"):
            lake.create_repository("other", namespace=where).collect_garbage(grace_s=-1)
        lake.delete_repository("other")
        again = dumps.create_bare(lake.engine, "again", where)
        dumps.restore(lake.engine, again, dumps.dump_of(made))
        for _ in range(3):
            lake.repository("again").collect_garbage(grace_s=-1)
        assert lake.repository("again").ref("main").get("a") == b"x"


def test_from_a_restore_on_the_place_is_not_collected_by_the_old_records(tmp_path: Path) -> None:
    """Not even if they never collected it, and the new ones did not either."""
    lake_url, place = f"{tmp_path.as_uri()}/lake", f"{tmp_path.as_uri()}/place"
    with (
        esker.open_lake(lake_url, kv=sqlite_url(tmp_path / "old.db")) as old,
        esker.open_lake(lake_url, kv=sqlite_url(tmp_path / "new.db")) as new,
    ):
        first = old.create_repository("repo", namespace=place)
        made = dumps.dump(first.engine, first.record)
        dumps.restore(new.engine, dumps.create_bare(new.engine, "repo", place), dumps.dump_of(made))
        again = new.repository("repo")
        again.branch("main").put("a", b"x")
        for _ in range(2):
            with pytest.raises(ForbiddenError, match="another repository"):
                first.collect_garbage(grace_s=-1)
        for _ in range(2):
            again.collect_garbage(grace_s=-1)
        assert again.ref("main").get("a") == b"x"


class Suspended(Clock):
    """Of a machine that sleeps for a while, when it next draws an id."""

    for_s = 0.0

    def token(self, size: int) -> str:
        self.ms += int(self.for_s * 1000)
        self.for_s = 0.0
        return super().token(size)


def test_what_slept_for_a_day_in_the_middle_of_a_commit_does_not_land() -> None:
    """What it wrote may have been found dead twice, and be gone."""
    worn, asleep = Worn(), Suspended()
    worn.put("a/1")
    lake = dataclasses.replace(worn.setup.again(), world=asleep)
    asleep.for_s = DAY_S + 1
    with pytest.raises(ContentionError, match="begin again"):
        commit.commit(lake, worn.repo, "main", "m")
    assert len(list(history_of(worn.lake, worn.repo))) == 1
    asleep.for_s = DAY_S / 2
    commit.commit(lake, worn.repo, "main", "m")
    assert len(list(history_of(worn.lake, worn.repo))) == 2


def test_no_operation_takes_half_the_grace_time() -> None:
    assert activity.OPERATION_MS_MAX * 2 <= garbage.GRACE_S * 1000


def test_a_repository_that_is_made_where_one_was_deleted_is_collected_and_takes_its_files(tmp_path: Path) -> None:
    with esker.open_lake(tmp_path.as_uri()) as lake:
        repo = lake.create_repository("repo")
        address = repo.branch("main").put("a", b"x").address
        repo.collect_garbage(grace_s=0)
        lake.delete_repository("repo")
        again = lake.create_repository("repo")
        kept = again.branch("main").put("b", b"y").address
        deleted = sum(again.collect_garbage(grace_s=0).deleted for _ in range(2))
        assert deleted
        blobs = lake.engine.blobs(again.record)
        assert (blobs.head(address), blobs.head(kept) is None) == (None, False)
