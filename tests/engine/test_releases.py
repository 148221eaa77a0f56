"""What retention rules let go of: nothing is built on it, and nothing else depends on it."""

from collections.abc import Callable, Iterable, Sequence

import pytest

from esker.engine import branches, exports, fsck, garbage, merge, refs, releases, retention, tasks
from esker.engine.retention import Retention
from esker.errors import EskerError, Kind
from esker.model import CommitID
from esker.stores.kv import KVStore, Put, Version
from esker.stores.kv_memory import MemoryKV
from tests.engine.lakes import committed, head, history_of, kind_of, shown
from tests.engine.worn import DAY_S, GRACE_S, Worn


def released(kv: KVStore | None = None) -> tuple[Worn, list[CommitID]]:
    """A lake that has seen all of its history, and keeps what it saw; and that history, the newest first, of which
    rules have let go but for the head. What only former commits showed is gone from the store."""
    worn = Worn(kv)
    for text in ("first", "second", "third"):
        worn.put("a/1", text=text)
        worn.put(f"b/{text}")
        worn.commit()
    history = list(history_of(worn.lake, worn.repo))
    for name in history:
        committed(worn.lake, worn.repo, name)
    retention.set_rules(worn.lake, worn.repo, Retention(default_days=0))
    worn.collect_all()
    return worn, history


BUILDING: dict[str, Callable[[Worn, CommitID], object]] = {
    "revert": lambda worn, _: merge.revert(worn.lake, worn.repo, "main", "main"),
    "pick": lambda worn, old: merge.cherry_pick(worn.lake, worn.repo, "main", old),
    "move": lambda worn, old: merge.move(worn.lake, worn.repo, "main", old),
    "branch": lambda worn, old: branches.create(worn.lake, worn.repo, "x", old),
    "tag": lambda worn, old: refs.tag(worn.lake, worn.repo, "x", old),
    "export": lambda worn, old: exports.start(worn.lake, worn.repo, old, "s3://elsewhere/place"),
    "export since": lambda worn, old: exports.start(worn.lake, worn.repo, "main", "s3://elsewhere/place", since=old),
}


@pytest.mark.parametrize("what", BUILDING)
def test_nothing_is_built_on_it_even_where_it_is_remembered(what: str) -> None:
    worn, (newest, old, *_) = released()
    assert kind_of(lambda: BUILDING[what](worn, old)) is Kind.RELEASED
    assert head(worn.lake, worn.repo) == newest
    again = worn.setup.again()
    shown = committed(again, worn.repo, newest)
    assert all(worn.there(entry) for entry in shown.values())
    assert worn.lake.branches(worn.repo).find("x") is None
    assert worn.files() == worn.reachable()


class Late(MemoryKV):
    """When a branch, a tag or a task is made, somebody does something right after."""

    def __init__(self) -> None:
        super().__init__()
        self.then: Callable[[], None] | None = None

    def put_if(
        self, partition: str, key: bytes, value: bytes, expected: Version | None, also: Sequence[Put] = ()
    ) -> bool:
        done = super().put_if(partition, key, value, expected, also)
        if self.then and partition.startswith(("branches/", "tags/", "tasks/")):
            self.then()
        return done


@pytest.mark.parametrize("what", ["branch", "tag", "export"])
def test_nothing_stays_on_what_was_let_go_of_while_it_was_made(what: str) -> None:
    kv = Late()
    worn, (_, old, *_) = released(kv)
    kv.delete(releases.partition(worn.repo), old.encode())
    kv.then = lambda: releases.note(worn.lake, worn.repo, [old])
    assert kind_of(lambda: BUILDING[what](worn, old)) is Kind.RELEASED
    assert kind_of(lambda: refs.commit_of(worn.lake, worn.repo, "x")) is Kind.REF_NOT_FOUND
    assert all(task.over for task in tasks.every(worn.lake, worn.repo))


