"""Lakes with a life behind them, and what of their files any ref leads to: for tests of garbage collection."""

import random
from collections.abc import Iterator
from typing import Final

from esker.engine import (
    branches,
    commit,
    compaction,
    entries,
    garbage,
    jobs,
    merge,
    objects,
    releases,
    reset,
    retention,
    stashes,
)
from esker.engine.lake import Lake
from esker.engine.policy import Compaction
from esker.engine.retention import Retention
from esker.errors import NotFoundError
from esker.model import CommitID, Entry, FileName, Repository
from esker.refs import tags
from esker.staging import tokens
from esker.stores.blob_memory import MemoryBlobs
from esker.stores.kv import KVStore
from esker.stores.kv_memory import MemoryKV
from esker.streams.entries import changes_of
from esker.streams.rows import Changes
from esker.tree.past import StoredPast
from tests.engine.lakes import AT_ONCE, Clock, Setup, head, new_setup, shown

GRACE_S: Final = 1000.0
DAY_S: Final = 24 * 3600.0
BRANCHES: Final = ["main", "main", "dev", "x"]
PATHS: Final = [f"{directory}/{name}" for directory in "abc" for name in range(4)]


class Worn:
    """A lake with a history, and a clock that can be put forward."""

    def __init__(self, kv: KVStore | None = None) -> None:
        self.clock = Clock()
        self.blobs = MemoryBlobs(self.clock)
        self.setup: Setup = new_setup(kv or MemoryKV(), self.blobs, AT_ONCE, self.clock)
        self.lake, self.repo = self.setup.lake, self.setup.repo

    def wait(self, seconds: float) -> None:
        self.clock.ms += int(seconds * 1000)
        self.clock.passed_s += seconds

    def put(self, path: str, branch: str = "main", text: str = "x") -> Entry:
        return objects.put(self.lake, self.repo, branch, path, [text.encode()])

    def commit(self, branch: str = "main") -> CommitID:
        return commit.commit(self.lake, self.repo, branch, "m")

    def collect(self, *, dry_run: bool = False, grace_s: float = GRACE_S) -> garbage.Report:
        return garbage.collect(self.lake, self.repo, grace_s=grace_s, dry_run=dry_run)

    def collect_all(self) -> garbage.Report:
        """Until nothing is left to collect: two marks, a grace time apart, of what is old enough."""
        self.wait(GRACE_S + 1)
        self.collect()
        self.wait(GRACE_S + 1)
        return self.collect()

    def there(self, entry: Entry) -> bool:
        return self.blobs.head(entry.address) is not None

    def files(self) -> set[str]:
        return files(self.lake, self.repo)

    def reachable(self) -> set[str]:
        return reachable(self.lake, self.repo)


def files(lake: Lake, repo: Repository) -> set[str]:
    """All but the collector's own."""
    return {info.name for info in lake.blobs(repo).list() if not info.name.startswith("_esker/gc/")}


