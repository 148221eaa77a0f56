"""Jobs: writers of many files that appear on a branch in one commit, or not at all.

    1. start    a record of the job, and an address below which its blobs may lie      kv
    2. write    blobs, by many tasks, with no call here
    3. publish  one layer, applied to the head of the branch in one commit             engine.landing
    4. forget   the record, a while later

A job is published by laying its layer over whatever is the head, again and again until it lands: not by a three-way
merge, which would leave leftovers of an overwrite, or conflict for the race alone. So jobs equal some serial order of
their landing: all appends land, and of overwrites the last one wins whole. What others than jobs have changed under
the job's hands since it started is no race: it is an error that names the paths, unless forced.

The commit carries the job's id, so a publication whose answer was lost is found, and not done again. To abort is to
mark the record, and then to change the branch's: a publication that was under way has to look again, and finds it.

A transaction is a job with a hidden branch of its own, to which other jobs are published as layers; it is published as
all of these in one.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esker.engine import layers, metrics, protection
from esker.engine.commit import NO_METADATA, fold, record_commit
from esker.engine.entries import check_prefix
from esker.engine.lake import Lake
from esker.engine.landing import Already, clean_head, land
from esker.engine.protection import Action
from esker.engine.snapshots import Snapshot, folding, of_record
from esker.errors import ConflictError, ContentionError, InvalidError, Kind, NotFoundError, OutcomeUnknownError
from esker.model import CommitID, Repository
from esker.refs import history, stored
from esker.refs.names import check_branch, did_you_mean
from esker.refs.records import Branch
from esker.staging.stack import View
from esker.stores.kv import KEY_BYTES_MAX, Record, items
from esker.streams.arrays import bools, only_chunk
from esker.streams.listing import Sorted, page
from esker.streams.rows import Changes, within

JOB: Final = "esker.job"
"""The key of a commit's metadata that names the job it published."""

_NUMBERED: Final = re.compile(r"(.+)-([0-9]{1,10})")
"""An id that a caller chose for one of a series."""

_ID_BYTES: Final = 12
_TRIES_MAX: Final = 100
_NAMED_MAX: Final = 3


class JobState(StrEnum):
    RUNNING = "running"
    ABORTED = "aborted"
    PUBLISHED = "published"


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job's record, kept for a while after it ended."""

    id: str
    branch: str
    base: CommitID
    """The head of the branch when the job started."""
    started_ms: int
    seen_ms: int
    """When it last gave a sign of life."""
    state: JobState = JobState.RUNNING
    commit: CommitID | None = None
    """What published it."""
    transaction: bool = False
    expect_empty: tuple[str, ...] = ()
    """Of a transaction: prefixes under which its jobs found nothing, and which must be empty still."""
    format_version: int = 1

    @property
    def data(self) -> str:
        """Where its blobs lie, below the repository's namespace: kept as long as the job runs."""
        return f"data/jobs/{self.id}/"

    @property
    def own_branch(self) -> str:
        """Of a transaction: what its jobs are published to."""
        return f"tx-{self.id}"


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Job)


@metrics.measured("start-job")
def start(lake: Lake, repo: Repository, branch: str, *, job_id: str = "", transaction: bool = False) -> Job:
    """A job that is to be published to `branch`. Starting the same again, with an id of the caller's, is no error, and
    an aborted one begins anew; ConflictError if it is published already, or for another branch. InvalidError if the
    branch has uncommitted changes: told now, rather than when all is written."""
    protection.check(lake, repo, branch, Action.COMMIT)
    job_id = check_branch(job_id or lake.world.token(_ID_BYTES))  # an id is part of a branch's name
    now_ms = lake.world.now_ms()
    now = lake.branches(repo).get(branch)
    base = now.commit if now.layers_only else _clean_head(lake, repo, branch, job_id)
    job = Job(id=job_id, branch=branch, base=base, started_ms=now_ms, seen_ms=now_ms, transaction=transaction)
    if not lake.kv.put_if(_partition(repo), job_id.encode(), _ENCODER.encode(job), None):
        known = get(lake, repo, job_id)
        if (known.branch, known.transaction) == (branch, transaction) and known.state is JobState.ABORTED:
            known = _revived(lake, repo, job)
        if (known.branch, known.state, known.transaction) != (branch, JobState.RUNNING, transaction):
            raise ConflictError(Kind.JOB_EXISTS, f"job {job_id!r} of {repo.name!r} is known: draw another id")
        job = known
    if transaction:
        _create_branch(lake, repo, job)
    return job


