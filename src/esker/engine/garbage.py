"""Garbage collection: take away what no ref reaches any more.

    1. list     all files of the repository, before anything else is read
    2. release  note the commits that the rules let go of, so that nothing is built on them any more
    3. touch    every branch, so that a swap that was stalled since before fails, and looks again
    4. mark     what refs reach: trees of commits that the rules keep, layers, stashes, running jobs and tasks; what a
                ref has come to stand on just before it was released is taken back
    5. compare  what was listed, is old enough and was not reached, is dead
    6. sweep    what has been dead for the grace time, at every mark since
    7. note     what is dead now, for the next mark

Nothing is deleted that was not found dead twice, a grace time apart: so whoever got hold of it while it was reachable
(a reader, a copy, a merge under way) has had that long; an operation that took half as long is refused its swap
(`activity.check_age`). What was listed is looked for after listing, so what is written meanwhile is not even
considered. A crash leaves the sweep half done, and the next run goes on. Several may run at once: the notes of one of
them are lost, and with them only time.

The place itself is told which records were last collected by, and how far they were. A copy of them, or ones that were
restored, know nothing of what came since, and would take it for garbage: they are refused where they lag behind.

Whatever grows with the number of objects is done by steps (`engine.steps`), which read and write files beside the
repository's own and tell little; a runner has them done here, one after the other, or by Spark's executors. Both run
the same code, so both delete the same. What is left to this process grows with commits and branches, not with objects.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Final, TypeVar

import msgspec
import pyarrow as pa

from esker import activity
from esker.engine import jobs, metrics, protection, releases, retention, steps, tasks, tenure
from esker.engine.dumps import RELEASED
from esker.engine.lake import Lake
from esker.engine.steps import COMMITS, METADATA, NOTES, Compared, Here, InTurn, Piece, Plan, Runner, Stores
from esker.engine.tasks import Task, Work
from esker.errors import (
    ContentionError,
    CorruptError,
    InvalidError,
    Kind,
    NotFoundError,
    UnavailableError,
)
from esker.format.names import digest_of
from esker.model import Commit, CommitID, FileName, Layer, Repository, Token
from esker.refs import tags
from esker.refs.records import Branch
from esker.staging import tokens
from esker.stores.kv import items
from esker.streams.arrays import only_chunk

GRACE_S: Final = 48 * 3600.0
"""Longer than an address that was given out for an upload may be linked, and than anything else that is under way."""

PREPARE: Final = "gc-prepare"
"""A kind of task."""

BUCKET_ROWS: Final = 1_000_000
"""Files whose names are compared at a time: some 150 MB."""

_BUCKETS_MAX: Final = 1000
_BATCH: Final = 1000
_TREES: Final = 64
"""Whose metaranges one step reads."""
_MARKS_MAX: Final = 3
_DAY_MS: Final = 24 * 3600 * 1000
_TABLES: Final = f"{METADATA}staging/"

A = TypeVar("A")

Progress = Callable[[str, int], None]
"""Told what is being done, and how many of it are done."""


class Report(msgspec.Struct, kw_only=True):
    """What a collection found and did."""

    listed: int = 0
    listed_bytes: int = 0
    marked: int = 0
    """Addresses read in what refs reach: one is counted wherever it is named."""
    dead: int = 0
    """Not reached and old enough, this time."""
    dead_bytes: int = 0
    deleted: int = 0
    """Dead for the grace time: deleted, or to be deleted if this was no dry run."""
    deleted_bytes: int = 0
    by_prefix: dict[str, tuple[int, int]] = {}
    """Of what was, or was to be, deleted: files and bytes."""
    next_ms: int | None = None
    """When the first of what is dead, and still there, may be deleted."""
    dry_run: bool = False

    def summary(self) -> dict[str, int | str]:
        """The same, flat, for the task list."""
        told = msgspec.structs.asdict(self)
        by_prefix = told.pop("by_prefix")
        for prefix, (files, size) in by_prefix.items():
            told |= {f"deleted {prefix}": files, f"deleted_bytes {prefix}": size}
        return {name: int(value) for name, value in told.items() if value is not None}


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Where the names of what was dead at the last mark lie."""

    files: tuple[str, ...] = ()
    at_ms: int
    listed: int = 0
    """How many files there were."""
    format_version: int = 1


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Note)


