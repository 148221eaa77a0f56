"""Dumps: all refs of a repository as files, and a bare repository filled from them.

Both are done when they are answered: who then asks for the status, as clients do, is told that.
"""

from datetime import UTC, datetime
from typing import Final

from esker.auth import Need
from esker.engine import dumps
from esker.engine.dumps import Dump
from esker.engine.tasks import Task
from esker.server import wire
from esker.server.call import Call, NoQuery, Operation


class TaskQuery(NoQuery, frozen=True, kw_only=True):
    """Which one."""

    task_id: str


def dump_submit(call: Call[NoQuery, None]) -> wire.TaskInfo:
    """Write down all branches, tags and commits as files in the repository's place. Its status names them."""
    return wire.TaskInfo(id=dumps.dump(call.lake, call.repo).id)


def dump_status(call: Call[TaskQuery, None]) -> wire.DumpStatus:
    """The files of a dump, for a restore."""
    task, made = dumps.status(call.lake, call.repo, "dump", call.query.task_id)
    return wire.DumpStatus(
        id=task.id,
        done=task.over,
        update_time=_time(task),
        error=task.error or None,
        refs=_refs(made) if made else None,
    )


def restore_submit(call: Call[NoQuery, wire.RefsRestore]) -> wire.TaskInfo:
    """Make the branches, tags and commits of a dump in a repository that was created bare, where the dumped one lay."""
    return wire.TaskInfo(id=_restore(call).id)


def restore_status(call: Call[TaskQuery, None]) -> wire.RestoreStatus:
    """Whether a restore is done."""
    task, _ = dumps.status(call.lake, call.repo, "restore", call.query.task_id)
    return wire.RestoreStatus(id=task.id, done=task.over, update_time=_time(task), error=task.error or None)


def dump_refs(call: Call[NoQuery, None]) -> wire.RefsDump:
    """Write down all branches, tags and commits as files in the repository's place: their names."""
    return _refs(dumps.dump_of(dumps.dump(call.lake, call.repo)))


def restore_refs(call: Call[NoQuery, wire.RefsRestore]) -> None:
    """Make the branches, tags and commits of a dump in a repository that was created bare, where the dumped one lay."""
    _restore(call)


def _restore(call: Call[NoQuery, wire.RefsRestore]) -> Task:
    body = call.body
    asked = Dump(commits=body.commits_meta_range_id, tags=body.tags_meta_range_id, branches=body.branches_meta_range_id)
    return dumps.restore(call.lake, call.writable_repo(force=bool(body.force)), asked)


def _refs(made: Dump) -> wire.RefsDump:
    return wire.RefsDump(
        commits_meta_range_id=made.commits, tags_meta_range_id=made.tags, branches_meta_range_id=made.branches
    )


def _time(task: Task) -> datetime:
    return datetime.fromtimestamp(task.seen_ms / 1000, UTC)


_ONE: Final = "/repositories/{repository}"

OPERATIONS: Final = [
    Operation(id="dumpSubmit", method="POST", path=f"{_ONE}/dump", need=Need.ADMIN, handler=dump_submit, status=202),
    Operation(id="dumpStatus", method="GET", path=f"{_ONE}/dump", need=Need.ADMIN, handler=dump_status),
    Operation(
        id="restoreSubmit", method="POST", path=f"{_ONE}/restore", need=Need.ADMIN, handler=restore_submit, status=202
    ),
    Operation(id="restoreStatus", method="GET", path=f"{_ONE}/restore", need=Need.ADMIN, handler=restore_status),
    Operation(id="dumpRefs", method="PUT", path=f"{_ONE}/refs/dump", need=Need.ADMIN, handler=dump_refs, status=201),
    Operation(id="restoreRefs", method="PUT", path=f"{_ONE}/refs/restore", need=Need.ADMIN, handler=restore_refs),
]
