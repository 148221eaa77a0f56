"""Jobs: start one, write its blobs without a call here, publish all of them in one commit.

What a job publishes lies below its own address and nowhere else, so a job can link nothing that is not its own.
"""

import re
from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from esker.auth import Need
from esker.engine import jobs
from esker.engine.entries import check_path
from esker.errors import InvalidError, Kind
from esker.model import Entry
from esker.server import places, presigning, uploads, wire
from esker.server.call import Call, NoQuery, Operation
from esker.server.paging import PageQuery, pagination
from esker.streams.entries import changes_of
from esker.streams.rows import Changes

PUBLICATION_BYTES_MAX: Final = 256 << 20
"""About a million files in one job."""

UPLOADS_MAX: Final = 1000
"""URLs that are signed at once."""

_NAME: Final = re.compile(presigning.JOB_BLOB_NAME)
_TASKS: Final = msgspec.json.Decoder(wire.JobTask)


class CleanQuery(NoQuery, frozen=True, kw_only=True):
    """Which jobs."""

    older_than_s: Annotated[float, msgspec.Meta(ge=0, le=1e10)]


def start_job(call: Call[NoQuery, wire.JobCreation]) -> wire.Job:
    """Start a job that is to be published to a branch. Starting it again by the same id is no error."""
    body, repo = call.body, call.writable_repo()
    job = jobs.start(call.lake, repo, call.path["branch"], job_id=body.id or "", transaction=bool(body.transaction))
    return _job(call, job)


def list_jobs(call: Call[PageQuery, None]) -> wire.JobList:
    """Jobs that are known, in order of their ids."""
    query = call.query
    found = list(islice(jobs.every(call.lake, call.repo, after=query.after), query.size + 1))
    shown = found[: query.size]
    return wire.JobList(
        pagination=pagination(shown, shown[-1].id if len(found) > query.size else None),
        results=[_about(job) for job in shown],
    )


def get_job(call: Call[NoQuery, None]) -> wire.Job:
    """A job, and where its blobs go."""
    return _job(call, jobs.get(call.lake, call.repo, call.path["job"]))


def beat_job(call: Call[NoQuery, None]) -> wire.Job:
    """A sign of life, so that nobody takes the job for dead."""
    return _job(call, jobs.beat(call.lake, call.repo, call.path["job"]))


def abort_job(call: Call[NoQuery, None]) -> wire.Job:
    """End a job without a trace on its branch; the answer tells if it had been published already."""
    return _job(call, jobs.abort(call.lake, call.repo, call.path["job"]))


def sign_uploads(call: Call[NoQuery, wire.JobBlobs]) -> wire.JobUploads:
    """URLs to upload blobs of a job to, in the order of their names: the store's own, where it has them."""
    repo, names = call.writable_repo(), call.body.names
    job = jobs.writing(call.lake, repo, call.path["job"])
    if len(names) > UPLOADS_MAX:
        raise InvalidError(Kind.INVALID_ARGUMENT, f"at most {UPLOADS_MAX} URLs at once, not {len(names)}")
    for name in names:
        if not _NAME.fullmatch(name):
            raise InvalidError(Kind.INVALID_NAME, f"no blob of a job can be called {name[:60]!r}")
    return wire.JobUploads(urls=[presigning.writing(call, repo, job.data + name).url for name in names])


def commit_task(call: Call[NoQuery, wire.JobTask]) -> None:
    """Keep what a task of a job wrote, instead of what it wrote before, until the job is published with its tasks."""
    task = call.path["task"]
    if not _NAME.fullmatch(task):
        raise InvalidError(Kind.INVALID_NAME, f"a task cannot be called {task[:60]!r}")
    job = jobs.get(call.lake, call.repo, call.path["job"])
    for one in call.body.entries:
        _entry(job, one)
    jobs.commit_task(call.lake, call.writable_repo(), job.id, task, msgspec.json.encode(call.body))


