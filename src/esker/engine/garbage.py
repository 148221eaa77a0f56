"""Garbage collection: take away what no ref reaches any more.

    1. list     all files of the repository, before anything else is read
    2. touch    every branch, so that a swap that was stalled since before fails, and looks again
    3. mark     what refs reach: trees of commits that the rules keep, layers, stashes, running jobs
    4. compare  what was listed, is old enough and was not reached, is dead
    5. sweep    what has been dead for the grace time, at every mark since
    6. note     what is dead now, for the next mark

Nothing is deleted that was not found dead twice, a grace time apart: so whoever got hold of it while it was reachable
(a reader, a copy, a merge under way) has had that long. No operation may take half as long. What was listed is looked
for after listing, so what is written meanwhile is not even considered. A crash leaves the sweep half done, and the next
run goes on. Several may run at once: the notes of one of them are lost, and with them only time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from esker.activity import step
from esker.engine import dumps, jobs, metrics, protection, retention
from esker.engine.lake import Lake
from esker.errors import Kind, NotFoundError
from esker.model import Commit, CommitID, FileName, Layer, Repository, Token
from esker.refs import tags
from esker.refs.records import Branch
from esker.staging import tokens
from esker.stores.kv import items
from esker.streams.arrays import bools, only_chunk
from esker.streams.hashes import hash_paths
from esker.tree.past import StoredPast

GRACE_S: Final = 48 * 3600.0
"""Longer than an address that was given out for an upload may be linked, and than anything else that is under way."""

_METADATA: Final = "_esker/"
_NOTES: Final = "_esker/gc/"
_DATA: Final = "data/"
_COMMITS: Final = "commit "
"""Before the id of a commit's record, in place of a file's name: no file begins so."""
_BATCH: Final = 1000
_DAY_MS: Final = 24 * 3600 * 1000

_LISTED: Final = pa.schema([("name", pa.string()), ("size", pa.int64()), ("mtime_ms", pa.int64())])
_DEAD: Final = pa.schema([("name", pa.string()), ("size", pa.int64()), ("since_ms", pa.int64())])

Progress = Callable[[str, int], None]
"""Told what is being done, and how many of it are done."""


class Report(msgspec.Struct, kw_only=True):
    """What a collection found and did."""

    listed: int = 0
    listed_bytes: int = 0
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


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Where the names of what was dead at the last mark lie."""

    file: str
    at_ms: int
    format_version: int = 1


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Note)


@dataclass
class Reached:
    """What refs reach."""

    commits: set[CommitID] = field(default_factory=set)
    """Those that the rules keep."""
    history: set[CommitID] = field(default_factory=set)
    """All that any ref descends from: their records stay, for the log."""
    trees: set[FileName] = field(default_factory=set)
    tables: set[FileName] = field(default_factory=set)
    tokens: set[Token] = field(default_factory=set)
    prefixes: set[str] = field(default_factory=set)
    """Below which everything is: of running jobs."""


@metrics.measured("collect-garbage")
def collect(
    lake: Lake, repo: Repository, *, grace_s: float = GRACE_S, dry_run: bool = False, progress: Progress | None = None
) -> Report:
    """Collect the repository's garbage. A dry run changes nothing but what the next mark goes by."""
    protection.check_writable(repo)
    tell = progress or (lambda _what, _count: None)
    now_ms = lake.world.now_ms()
    listed = _list(lake, repo, tell)
    touch(lake, repo)
    reached = reach(lake, repo, now_ms)
    dead = _dead(lake, repo, listed, reached, now_ms - int(grace_s * 1000), tell)
    dead = _since(lake, repo, dead, now_ms)
    due = dead.filter(pc.less_equal(dead["since_ms"], now_ms - int(grace_s * 1000)))
    report = _report(listed, dead, due, grace_s, dry_run)
    left = dead
    if not dry_run:
        _sweep(lake, repo, due["name"].to_pylist(), tell)
        metrics.collected(files=report.deleted, size=report.deleted_bytes)
        left = dead.filter(pc.greater(dead["since_ms"], now_ms - int(grace_s * 1000)))
    _note(lake, repo, left, now_ms)
    return report


@step("touch")
def touch(lake: Lake, repo: Repository) -> None:
    """Change every branch's record without changing what it shows."""
    branches = lake.branches(repo)
    for name, _ in list(branches.page("", _BATCH)):
        try:
            branches.update(name, lambda record: record.rotated(branches.fresh_token()).touched())
        except NotFoundError:
            continue  # deleted since