def get(lake: Lake, repo: Repository, job_id: str) -> Job:
    """The job's record. NotFoundError if there is none."""
    return _read(lake, repo, job_id)[0]


def writing(lake: Lake, repo: Repository, job_id: str) -> Job:
    """The record of a job that may write blobs. ConflictError if it has ended: what it wrote may be published."""
    job = _running(repo, get(lake, repo, job_id))
    if job.state is JobState.PUBLISHED:
        raise ConflictError(Kind.JOB_PUBLISHED, f"job {job_id!r} of {repo.name!r} is published: start another")
    return job


def every(lake: Lake, repo: Repository, *, after: str = "") -> Iterator[Job]:
    """All jobs that are known behind `after`, in order of id."""
    start = after.encode(errors="replace") + b"\0" if after else b""
    for item in items(lake.kv, _partition(repo), start[:KEY_BYTES_MAX]):
        yield _decode(item.key.decode(), item.record)


def beat(lake: Lake, repo: Repository, job_id: str) -> Job:
    """A sign of life. ConflictError if the job was aborted meanwhile."""
    return _change(lake, repo, job_id, lambda job: msgspec.structs.replace(_running(repo, job), seen_ms=_now(lake)))


def commit_task(lake: Lake, repo: Repository, job_id: str, task: str, said: bytes) -> None:
    """Keep what a task says it wrote until its job is published, instead of what it said before."""
    job = _running(repo, get(lake, repo, job_id))
    lake.blobs(repo).put(_task_blob(job, task), said)


def tasks(lake: Lake, repo: Repository, job_id: str) -> Iterator[bytes]:
    """What each task of a job said last."""
    blobs, job = lake.blobs(repo), get(lake, repo, job_id)
    for info in blobs.list(_task_blob(job, "")):
        said = blobs.get(info.name)
        assert said is not None, "nobody deletes blobs of a job that runs"
        yield said


@metrics.measured("publish")
def publish(
    lake: Lake,
    repo: Repository,
    job_id: str,
    changes: Changes,
    *,
    expect_empty: Sequence[str] = (),
    message: str = "",
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
    force: bool = False,
) -> CommitID:
    """Make `changes` visible on the job's branch, at once: the commit; of a job in a transaction, the transaction's
    base. Doing it again gives the same.

    ConflictError with the paths: if something is under `expect_empty`, or others than jobs changed what the job changes
    since it started, unless forced.
    """
    job = get(lake, repo, job_id)
    if job.state is JobState.PUBLISHED and job.commit:
        return job.commit
    _running(repo, job)
    for prefix in (*changes.deletes, *expect_empty):
        check_prefix(prefix)
    _check_blobs(lake, repo, job, changes)
    if lake.branches(repo).get(job.branch).layers_only:
        commit = _publish_in_transaction(lake, repo, job, changes, expect_empty)
    else:
        commit = _land(lake, repo, job, changes, expect_empty, message, committer, metadata, force)
    _change(
        lake,
        repo,
        job_id,
        lambda now: msgspec.structs.replace(now, state=JobState.PUBLISHED, commit=commit, seen_ms=_now(lake)),
    )
    return commit


@metrics.measured("publish-transaction")
def publish_transaction(
    lake: Lake,
    repo: Repository,
    job_id: str,
    *,
    message: str = "",
    committer: str = "",
    metadata: Mapping[str, str] = NO_METADATA,
    force: bool = False,
) -> CommitID:
    """Publish all that was staged in a transaction, in one commit: that. Its base, if that is nothing."""
    job = get(lake, repo, job_id)
    if not job.transaction:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"job {job_id!r} of {repo.name!r} is no transaction: publish it")
    if job.state is JobState.PUBLISHED and job.commit:
        return job.commit
    _running(repo, job)
    branches = lake.branches(repo)
    sealed = branches.update(job.own_branch, lambda record: record.rotated(branches.fresh_token()))
    assert sealed is not None
    folded = lake.stack_of(repo, sealed.basis().layers).fold()
    commit = job.base
    if folded.rows.num_rows or folded.deletes:
        commit = publish(
            lake,
            repo,
            job_id,
            folded,
            expect_empty=job.expect_empty,
            message=message,
            committer=committer,
            metadata=metadata,
            force=force,
        )
    _drop_branch(lake, repo, job)
    return commit