@dataclass
class Reached:
    """What refs reach."""

    commits: set[CommitID] = field(default_factory=set)
    """Those whose trees are kept."""
    released: set[CommitID] = field(default_factory=set)
    """Those that were let go of."""
    history: set[CommitID] = field(default_factory=set)
    """All that any ref descends from: their records stay, for the log."""
    trees: set[FileName] = field(default_factory=set)
    tables: set[FileName] = field(default_factory=set)
    tokens: set[Token] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)
    """Below which everything is: of running jobs and tasks."""


def start(lake: Lake, repo: Repository, *, dry_run: bool = False) -> Task:
    """Write down a collection that is about to begin, for `collect`."""
    protection.check_writable(repo)
    if lake.branches(repo).find(repo.default_branch) is None:
        raise InvalidError(
            Kind.BRANCH_NOT_FOUND, f"{repo.name!r} has no {repo.default_branch!r}: restore its refs first, or all goes"
        )
    return tasks.start(lake, repo, "gc", about="dry run" if dry_run else "")


@metrics.measured("collect-garbage")
def collect(
    lake: Lake,
    repo: Repository,
    *,
    grace_s: float = GRACE_S,
    dry_run: bool = False,
    progress: Progress | None = None,
    stores: Stores | None = None,
    run: Runner | None = None,
    task: Task | None = None,
) -> Report:
    """Collect the repository's garbage. A dry run changes nothing but what the next mark goes by.

    `run` has the steps done elsewhere, by whoever can open `stores`; by default they are done here. ContentionError if
    the repository kept changing under the mark.
    """
    with tasks.working(lake, repo, task or start(lake, repo, dry_run=dry_run)) as work:
        at_work = _Collection(lake, repo, stores or Here(lake, repo), run or InTurn(), work, progress)
        try:
            report = at_work.collect(grace_s, dry_run=dry_run)
        finally:
            at_work.clean_up()
        work.summary = report.summary()
    if not dry_run:
        metrics.collected(files=report.deleted, size=report.deleted_bytes)
    return report


def prepare(lake: Lake, repo: Repository) -> Task:
    """Write down all commits, and whether the rules let go of them, for others who collect garbage: a task that is
    done, which names the file. It is CSV, and goes when it is older than the grace time."""
    with tasks.running(lake, repo, PREPARE) as work:
        reached = reach(lake, repo, lake.world.now_ms())
        rows = io.StringIO()
        table = csv.writer(rows)
        table.writerow(("commit_id", "meta_range_id", "expired"))
        for name in sorted(reached.history):
            tree = digest_of(lake.commits(repo).get(name).tree)
            table.writerow((name, tree, str(name not in reached.commits).lower()))
        file = f"{NOTES}{work.task.id}/commits.csv"
        lake.blobs(repo).put(file, rows.getvalue().encode())
        work.add(commits=len(reached.history))
        work.summary = {"commits": file, "addresses": f"{NOTES}{work.task.id}/addresses/"}
    return work.task