class Early(MemoryKV):
    """When commits are let go of, somebody does something right before."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Callable[[], object] | None = None

    def put_many(self, partition: str, items: Iterable[tuple[bytes, bytes]]) -> None:
        if self.first and partition.startswith("released/"):
            first, self.first = self.first, None
            first()
        super().put_many(partition, items)


@pytest.mark.parametrize("what", ["move", "branch", "tag"])
def test_what_somebody_came_to_stand_on_just_before_is_kept_and_built_on(what: str) -> None:
    kv = Early()
    worn = Worn(kv)
    for text in ("first", "second", "third"):
        worn.put("a", text=text)
        worn.commit()
    _, old, oldest, *_ = history_of(worn.lake, worn.repo)
    retention.set_rules(worn.lake, worn.repo, Retention(default_days=0))
    kv.first = lambda: BUILDING[what](worn, old)
    worn.collect_all()
    assert kv.first is None
    worn.lake = worn.setup.again()
    branches.create(worn.lake, worn.repo, "on", "main" if what == "move" else "x")
    worn.put("b", "on")
    worn.commit("on")
    assert worn.there(shown(worn.lake, worn.repo, "on")["a"])
    assert kind_of(lambda: BUILDING["tag"](worn, oldest)) is Kind.RELEASED
    assert kind_of(lambda: BUILDING["branch"](worn, oldest)) is Kind.RELEASED


def test_where_two_commits_parted_that_are_no_heads_any_more_may_be_gone_and_that_is_told() -> None:
    worn = Worn()
    worn.put("a/1")
    base = worn.commit()
    branches.create(worn.lake, worn.repo, "dev", "main")
    for days in (10, 0):
        for branch in ("main", "dev"):
            worn.put(f"{branch}/{days}", branch)
            worn.commit(branch)
        worn.wait(days * DAY_S)
    ours, theirs = head(worn.lake, worn.repo), head(worn.lake, worn.repo, "dev")
    oldest = worn.lake.commits(worn.repo).get(ours).parents[0]
    merge.merge(worn.lake, worn.repo, "dev", "main")
    branches.delete(worn.lake, worn.repo, "dev")
    retention.set_rules(worn.lake, worn.repo, Retention(default_days=5))
    worn.collect_all()
    lake, repo = worn.setup.again(), worn.repo
    branches.create(lake, repo, "ours", ours)
    branches.create(lake, repo, "theirs", theirs)
    assert base in releases.every(lake, repo)
    assert kind_of(lambda: merge.merge(lake, repo, "theirs", "ours")) is Kind.RELEASED
    assert kind_of(lambda: merge.cherry_pick(lake, repo, "theirs", oldest)) is Kind.RELEASED
    assert kind_of(lambda: merge.revert(lake, repo, "ours", oldest)) is Kind.RELEASED
    assert kind_of(lambda: merge.revert(lake, repo, "ours", base)) is Kind.RELEASED
    merge.cherry_pick(lake, repo, "ours", theirs)


def test_long_lived_branches_are_merged_from_where_they_parted_long_ago() -> None:
    worn = Worn()
    worn.put("a/1")
    worn.commit()
    branches.create(worn.lake, worn.repo, "dev", "main")
    retention.set_rules(worn.lake, worn.repo, Retention(default_days=5))
    for day in range(4):
        for branch in ("main", "dev"):
            worn.put(f"{branch}/{day}", branch)
            worn.commit(branch)
        worn.wait(10 * DAY_S)
    worn.collect_all()
    assert worn.files() == worn.reachable()
    merged = merge.merge(worn.setup.again(), worn.repo, "dev", "main")
    shown = committed(worn.setup.again(), worn.repo, merged)
    assert len(shown) == 9
    assert all(worn.there(entry) for entry in shown.values())


@pytest.mark.parametrize("rules", [Retention(default_days=1000), None])
def test_once_let_go_of_is_gone_whatever_the_rules_say_later(rules: Retention | None) -> None:
    worn, (newest, *older) = released()
    if rules:
        retention.set_rules(worn.lake, worn.repo, rules)
    else:
        retention.delete_rules(worn.lake, worn.repo)
    worn.lake = worn.setup.again()
    worn.put("c", text="one")
    former = worn.commit()
    worn.put("c", text="other")
    latter = worn.commit()
    worn.collect_all()
    assert worn.files() == worn.reachable()
    for name in (newest, former, latter):
        assert all(worn.there(entry) for entry in committed(worn.lake, worn.repo, name).values())
    with pytest.raises(EskerError):
        committed(worn.lake, worn.repo, older[0])


def test_a_dry_run_lets_go_of_nothing() -> None:
    worn = Worn()
    for text in ("first", "second"):
        worn.put("a/1", text=text)
        worn.commit()
    retention.set_rules(worn.lake, worn.repo, Retention(default_days=0))
    worn.wait(GRACE_S + 1)
    worn.collect(dry_run=True)
    branches.create(worn.lake, worn.repo, "x", "main~1")
    worn.collect_all()
    assert garbage.reach(worn.lake, worn.repo, worn.clock.ms).commits >= {head(worn.lake, worn.repo, "x")}
    assert worn.files() == worn.reachable()


def test_what_was_let_go_of_is_no_damage_and_hides_none() -> None:
    worn = Worn()
    for number in range(20):
        worn.put(f"a/{number:02}")
    worn.commit()
    worn.put("b")
    worn.commit()
    retention.set_rules(worn.lake, worn.repo, Retention(default_days=0))
    worn.collect()
    ranges = {name for name in worn.reachable() if name.startswith("_esker/ranges/")}
    assert len(ranges) > 5
    for name in ranges:  # most of which the former commit has, too
        data = worn.blobs.get(name)
        assert data is not None
        worn.blobs.delete([name])
        assert [found.what for found in fsck.check(worn.setup.again(), worn.repo)] == ["range"]
        worn.blobs.put(name, data)
    worn.collect_all()
    assert worn.files() == worn.reachable()
    assert list(fsck.check(worn.setup.again(), worn.repo)) == []
