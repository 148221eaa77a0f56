"""The repository's task list: long work, how far it is, and what came of it."""

from itertools import islice

from esker.auth import Need
from esker.engine import tasks
from esker.server import wire
from esker.server.call import Call, NoQuery, Operation
from esker.server.errors import named_status
from esker.server.paging import PageQuery, pagination


def list_tasks(call: Call[PageQuery, None]) -> wire.TaskList:
    """Long work on a repository, under way and over, in order of ids."""
    query = call.query
    found = list(islice(tasks.every(call.lake, call.repo, after=query.after), query.size + 1))
    shown = found[: query.size]
    return wire.TaskList(
        pagination=pagination(shown, shown[-1].id if len(found) > query.size else None),
        results=[_task(task) for task in shown],
    )


def get_task(call: Call[NoQuery, None]) -> wire.Task:
    """How far a task is, and what came of it."""
    return _task(tasks.get(call.lake, call.repo, call.path["task"]))


def cancel_task(call: Call[NoQuery, None]) -> wire.Task:
    """Have a task stop, which it does when it next looks. 409 if it is over."""
    return _task(tasks.cancel(call.lake, call.repo, call.path["task"]))


def _task(task: tasks.Task) -> wire.Task:
    return wire.Task(
        id=task.id,
        kind=task.kind,
        about=task.about,
        state=task.state.value,
        started_ms=task.started_ms,
        seen_ms=task.seen_ms,
        cancelled=task.cancelled,
        progress=task.progress,
        summary=task.summary,
        error=task.error or None,
        error_kind=task.error_kind or None,
        error_status=named_status(task.error_class, task.error_kind),
    )


_ALL = "/repositories/{repository}/tasks"
_ONE = f"{_ALL}/{{task}}"

OPERATIONS = [
    Operation(id="listTasks", method="GET", path=_ALL, need=Need.READ, handler=list_tasks, ours=True),
    Operation(id="getTask", method="GET", path=_ONE, need=Need.READ, handler=get_task, ours=True),
    Operation(
        id="cancelTask",
        method="POST",
        path=f"{_ONE}/cancel",
        need=Need.WRITE,
        handler=cancel_task,
        ours=True,
        statuses=(409,),
    ),
]