class _Collection:
    """One run."""

    def __init__(
        self, lake: Lake, repo: Repository, stores: Stores, run: Runner, work: Work, progress: Progress | None
    ) -> None:
        self._lake = lake
        self._repo = repo
        self._stores = stores
        self._run = run
        self._work = work
        self._tell = progress or (lambda _what, _count: None)
        self._where = f"{NOTES}{work.task.id}/"

    def collect(self, grace_s: float, *, dry_run: bool) -> Report:
        lake, repo = self._lake, self._repo
        tenure.check(lake, repo)
        now_ms = self._now_ms()
        old_ms = now_ms - int(grace_s * 1000)
        note = _noted(lake, repo)
        buckets = self._buckets(note)
        report = Report(dry_run=dry_run)
        listed = self._list(buckets)
        report.listed = sum(piece.rows for piece in listed)
        report.listed_bytes = sum(piece.bytes for piece in listed)
        fresh = set() if dry_run else release(lake, repo, now_ms)
        live, reached = self._mark(buckets, now_ms)
        stood_on = fresh & reached.commits  # by who came before the note: the touch let nobody else through
        releases.take_back(lake, repo, stood_on)
        lake.blobs(repo).put(RELEASED, msgspec.json.encode(sorted(reached.released - stood_on)))
        report.marked = sum(piece.bytes for piece in live)
        main = lake.branches(repo).get(repo.default_branch)
        tenure.take(lake, repo, born=main.born, seq=main.seq)
        noted = self._each("noted", partial(steps.sort_note, self._stores, self._where, buckets), note.files)
        plan = Plan(self._where, now_ms, old_ms, tuple(sorted(reached.prefixes)), dry_run)
        compare = partial(steps.compare, self._stores, plan, listed, live, list(chain.from_iterable(noted)))
        compared = self._each("compared", compare, range(buckets), lambda one: one.listed)
        _add_up(report, compared, grace_s)
        self._sweep(compared)
        self._note([one.left for one in compared if one.left], now_ms, report.listed)
        return report

    def clean_up(self) -> None:
        """Take away the files of this run, and of former ones that were killed."""
        blobs, now_ms = self._lake.blobs(self._repo), self._lake.world.now_ms()
        blobs.delete([info.name for info in blobs.list(self._where)])
        kept = {tenure.FILE, RELEASED, *_noted(self._lake, self._repo).files}
        old_ms = now_ms - int(GRACE_S * 1000)
        blobs.delete([info.name for info in blobs.list(NOTES) if info.mtime_ms < old_ms and info.name not in kept])

    def _now_ms(self) -> int:
        """By the clock that dates the files: ages told by two clocks would be wrong by what is between them."""
        blobs, probe = self._lake.blobs(self._repo), f"{self._where}clock"
        blobs.put(probe, b"")
        found = blobs.head(probe)
        if found is None:
            raise UnavailableError(Kind.STORE_UNAVAILABLE, f"{blobs.url} does not show what was just put there: later")
        return found.mtime_ms

    def _buckets(self, note: Note) -> int:
        """So many that each can be compared in little memory, by what is known before anything is listed."""
        lake, repo = self._lake, self._repo
        head = lake.commits(repo).get(lake.branches(repo).get(repo.default_branch).commit)
        expected = max(note.listed, lake.past(repo).size(head.tree))
        return min(_BUCKETS_MAX, max(self._run.parallel, -(-expected // BUCKET_ROWS)))

    @activity.step("list")
    def _list(self, buckets: int) -> list[Piece]:
        step = partial(steps.list_span, self._stores, self._where, buckets)
        found = self._each("listed", step, steps.spans(self._run.parallel), _rows)
        sorter = steps.Sorter(self._stores.blobs(), f"{self._where}listed", buckets)
        for batch in _batched(items(self._lake.kv, f"commits/{self._repo.uid}"), 100 * _BATCH):
            names = [COMMITS + item.key.decode() for item in batch]
            sizes = [len(item.record.value) for item in batch]
            sorter.add(pa.table([names, sizes, [0] * len(batch)], schema=steps.LISTED))
        return [*chain.from_iterable(found), *sorter.close()]

    @activity.step("mark")
    def _mark(self, buckets: int, now_ms: int) -> tuple[list[Piece], Reached]:
        """All that refs reach. Layers that fall off meanwhile may be gone before they are read, and trees too: what
        was in them has moved to where the records lead now, so it is done over."""
        for attempt in range(_MARKS_MAX):
            begun_s = self._lake.world.monotonic_s()
            touch(self._lake, self._repo)
            reached = reach(self._lake, self._repo, now_ms)
            try:
                live = [*self._mark_layers(buckets, reached), *self._mark_trees(buckets, reached)]
            except CorruptError as error:
                if error.kind is not Kind.MISSING_FILE or attempt == _MARKS_MAX - 1:
                    raise
                continue
            if self._lake.world.monotonic_s() - begun_s <= self._lake.settings.grace_s / 2:
                return live, reached
            if reached.tokens <= reach(self._lake, self._repo, now_ms).tokens:
                return live, reached
        raise ContentionError(
            Kind.CONTENTION, f"branches of {self._repo.name!r} kept changing under the mark: collect again"
        )

    def _mark_layers(self, buckets: int, reached: Reached) -> list[Piece]:
        """Tokens, which only this process can read, tables, and the names of what is known by name."""
        sorter = steps.Sorter(self._stores.blobs(), f"{self._where}live", buckets)
        for token in sorted(reached.tokens):
            for rows in tokens.pages(self._lake.kv, token):
                sorter.add_live(steps.own(only_chunk(rows["address"]), self._stores.url))
                self._work.beat()
        names = chain(
            (f"{METADATA}metaranges/{tree}" for tree in reached.trees),
            (f"{_TABLES}{table}.sst" for table in reached.tables),
            (COMMITS + name for name in reached.history),
        )
        for batch in _batched(names, 100 * _BATCH):
            sorter.add_live(pa.array(batch, pa.string()))
        step = partial(steps.mark_tables, self._stores, self._where, buckets)
        found = self._each("marked", step, list(_batched(sorted(reached.tables), _TREES)), _marks)
        return [*sorter.close(), *chain.from_iterable(found)]

    def _mark_trees(self, buckets: int, reached: Reached) -> list[Piece]:
        step = partial(steps.sort_ranges, self._stores, self._where, buckets)
        ranges = self._each("trees", step, list(_batched(sorted(reached.trees), _TREES)))
        pieces = list(chain.from_iterable(ranges))
        mark = partial(steps.mark_ranges, self._stores, self._where, buckets, pieces)
        live = self._each("marked", mark, range(buckets), _marks)
        return list(chain.from_iterable(live))

    @activity.step("sweep")
    def _sweep(self, compared: list[Compared]) -> None:
        self._work.check()  # told to stop until now, it deletes nothing
        sweep = partial(steps.sweep, self._stores)
        self._each("deleted", sweep, [one.due for one in compared if one.due], lambda count: count)
        for one in compared:
            if one.records:
                self._sweep_records(one.records)

    def _sweep_records(self, file: str) -> None:
        """What takes more than to delete a file: tables with their filters, commits."""
        lake, repo = self._lake, self._repo
        for names in steps.names_in(self._stores.blobs(), file):
            for name in names:
                if name.startswith(_TABLES):
                    lake.tables(repo).delete(FileName(name.removeprefix(_TABLES).removesuffix(".sst")))
            found = [name.removeprefix(COMMITS).encode() for name in names if name.startswith(COMMITS)]
            lake.kv.delete_many(f"commits/{repo.uid}", found)
            self._work.beat()

    @activity.step("note")
    def _note(self, files: list[str], now_ms: int, listed: int) -> None:
        """Install the note, and take away the former; or one's own, if another was first."""
        lake, blobs = self._lake, self._lake.blobs(self._repo)
        before = lake.kv.get(_partition(self._repo), b"note")
        note = Note(files=tuple(files), at_ms=now_ms, listed=listed)
        if lake.kv.put_if(_partition(self._repo), b"note", _ENCODER.encode(note), before.version if before else None):
            blobs.delete(_DECODER.decode(before.value).files if before else ())
        else:
            blobs.delete(files)

    def _each(
        self,
        what: str,
        step: Callable[[A], steps.B],
        things: Iterable[A],
        count: Callable[[steps.B], int] = lambda _: 0,
    ) -> list[steps.B]:
        """The step done for each of these, in their order."""
        found = []
        done = self._work.counts[what]
        for one in self._run(step, list(things), self._work.beat):
            found.append(one)
            done += count(one)
            if done:
                self._work.reached(**{what: done})
                self._tell(what, done)
        return found


def _rows(pieces: list[Piece]) -> int:
    return sum(piece.rows for piece in pieces)


def _marks(pieces: list[Piece]) -> int:
    return sum(piece.bytes for piece in pieces)


def _add_up(report: Report, compared: list[Compared], grace_s: float) -> None:
    nexts = [one.next_ms for one in compared if one.next_ms is not None]
    report.next_ms = min(nexts) + int(grace_s * 1000) if nexts else None
    for one in compared:
        report.dead += one.dead
        report.dead_bytes += one.dead_bytes
        for prefix, (files, size) in one.by_prefix.items():
            report.deleted += files
            report.deleted_bytes += size
            before = report.by_prefix.get(prefix, (0, 0))
            report.by_prefix[prefix] = (before[0] + files, before[1] + size)
    report.by_prefix = dict(sorted(report.by_prefix.items()))


def _batched(things: Iterable[A], size: int) -> Iterator[list[A]]:
    left = iter(things)
    while batch := list(islice(left, size)):
        yield batch


def _noted(lake: Lake, repo: Repository) -> Note:
    found = lake.kv.get(_partition(repo), b"note")
    return Note(at_ms=0) if found is None else _DECODER.decode(found.value)


def _partition(repo: Repository) -> str:
    return f"gc/{repo.uid}"


@activity.step("release")
def release(lake: Lake, repo: Repository, now_ms: int) -> set[CommitID]:
    """Let go of what the rules let go of: of what is let go of only now."""
    found = reach(lake, repo, now_ms)
    fresh = found.history - found.commits - found.released
    releases.note(lake, repo, sorted(fresh))
    return fresh


@activity.step("touch")
def touch(lake: Lake, repo: Repository) -> None:
    """Change every branch's record without changing what it shows: however long ago the collection began."""
    branches = lake.branches(repo)
    for name, _ in list(branches.page("", _BATCH)):
        with activity.anew(), suppress(NotFoundError):  # deleted since
            branches.update(name, lambda record: record.rotated(branches.fresh_token()).touched())


@activity.step("reach")
def reach(lake: Lake, repo: Repository, now_ms: int) -> Reached:
    """What refs reach now, by the repository's rules."""
    found = Reached(released=set(releases.every(lake, repo)))
    try:
        rules: retention.Retention | None = retention.rules(lake, repo)
    except NotFoundError as error:
        if error.kind is not Kind.RULES_NOT_FOUND:
            raise
        rules = None
    days = {rule.branch: rule.days for rule in rules.branches} if rules else {}
    by_rule: dict[int, set[CommitID]] = {}
    heads: set[CommitID] = set()

    def keep(head: CommitID, since_ms: int) -> None:
        heads.add(head)
        if rules is not None:
            _follow(lake, repo, head, since_ms, by_rule.setdefault(since_ms, set()))
        _follow(lake, repo, head, None, found.history)

    for name, record in lake.branches(repo).page("", _BATCH):
        keep(record.commit, now_ms - _DAY_MS * days.get(name, rules.default_days) if rules else 0)
        _of_branch(found, record)
        for stash in record.stashes.values():
            keep(stash.commit, now_ms)
    for _, tag in tags.every(lake.kv, repo.uid):
        keep(tag.commit, now_ms)
    for job in jobs.every(lake, repo):
        if job.state is jobs.JobState.RUNNING:
            found.prefixes.add(job.data)
            keep(job.base, now_ms)
    for task in tasks.every(lake, repo):
        if not task.over:
            found.prefixes.add(task.data)
            for commit in task.commits:
                keep(commit, now_ms)
    # What rules let go of leaves its records: a log that could not be followed to its end would be damage.
    kept = found.history
    if rules is not None:
        kept = set[CommitID]().union(*by_rule.values(), _forks(lake, repo, found.history, heads))
    found.commits = (kept - found.released) | heads
    found.trees |= {lake.commits(repo).get(name).tree for name in found.commits}
    return found


def _forks(lake: Lake, repo: Repository, history: set[CommitID], heads: set[CommitID]) -> set[CommitID]:
    """Where refs part: commits that several of the heads descend from, and none of their children all of these. Among
    them is every base that a merge of two refs goes by."""
    get = lake.commits(repo).get
    numbers = {head: 1 << number for number, head in enumerate(sorted(heads))}
    below: dict[CommitID, set[int]] = {}
    """By commit, the sets of heads that descend from each of its children."""
    found = set()
    for name in sorted(history, key=lambda name: -get(name).generation):
        those = below.pop(name, set())
        whole = numbers.get(name, 0)
        for some in those:
            whole |= some
        if whole.bit_count() > 1 and whole not in those:
            found.add(name)
        for parent in get(name).parents:
            below.setdefault(parent, set()).add(whole)
    return found


def _of_branch(found: Reached, record: Branch) -> None:
    layers: list[Layer] = [*record.layers, record.open_layer]
    for stash in record.stashes.values():
        layers += stash.layers
    for layer in layers:
        found.tables |= set(layer.files)
        if layer.token:
            found.tokens.add(layer.token)
    if record.compacted:
        found.trees.add(record.compacted)


def _follow(lake: Lake, repo: Repository, head: CommitID, since_ms: int | None, seen: set[CommitID]) -> None:
    """Add the head, and those before it that ceased to be one at or after `since_ms` (None: all). What is in `seen`
    was followed by the same rule."""
    get = lake.commits(repo).get
    waiting = [] if head in seen else [head]
    seen.add(head)
    while waiting:
        commit: Commit = get(waiting.pop())
        if since_ms is None or commit.date_ms >= since_ms:
            fresh = [parent for parent in commit.parents if parent not in seen]
            seen.update(fresh)
            waiting += fresh