def publish_job(call: Call[NoQuery, wire.JobPublication]) -> wire.MergeResult:
    """Make all that a job wrote visible, in one commit; of a transaction, all that its jobs did. Asking again gives
    the same commit."""
    body, repo = call.body, call.writable_repo()
    job = jobs.get(call.lake, repo, call.path["job"])
    metadata = body.metadata or {}
    uploads.check_metadata(metadata)
    said: dict[str, Any] = {
        "message": body.message or "",
        "committer": call.identity.user,
        "metadata": metadata,
        "force": bool(body.force),
    }
    if job.transaction:
        if body.entries or body.tasks or body.deletes or body.removes or body.expect_empty:
            raise InvalidError(
                Kind.INVALID_ARGUMENT, f"job {job.id!r} is a transaction: write with jobs on branch {job.own_branch!r}"
            )
        return wire.MergeResult(reference=jobs.publish_transaction(call.lake, repo, job.id, **said))
    said_entries = [*body.entries]
    if body.tasks:
        said_entries += [one for task in jobs.tasks(call.lake, repo, job.id) for one in _TASKS.decode(task).entries]
    changes = Changes(changes_of([_entry(job, one) for one in said_entries], body.removes), tuple(body.deletes))
    for path in body.removes:
        check_path(path)
    commit = jobs.publish(call.lake, repo, job.id, changes, expect_empty=body.expect_empty, **said)
    return wire.MergeResult(reference=commit)


def clean_jobs(call: Call[CleanQuery, None]) -> wire.JobCleaning:
    """Abort jobs that gave no sign of life for so long, and forget those that ended as long ago."""
    aborted = jobs.clean(call.lake, call.writable_repo(), older_than_s=call.query.older_than_s)
    return wire.JobCleaning(aborted=[_about(job) for job in aborted])


def _entry(job: jobs.Job, said: wire.JobEntry) -> Entry:
    if not said.address.startswith(job.data) or not _NAME.fullmatch(said.address.removeprefix(job.data)):
        raise InvalidError(
            Kind.INVALID_ADDRESS, f"{said.address!r} is no address of job {job.id!r}: its blobs lie in {job.data!r}"
        )
    metadata = said.metadata or {}
    uploads.check_metadata(metadata)
    return Entry(
        path=said.path,
        address=said.address,
        size=said.size,
        checksum=said.checksum,
        mtime_ms=said.mtime_ms,
        content_type=said.content_type,
        metadata=metadata,
    )


def _about(job: jobs.Job) -> wire.JobStatus:
    return wire.JobStatus(
        id=job.id,
        branch=job.branch,
        base=job.base,
        state=job.state.value,
        started_ms=job.started_ms,
        seen_ms=job.seen_ms,
        transaction=job.transaction,
        reference=job.commit,
    )


def _job(call: Call[Any, Any], job: jobs.Job) -> wire.Job:
    repo = call.repo
    return wire.Job(
        id=job.id,
        branch=job.branch,
        base=job.base,
        state=job.state.value,
        started_ms=job.started_ms,
        seen_ms=job.seen_ms,
        transaction=job.transaction,
        reference=job.commit,
        own_branch=job.own_branch if job.transaction else None,
        data=job.data,
        physical_prefix=places.absolute(repo, job.data),
        upload_prefix=presigning.job_upload_prefix(call, repo, job.data),
    )


_ALL = "/repositories/{repository}/jobs"
_ONE = f"{_ALL}/{{job}}"

OPERATIONS = [
    Operation(
        id="startJob",
        method="POST",
        path="/repositories/{repository}/branches/{branch}/jobs",
        need=Need.WRITE,
        handler=start_job,
        status=201,
        ours=True,
        statuses=(409,),
    ),
    Operation(id="listJobs", method="GET", path=_ALL, need=Need.READ, handler=list_jobs, ours=True),
    Operation(id="cleanJobs", method="POST", path=f"{_ALL}/clean", need=Need.WRITE, handler=clean_jobs, ours=True),
    Operation(id="getJob", method="GET", path=_ONE, need=Need.WRITE, handler=get_job, ours=True),
    Operation(
        id="beatJob",
        method="POST",
        path=f"{_ONE}/beat",
        need=Need.WRITE,
        handler=beat_job,
        ours=True,
        statuses=(409,),
    ),
    Operation(id="abortJob", method="POST", path=f"{_ONE}/abort", need=Need.WRITE, handler=abort_job, ours=True),
    Operation(
        id="signJobUploads",
        method="POST",
        path=f"{_ONE}/uploads",
        need=Need.WRITE,
        handler=sign_uploads,
        ours=True,
        statuses=(409,),
    ),
    Operation(
        id="commitJobTask",
        method="PUT",
        path=f"{_ONE}/tasks/{{task}}",
        need=Need.WRITE,
        handler=commit_task,
        ours=True,
        status=204,
        statuses=(409,),
    ),
    Operation(
        id="publishJob",
        method="POST",
        path=f"{_ONE}/publish",
        need=Need.WRITE,
        handler=publish_job,
        ours=True,
        body_bytes_max=PUBLICATION_BYTES_MAX,
        statuses=(409, 410),
    ),
]
