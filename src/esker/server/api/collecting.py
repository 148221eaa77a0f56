"""What other collectors of garbage ask: which commits a repository's rules keep. It is done when it is answered."""

from datetime import UTC, datetime
from typing import Final

from esker.auth import Need
from esker.engine import garbage, tasks
from esker.engine.tasks import Task, TaskState
from esker.errors import Kind, NotFoundError
from esker.model import Repository
from esker.server import places, wire
from esker.server.api.answers import task_error
from esker.server.call import Call, NoQuery, Operation


class PreparedQuery(NoQuery, frozen=True, kw_only=True):
    """Which one."""

    id: str


def prepare_commits(call: Call[NoQuery, None]) -> wire.GarbageCollectionPrepared:
    """Write down all commits, and whether the rules let go of them."""
    return _prepared(call.repo, garbage.prepare(call.lake, call.repo))


def prepare_commits_async(call: Call[NoQuery, None]) -> wire.TaskInfo:
    """Write down all commits, and whether the rules let go of them. The status names the file."""
    return wire.TaskInfo(id=garbage.prepare(call.lake, call.repo).id)


def prepare_commits_status(call: Call[PreparedQuery, None]) -> wire.GarbageCollectionPreparation:
    """Where the commits were written down."""
    repo = call.repo
    task = tasks.get(call.lake, repo, call.query.id)
    if task.kind != garbage.PREPARE:
        raise NotFoundError(Kind.TASK_NOT_FOUND, f"task {task.id!r} of {repo.name!r} prepared nothing")
    return wire.GarbageCollectionPreparation(
        task_id=task.id,
        completed=task.over,
        update_time=datetime.fromtimestamp(task.seen_ms / 1000, UTC),
        result=_prepared(repo, task) if task.state is TaskState.DONE else None,
        error=task_error(task),
    )


def get_usage(call: Call[NoQuery, None]) -> wire.UsageReport:
    """What was used, by month: 404, for nobody keeps count."""
    raise NotFoundError(Kind.REPORT_NOT_FOUND, "this server keeps no reports of usage: /metrics has what it counts")


def _prepared(repo: Repository, task: Task) -> wire.GarbageCollectionPrepared:
    commits, addresses = (places.absolute(repo, str(task.summary[name])) for name in ("commits", "addresses"))
    return wire.GarbageCollectionPrepared(run_id=task.id, gc_commits_location=commits, gc_addresses_location=addresses)


_GC: Final = "/repositories/{repository}/gc"

OPERATIONS: Final = [
    Operation(
        id="prepareGarbageCollectionCommits",
        method="POST",
        path=f"{_GC}/prepare_commits",
        need=Need.ADMIN,
        handler=prepare_commits,
        status=201,
    ),
    Operation(
        id="prepareGarbageCollectionCommitsAsync",
        method="POST",
        path=f"{_GC}/prepare_commits/async",
        need=Need.ADMIN,
        handler=prepare_commits_async,
        status=202,
    ),
    Operation(
        id="prepareGarbageCollectionCommitsStatus",
        method="GET",
        path=f"{_GC}/prepare_commits/status",
        need=Need.ADMIN,
        handler=prepare_commits_status,
    ),
    Operation(
        id="getUsageReportSummary",
        method="GET",
        path="/usage-report/summary",
        need=Need.READ,
        handler=get_usage,
        statuses=(404,),
    ),
]