@metrics.measured("abort-job")
def abort(lake: Lake, repo: Repository, job_id: str) -> Job:
    """End a job without a trace on its branch: its record, which tells the commit if it had been published already.
    Blobs stay, for the garbage collector. Aborting again is no error."""
    job = _change(
        lake,
        repo,
        job_id,
        lambda now: now if now.state is JobState.PUBLISHED else msgspec.structs.replace(now, state=JobState.ABORTED),
    )
    branches = lake.branches(repo)
    touched = branches.update(job.branch, Branch.touched) if branches.find(job.branch) else None
    if touched and job.state is JobState.ABORTED and (landed := _landed(lake, repo, job, touched.commit)):
        job = _change(
            lake,
            repo,
            job_id,
            lambda now: msgspec.structs.replace(now, state=JobState.PUBLISHED, commit=landed),
        )
    if job.transaction:
        for inner in list(every(lake, repo)):  # should it begin anew, nothing of theirs may be part of that
            if inner.branch == job.own_branch and inner.state is JobState.RUNNING:
                abort(lake, repo, inner.id)
        _drop_branch(lake, repo, job)
    return job


def clean(lake: Lake, repo: Repository, *, older_than_s: float) -> list[Job]:
    """Abort jobs that gave no sign of life for so long, and forget those that ended as long ago: what was aborted. Of
    those that are numbered, as the batches of a stream are, the last to be published is remembered: it may come again.
    """
    before_ms = _now(lake) - int(older_than_s * 1000)
    known = list(every(lake, repo))
    last: dict[str, int] = {}
    for job in known:
        if job.state is JobState.PUBLISHED and (numbered := _NUMBERED.fullmatch(job.id)):
            last[numbered[1]] = max(last.get(numbered[1], 0), int(numbered[2]))
    aborted = []
    for job in known:
        if job.seen_ms > before_ms:
            continue
        numbered = _NUMBERED.fullmatch(job.id)
        if job.state is JobState.RUNNING:
            aborted.append(abort(lake, repo, job.id))
        elif not numbered or last.get(numbered[1]) != int(numbered[2]):
            lake.kv.delete(_partition(repo), job.id.encode())
    return aborted


def _land(
    lake: Lake,
    repo: Repository,
    job: Job,
    changes: Changes,
    expect_empty: Sequence[str],
    message: str,
    committer: str,
    metadata: Mapping[str, str],
    force: bool,
) -> CommitID:
    past, commits = lake.past(repo), lake.commits(repo)
    looked_at: dict[CommitID, list[str]] = {}

    def make(head: CommitID) -> CommitID | Already:
        if landed := _landed(lake, repo, job, head):
            return Already(landed)
        wanted()
        tree = commits.get(head).tree
        for prefix in expect_empty:
            if _shows(lake, repo, Snapshot(tree, None, tree), prefix):
                raise _not_empty(repo, job.branch, prefix)
        if not force:
            _check_overlap(lake, repo, job, head, changes, looked_at)
        return record_commit(
            lake,
            repo,
            tree=past.apply(tree, changes),
            parents=(head,),
            message=message or f"Publish job {job.id}",
            committer=committer,
            metadata={**metadata, JOB: job.id},
        )

    def wanted() -> None:
        _running(repo, get(lake, repo, job.id))

    for _ in range(_TRIES_MAX):
        _clean_head(lake, repo, job.branch, job.id, committer)  # told before the work, not after
        try:
            return land(lake, repo, job.branch, make, wanted=wanted)
        except InvalidError as error:
            if error.kind is not Kind.DIRTY_BRANCH:
                raise
    raise _restless(repo, job.branch)


def _clean_head(lake: Lake, repo: Repository, branch: str, job_id: str, committer: str = "") -> CommitID:
    """The commit of a branch with nothing staged but marks of directories, which are committed. InvalidError if there
    is more."""
    for _ in range(_TRIES_MAX):
        try:
            return clean_head(lake, repo, branch)
        except InvalidError as error:
            if error.kind is not Kind.DIRTY_BRANCH or not _commit_directories(lake, repo, branch, job_id, committer):
                raise
    raise _restless(repo, branch)


def _restless(repo: Repository, branch: str) -> ContentionError:
    return ContentionError(Kind.CONTENTION, f"branch {branch!r} of {repo.name!r} kept changing: try again")