@step("mark")
def reach(lake: Lake, repo: Repository, now_ms: int) -> Reached:
    """What refs reach now, by the repository's rules."""
    found = Reached()
    try:
        rules: retention.Retention | None = retention.rules(lake, repo)
    except NotFoundError as error:
        if error.kind is not Kind.RULES_NOT_FOUND:
            raise
        rules = None
    days = {rule.branch: rule.days for rule in rules.branches} if rules else {}
    for name, record in lake.branches(repo).page("", _BATCH):
        kept = None if rules is None else now_ms - _DAY_MS * days.get(name, rules.default_days)
        found.commits |= _kept(lake, repo, record.commit, kept)
        found.history |= _kept(lake, repo, record.commit, None)
        _of_branch(found, record)
    for _, tag in tags.every(lake.kv, repo.uid):
        found.commits |= _kept(lake, repo, tag.commit, None if rules is None else now_ms)
        found.history |= _kept(lake, repo, tag.commit, None)
    for job in jobs.every(lake, repo):
        if job.state is jobs.JobState.RUNNING:
            found.prefixes.add(job.data)
            found.commits.add(job.base)
    found.history |= found.commits
    found.trees |= {lake.commits(repo).get(name).tree for name in found.commits}
    return found


def _of_branch(found: Reached, record: Branch) -> None:
    layers: list[Layer] = [*record.layers, record.open_layer]
    for stash in record.stashes.values():
        layers += stash.layers
        found.commits.add(stash.commit)
    for layer in layers:
        found.tables |= set(layer.files)
        if layer.token:
            found.tokens.add(layer.token)
    if record.compacted:
        found.trees.add(record.compacted)


def _kept(lake: Lake, repo: Repository, head: CommitID, since_ms: int | None) -> set[CommitID]:
    """The head, and those before it that ceased to be one at or after `since_ms` (None: all)."""
    get = lake.commits(repo).get
    kept = {head}
    waiting = [head]
    while waiting:
        commit: Commit = get(waiting.pop())
        if since_ms is None or commit.date_ms >= since_ms:
            fresh = [parent for parent in commit.parents if parent not in kept]
            kept |= set(fresh)
            waiting += fresh
    return kept


@step("list")
def _list(lake: Lake, repo: Repository, tell: Progress) -> pa.Table:
    batches = []
    names: list[str] = []
    sizes: list[int] = []
    mtimes: list[int] = []
    count = 0
    for prefix in (_DATA, _METADATA):
        for info in lake.blobs(repo).list(prefix):
            if info.name.startswith((_NOTES, dumps.DUMPS)):
                continue
            names.append(info.name)
            sizes.append(info.size)
            mtimes.append(info.mtime_ms)
            if len(names) == 100 * _BATCH:
                batches.append(pa.table([names, sizes, mtimes], schema=_LISTED))
                count += len(names)
                tell("listed", count)
                names, sizes, mtimes = [], [], []
    for item in items(lake.kv, f"commits/{repo.uid}"):
        names.append(_COMMITS + item.key.decode())
        sizes.append(len(item.record.value))
        mtimes.append(0)
    batches.append(pa.table([names, sizes, mtimes], schema=_LISTED))
    tell("listed", count + len(names))
    return pa.concat_tables(batches)


@step("compare")
def _dead(lake: Lake, repo: Repository, listed: pa.Table, reached: Reached, old_ms: int, tell: Progress) -> pa.Table:
    """What was listed, is old enough, and was not reached."""
    old = listed.filter(pc.less(listed["mtime_ms"], old_ms)).combine_chunks()
    if old.num_rows == 0:
        return old
    names = old["name"].chunk(0)
    past = lake.past(repo)
    assert isinstance(past, StoredPast), "garbage is files"
    is_data = bools(pc.starts_with(names, _DATA))
    ranges: dict[str, FileName] = {}
    live = {f"{_METADATA}metaranges/{tree}" for tree in reached.trees}
    for tree in reached.trees:
        files = past.trees.metarange(tree).table
        found = files["name"].to_pylist()
        live.update(f"{_METADATA}ranges/{name}" for name in found)
        ranges.update(zip(files["id"].to_pylist(), found, strict=True))  # of equal content, one is read
    live |= {f"{_METADATA}staging/{table}.sst" for table in reached.tables}
    live |= {_COMMITS + name for name in reached.history}
    in_use = bools(pc.is_in(names, value_set=pa.array(sorted(live), pa.string()))).copy()
    for prefix in reached.prefixes:
        in_use |= bools(pc.starts_with(names, prefix))
    if is_data.any():
        # Equal hashes of unequal addresses keep something that is dead: one in billions, and harmless.
        marked = _marked(lake, repo, past.trees.addresses(ranges.values()), reached, tell)
        in_use |= np.isin(hash_paths(names, 0), marked)
    return old.filter(pa.array(~in_use)).combine_chunks()