def reachable(lake: Lake, repo: Repository) -> set[str]:
    """All files that any ref leads to by the rules, found by reading all of it."""
    found: set[str] = set()
    now_ms = lake.world.now_ms()
    try:
        rules: Retention | None = retention.rules(lake, repo)
    except NotFoundError:
        rules = None
    days = {rule.branch: rule.days for rule in rules.branches} if rules else {}
    commits: set[CommitID] = set()
    heads: set[CommitID] = {tag.commit for _, tag in tags.every(lake.kv, repo.uid)}
    for _, tag in tags.every(lake.kv, repo.uid):
        commits |= set(held(lake, repo, tag.commit, now_ms if rules else 0))
    trees: set[FileName] = set()
    for name, record in lake.branches(repo).page("", 1000):
        since_ms = now_ms - int(DAY_S * 1000) * days.get(name, rules.default_days) if rules else 0
        commits |= set(held(lake, repo, record.commit, since_ms))
        heads |= {record.commit, *(stash.commit for stash in record.stashes.values())}
        found |= {entry.address for entry in shown(lake, repo, name).values()}
        layers = [*record.layers, *(layer for stash in record.stashes.values() for layer in stash.layers)]
        for stash in record.stashes.values():
            commits |= set(held(lake, repo, stash.commit, now_ms if rules else 0))
        trees |= {record.compacted} if record.compacted else set()
        for layer in layers:
            found |= {f"_esker/staging/{file}.sst" for file in layer.files}
            rows = lake.past(repo).read_layers([table.file for table in layer.tables])
            found |= {address for table in rows for address in table["address"].to_pylist() if address}
            if layer.token:
                staged = tokens.changes(lake.kv, layer.token)
                found |= set(staged["address"].to_pylist()) - {""}
    for job in jobs.every(lake, repo):
        if job.state is jobs.JobState.RUNNING:
            commits |= set(held(lake, repo, job.base, now_ms if rules else 0))
            heads.add(job.base)
            found.add(f"{job.data}part")
    commits |= partings(lake, repo, heads)
    commits -= set(releases.every(lake, repo)) - heads
    trees |= {lake.commits(repo).get(name).tree for name in commits}
    past = lake.past(repo)
    assert isinstance(past, StoredPast)
    for tree in trees:
        found.add(f"_esker/metaranges/{tree}")
        found |= {f"_esker/ranges/{name}" for name in past.trees.metarange(tree).table["name"].to_pylist()}
        found |= {address for table in past.scan(tree) for address in table["address"].to_pylist()}
    return found


def partings(lake: Lake, repo: Repository, heads: set[CommitID]) -> set[CommitID]:
    """Commits that several heads descend from, and none of their children all of these."""
    below = {head: set(held(lake, repo, head, 0)) for head in heads}
    every = set[CommitID]().union(*below.values())
    of = {name: {head for head in heads if name in below[head]} for name in every}
    children = {name: {one for one in every if name in lake.commits(repo).get(one).parents} for name in every}
    return {name for name in every if len(of[name]) > 1 and not any(of[one] == of[name] for one in children[name])}


def held(lake: Lake, repo: Repository, name: CommitID, since_ms: int) -> Iterator[CommitID]:
    """A commit that was a head, and those before it that ceased to be one since."""
    yield name
    found = lake.commits(repo).get(name)
    if found.date_ms >= since_ms:
        for parent in found.parents:
            yield from held(lake, repo, parent, since_ms)


def live_through(lake: Lake, repo: Repository, dice: random.Random) -> None:
    """One step of a life."""
    branch = dice.choice(BRANCHES)
    path = dice.choice(PATHS)
    match dice.randrange(18):
        case 0 | 1 | 2 | 3:
            objects.put(lake, repo, branch, path, [str(dice.random()).encode()])
        case 4:
            entries.delete(lake, repo, branch, path)
        case 5:
            entries.delete_prefix(lake, repo, branch, path[:2])
        case 6 | 7 | 8:
            commit.commit(lake, repo, branch, "m")
        case 9:
            branches.create(lake, repo, branch, "main")
        case 10:
            branches.delete(lake, repo, branch)
        case 11:
            reset.reset_prefix(lake, repo, branch, dice.choice(["", "a/", "b/"]))
        case 12:
            merge.merge(lake, repo, dice.choice(BRANCHES), branch)
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
        case 16:
            job = jobs.start(lake, repo, branch)
            lake.blobs(repo).put(f"{job.data}part", b"x")
            if dice.random() < 0.5:
                made = Entry(path=f"t/{job.id}", address=f"{job.data}part", size=1, checksum="c", mtime_ms=0)
                jobs.publish(lake, repo, job.id, Changes(changes_of([made])))
            elif dice.random() < 0.5:
                jobs.abort(lake, repo, job.id)
        case 17:
            lake.blobs(repo).put(objects.fresh_address(lake), b"linked by nobody")