def _commit_directories(lake: Lake, repo: Repository, branch: str, job_id: str, committer: str) -> bool:
    """Commit what is staged, if it is nothing but marks of directories: those who write files make them on the way, and
    no one thinks of them as changes. Whether it was."""
    branches, past = lake.branches(repo), lake.past(repo)
    sealed = branches.update(branch, lambda record: record.rotated(branches.fresh_token()))
    assert sealed is not None
    basis = sealed.basis()
    before = lake.commits(repo).get(sealed.commit).tree
    with folding(lake, repo, branch, basis):
        tree = fold(lake, repo, before, basis)
    for deltas in past.diff(before, tree):
        marks = pc.and_(pc.ends_with(deltas["path"], "/"), pc.equal(deltas["size"], 0))
        if not pc.all(marks).as_py():
            return False
    made = record_commit(
        lake,
        repo,
        tree=tree,
        parents=(sealed.commit,),
        message=f"Directories for job {job_id}",
        committer=committer,
        metadata={JOB: f"{job_id}/directories"},
    )
    branches.update(branch, partial(Branch.advanced, commit=made, basis=basis))
    return True  # or others were first: it is looked at again


def _publish_in_transaction(
    lake: Lake, repo: Repository, job: Job, changes: Changes, expect_empty: Sequence[str]
) -> CommitID:
    """Lay the job's layer on the branch of its transaction."""
    branches = lake.branches(repo)
    record = branches.get(job.branch)
    for prefix in expect_empty:
        if _shows(lake, repo, of_record(lake, repo, record, record.layers), prefix):
            raise _not_empty(repo, job.branch, prefix)
    layer = layers.write(lake, repo, f"{job.branch}/L1", changes)
    try:
        layers.lay(lake, repo, job.branch, layer)
    except OutcomeUnknownError:
        there = {file for one in branches.get(job.branch).layers for file in one.files}
        if not layer.files or not there.issuperset(layer.files):
            raise
    outer = job.branch.removeprefix("tx-")
    tables = lake.tables(repo)
    still = tuple(prefix for prefix in expect_empty if not any(tables.hides(layer, prefix) for layer in record.layers))
    _change(
        lake,
        repo,
        outer,
        lambda now: msgspec.structs.replace(now, seen_ms=_now(lake), expect_empty=(*now.expect_empty, *still)),
    )
    return job.base


def _landed(lake: Lake, repo: Repository, job: Job, head: CommitID) -> CommitID | None:
    """The commit that published the job, if one below `head` did."""
    return next((name for name, metadata in _since(lake, repo, job, head) if metadata.get(JOB) == job.id), None)


def _since(lake: Lake, repo: Repository, job: Job, head: CommitID) -> Iterator[tuple[CommitID, Mapping[str, str]]]:
    """The first parents from `head` back to where the job started."""
    commits = lake.commits(repo)
    oldest = commits.get(job.base).generation
    for name, commit in history.first_parents(commits.get, head):
        if commit.generation <= oldest:
            return
        yield name, commit.metadata


def _check_overlap(
    lake: Lake, repo: Repository, job: Job, head: CommitID, changes: Changes, looked_at: dict[CommitID, list[str]]
) -> None:
    """ConflictError if others than jobs have changed, since it started, what the job changes."""
    past, commits = lake.past(repo), lake.commits(repo)
    ours = only_chunk(changes.rows["path"])
    found: list[str] = []
    for name, metadata in _since(lake, repo, job, head):
        if JOB in metadata:
            continue
        if name not in looked_at:
            commit = commits.get(name)
            before = commits.get(commit.parents[0]).tree
            looked_at[name] = [
                path
                for deltas in past.diff(before, commit.tree)
                for path in _touched(only_chunk(deltas["path"]), ours, changes.deletes)
            ]
        found += looked_at[name]
    if found:
        paths = sorted(set(found))
        shown = ", ".join(map(repr, paths[:_NAMED_MAX])) + (
            f" and {len(paths) - _NAMED_MAX} more" if len(paths) > _NAMED_MAX else ""
        )
        raise ConflictError(
            Kind.JOB_OVERLAP,
            f"job {job.id!r} changes {shown} of {job.branch!r} in {repo.name!r}, which others changed since it "
            "started: look at their commits, and run it again or force it",
            paths,
        )