def _marked(
    lake: Lake, repo: Repository, in_trees: Iterable[pa.Array], reached: Reached, tell: Progress
) -> npt.NDArray[np.uint64]:
    """The hashes of all addresses that something reached names."""
    found: list[npt.NDArray[np.uint64]] = []
    count = 0

    def add(addresses: pa.Array) -> None:
        nonlocal count
        found.append(np.unique(hash_paths(addresses, 0)))
        count += len(addresses)
        tell("marked", count)

    for addresses in in_trees:
        add(addresses)
    for table in sorted(reached.tables):
        add(only_chunk(lake.past(repo).read_layers([table])[0]["address"]))
    for token in sorted(reached.tokens):
        add(only_chunk(tokens.changes(lake.kv, token)["address"]))
    return np.unique(np.concatenate([*found, np.empty(0, dtype=np.uint64)]))


def _since(lake: Lake, repo: Repository, dead: pa.Table, now_ms: int) -> pa.Table:
    """The dead, each with when it was first found to be, and at every mark since."""
    before = _noted(lake, repo)
    since = np.full(dead.num_rows, now_ms, dtype=np.int64)
    if before is not None and dead.num_rows:
        at = pc.index_in(dead["name"].combine_chunks(), value_set=before["name"].combine_chunks())
        known = bools(pc.is_valid(at))
        since[known] = before["since_ms"].combine_chunks().take(at.drop_null()).to_numpy()
    return pa.table([dead["name"], dead["size"], pa.array(since)], schema=_DEAD)


def _noted(lake: Lake, repo: Repository) -> pa.Table | None:
    found = lake.kv.get(_partition(repo), b"note")
    if found is None:
        return None
    data = lake.blobs(repo).get(_DECODER.decode(found.value).file)
    return None if data is None else pq.read_table(pa.BufferReader(data), schema=_DEAD)


@step("note")
def _note(lake: Lake, repo: Repository, dead: pa.Table, now_ms: int) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(dead, sink, compression="zstd")
    file = f"{_NOTES}{now_ms}-{lake.world.token(8)}.parquet"
    blobs = lake.blobs(repo)
    blobs.put(file, memoryview(sink.getvalue()))
    before = lake.kv.get(_partition(repo), b"note")
    note = _ENCODER.encode(Note(file=file, at_ms=now_ms))
    if lake.kv.put_if(_partition(repo), b"note", note, before.version if before else None) and before:
        blobs.delete([_DECODER.decode(before.value).file])


@step("sweep")
def _sweep(lake: Lake, repo: Repository, names: list[str], tell: Progress) -> None:
    blobs, tables = lake.blobs(repo), f"{_METADATA}staging/"
    for start in range(0, len(names), _BATCH):
        batch = names[start : start + _BATCH]
        for name in batch:
            if name.startswith(tables):
                lake.tables(repo).delete(FileName(name.removeprefix(tables).removesuffix(".sst")))
        lake.kv.delete_many(f"commits/{repo.uid}", [_commit_key(name) for name in batch if name.startswith(_COMMITS)])
        blobs.delete([name for name in batch if not name.startswith(_COMMITS)])
        tell("deleted", start + len(batch))


def _commit_key(name: str) -> bytes:
    return name.removeprefix(_COMMITS).encode()


def _report(listed: pa.Table, dead: pa.Table, due: pa.Table, grace_s: float, dry_run: bool) -> Report:
    last_ms = pc.max(due["since_ms"]).as_py() or 0
    first_ms = pc.min(dead.filter(pc.greater(dead["since_ms"], last_ms))["since_ms"]).as_py()
    by_prefix: dict[str, tuple[int, int]] = {}
    for name, size in zip(due["name"].to_pylist(), due["size"].to_pylist(), strict=True):
        parts = name.split("/")
        depth = 2 if name.startswith((_METADATA, f"{_DATA}jobs/")) else 1
        prefix = "commits" if name.startswith(_COMMITS) else "/".join(parts[:depth]) + "/"
        files, total = by_prefix.get(prefix, (0, 0))
        by_prefix[prefix] = (files + 1, total + size)
    return Report(
        listed=listed.num_rows,
        listed_bytes=pc.sum(listed["size"]).as_py() or 0,
        dead=dead.num_rows,
        dead_bytes=pc.sum(dead["size"]).as_py() or 0,
        deleted=due.num_rows,
        deleted_bytes=pc.sum(due["size"]).as_py() or 0,
        by_prefix=by_prefix,
        next_ms=None if first_ms is None else first_ms + int(grace_s * 1000),
        dry_run=dry_run,
    )


def _partition(repo: Repository) -> str:
    return f"gc/{repo.uid}"
