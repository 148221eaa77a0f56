"""Collecting garbage: after any history, what refs reach is there, and what they do not reach goes, when it is time."""

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest

from esker.engine import branches, commit, compaction, entries, garbage, jobs, merge, objects, reset, retention, stashes
from esker.engine.cleaning import Cleaner
from esker.engine.policy import Compaction
from esker.engine.retention import BranchRetention, Retention
from esker.errors import EskerError, Kind
from esker.model import CommitID, Entry, FileName
from esker.refs import tags
from esker.staging import tokens
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from tests.engine.lakes import AT_ONCE, Clock, Setup, committed, head, kind_of, new_setup, shown

GRACE_S: Final = 1000.0
PATHS: Final = [f"{directory}/{name}" for directory in "abc" for name in range(4)]


class Worn:
    """A lake with a history, and a clock that can be put forward."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.blobs = MemoryBlobs(self.clock)
        self.setup: Setup = new_setup(MemoryKV(), self.blobs, AT_ONCE, self.clock)
        self.lake, self.repo = self.setup.lake, self.setup.repo

    def wait(self, seconds: float) -> None:
        self.clock.ms += int(seconds * 1000)
        self.clock.passed_s += seconds

    def put(self, path: str, branch: str = "main", text: str = "x") -> Entry:
        return objects.put(self.lake, self.repo, branch, path, [text.encode()])

    def commit(self, branch: str = "main") -> CommitID:
        return commit.commit(self.lake, self.repo, branch, "m")

    def collect(self, *, dry_run: bool = False) -> garbage.Report:
        return garbage.collect(self.lake, self.repo, grace_s=GRACE_S, dry_run=dry_run)

    def collect_all(self) -> garbage.Report:
        """Until nothing is left to collect: two marks, a grace time apart, of what is old enough."""
        self.wait(GRACE_S + 1)
        self.collect()
        self.wait(GRACE_S + 1)
        return self.collect()

    def there(self, entry: Entry) -> bool:
        return self.blobs.head(entry.address) is not None

    def files(self) -> set[str]:
        return {info.name for info in self.blobs.list() if not info.name.startswith("_esker/gc/")}


def reachable(worn: Worn) -> set[str]:
    """All files that any ref leads to, by reading all of it."""
    lake, repo = worn.lake, worn.repo
    found: set[str] = set()
    commits: set[CommitID] = {tag.commit for _, tag in tags.every(lake.kv, repo.uid)}
    trees: set[FileName] = set()
    for name, record in lake.branches(repo).page("", 1000):
        commits.add(record.commit)
        found |= {entry.address for entry in shown(lake, repo, name).values()}
        layers = [*record.layers, *(layer for stash in record.stashes.values() for layer in stash.layers)]
        commits |= {stash.commit for stash in record.stashes.values()}
        trees |= {record.compacted} if record.compacted else set()
        for layer in layers:
            found |= {f"_esker/staging/{file}.sst" for file in layer.files}
            rows = lake.past(repo).read_layers([table.file for table in layer.tables])
            found |= {address for table in rows for address in table["address"].to_pylist() if address}
            if layer.token:
                staged = tokens.changes(lake.kv, layer.token)
                found |= set(staged["address"].to_pylist()) - {""}
    for name in set(commits):
        commits |= set(_ancestors(worn, name))
    trees |= {lake.commits(repo).get(name).tree for name in commits}
    for tree in trees:
        found.add(f"_esker/metaranges/{tree}")
        past = lake.past(repo)
        found |= {f"_esker/ranges/{name}" for name in past.trees.metarange(tree).table["name"].to_pylist()}  # type: ignore[attr-defined]
        found |= {address for table in past.scan(tree) for address in table["address"].to_pylist()}
    return found


def _ancestors(worn: Worn, name: CommitID) -> Iterator[CommitID]:
    for parent in worn.lake.commits(worn.repo).get(name).parents:
        yield parent
        yield from _ancestors(worn, parent)


def live_through(worn: Worn, dice: random.Random) -> None:
    """One step of a life."""
    lake, repo = worn.lake, worn.repo
    branch = dice.choice(["main", "main", "dev", "x"])
    path = dice.choice(PATHS)
    match dice.randrange(16):
        case 0 | 1 | 2 | 3:
            worn.put(path, branch, str(dice.random()))
        case 4:
            entries.delete(lake, repo, branch, path)
        case 5:
            entries.delete_prefix(lake, repo, branch, path[:2])
        case 6 | 7 | 8:
            worn.commit(branch)
        case 9:
            branches.create(lake, repo, branch, "main")
        case 10:
            branches.delete(lake, repo, branch)
        case 11:
            reset.reset_prefix(lake, repo, branch, dice.choice(["", "a/", "b/"]))
        case 12:
            merge.merge(lake, repo, dice.choice(["main", "dev", "x"]), branch)
        case 13:
            compaction.compact(lake, repo, branch, dice.choice(list(Compaction)))
        case 14:
            name = dice.choice(["s", "t"])
            (stashes.stash if dice.random() < 0.6 else stashes.pop)(lake, repo, branch, name)
        case 15:
            if dice.random() < 0.5:
                tags.create(lake.kv, repo.uid, dice.choice(["v1", "v2"]), head(lake, repo, branch))
            else:
                merge.move(lake, repo, branch, "main~1")


@pytest.mark.parametrize("seed", range(12))
def test_what_refs_reach_stays_and_all_else_goes_after_any_history(seed: int) -> None:
    dice = random.Random(seed)
    worn = Worn()
    cleaner = Cleaner(worn.lake, worn.repo)
    for _ in range(120):
        with suppress(EskerError):  # there is no such branch, say
            live_through(worn, dice)
        if dice.random() < 0.1:
            worn.wait(dice.choice([1.0, GRACE_S / 2, GRACE_S * 1.5]))
            worn.collect()
            assert reachable(worn) <= worn.files()
        if dice.random() < 0.1:
            cleaner.run()
    while cleaner.run():
        pass
    reached = reachable(worn)
    worn.collect_all()
    assert worn.files() == reached == reachable(worn)


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
    day_s = 24 * 3600.0
    old = worn.put("a/1", text="old")
    worn.commit()
    branches.create(worn.lake, worn.repo, "slow", "main")
    worn.wait(10 * day_s)
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
    worn.wait(6 * day_s)
    worn.collect_all()
    assert not worn.there(old)
    assert not worn.there(newer)
    assert list(shown(worn.lake, worn.repo, "main")) == ["a/1"]
    history = list(_ancestors(worn, head(worn.lake, worn.repo)))
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