def _touched(paths: pa.StringArray, ours: pa.StringArray, deletes: Sequence[str]) -> list[str]:
    both = bools(pc.is_in(paths, value_set=ours)).copy()
    for prefix in deletes:
        both[within(paths, prefix)] = True
    found: list[str] = paths.take(pa.array(np.flatnonzero(both))).to_pylist()
    return found


def _shows(lake: Lake, repo: Repository, snapshot: Snapshot, prefix: str) -> bool:
    """Whether there is anything under `prefix`."""
    past = lake.past(repo)

    def below(path: str) -> tuple[Sorted, int] | None:
        return past.seek(snapshot.tree, path)

    seek = below if snapshot.stack is None else View(snapshot.stack, below).seek
    return bool(page(seek, prefix=prefix, after="", delimiter="", amount=1).items)


def _check_blobs(lake: Lake, repo: Repository, job: Job, changes: Changes) -> None:
    """InvalidError if a blob that the job says it wrote is not there as it says: one listing, however many files."""
    rows = zip(changes.rows["address"].to_pylist(), changes.rows["size"].to_pylist(), strict=True)
    named = {(address, size) for address, size in rows if address.startswith(job.data)}
    if named:
        lake.blobs(repo).settle()
        named -= {(info.name, info.size) for info in lake.blobs(repo).list(job.data)}
    if named:
        raise InvalidError(
            Kind.BLOB_NOT_FOUND,
            f"job {job.id!r} of {repo.name!r} names {len(named)} blobs that are not there, or have another size, "
            f"{min(named)[0]!r} for one",
        )


def _revived(lake: Lake, repo: Repository, fresh: Job) -> Job:
    """An aborted job, from the beginning. What it may have published late is looked for first: after that, nothing of
    its former life can land below the base that it has now."""
    ended = abort(lake, repo, fresh.id)
    if ended.state is not JobState.ABORTED:
        return ended
    fresh = msgspec.structs.replace(fresh, base=lake.branches(repo).get(fresh.branch).commit)
    return _change(lake, repo, fresh.id, lambda now: fresh if now.state is JobState.ABORTED else now)


def _create_branch(lake: Lake, repo: Repository, job: Job) -> None:
    try:
        lake.branches(repo).create(job.own_branch, job.base, hidden=True, layers_only=True)
    except ConflictError:
        if not lake.branches(repo).get(job.own_branch).layers_only:
            raise


def _task_blob(job: Job, task: str) -> str:
    return f"{job.data}.tasks/{task}"


def _drop_branch(lake: Lake, repo: Repository, job: Job) -> None:
    branches = lake.branches(repo)
    if branches.find(job.own_branch):
        branches.update(job.own_branch, lambda record: record.removed(branches.fresh_token()))


def _running(repo: Repository, job: Job) -> Job:
    if job.state is JobState.ABORTED:
        raise ConflictError(Kind.JOB_ABORTED, f"job {job.id!r} of {repo.name!r} was aborted: start another")
    return job


def _not_empty(repo: Repository, branch: str, prefix: str) -> ConflictError:
    return ConflictError(
        Kind.OBJECT_EXISTS, f"there is something under {prefix!r} on {branch!r} of {repo.name!r} already", [prefix]
    )


def _change(lake: Lake, repo: Repository, job_id: str, change: Callable[[Job], Job]) -> Job:
    for _ in range(_TRIES_MAX):
        job, record = _read(lake, repo, job_id)
        changed = change(job)
        if changed == job or lake.kv.put_if(
            _partition(repo), job_id.encode(), _ENCODER.encode(changed), record.version
        ):
            return changed
    raise ContentionError(Kind.CONTENTION, f"the record of job {job_id!r} of {repo.name!r} kept changing: try again")


def _read(lake: Lake, repo: Repository, job_id: str) -> tuple[Job, Record]:
    key = job_id.encode(errors="replace")[:255]
    found = lake.kv.get(_partition(repo), key) if key else None
    if found is None:
        close = did_you_mean(job_id, (job.id for job in every(lake, repo)))
        raise NotFoundError(Kind.JOB_NOT_FOUND, f"no job {job_id!r} in {repo.name!r}{close}")
    return _decode(job_id, found), found


def _decode(job_id: str, found: Record) -> Job:
    return stored.decode(_DECODER, f"the record of job {job_id!r}", found.value)


def _partition(repo: Repository) -> str:
    return f"jobs/{repo.uid}"


def _now(lake: Lake) -> int:
    return lake.world.now_ms()
