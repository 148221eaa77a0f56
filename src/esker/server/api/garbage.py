"""Garbage collection: begin one, and see by its task how far it is, and what came of it."""

from esker.auth import Need
from esker.engine import garbage, tasks
from esker.server import wire, working
from esker.server.call import Call, NoQuery, Operation


def collect_garbage(call: Call[NoQuery, wire.GarbageCollection]) -> wire.TaskInfo:
    """Delete what no ref has reached for two days, by two collections: a task, whose summary is the report."""
    repo, dry_run = call.repo, call.body.dry_run

    def run(name: str) -> None:
        garbage.collect(call.lake, repo, dry_run=dry_run, task=tasks.get(call.lake, repo, name))

    return wire.TaskInfo(id=working.begin(lambda: garbage.start(call.lake, repo, dry_run=dry_run).id, run))


OPERATIONS = [
    Operation(
        id="collectGarbage",
        method="POST",
        path="/repositories/{repository}/gc/run",
        need=Need.ADMIN,
        handler=collect_garbage,
        status=202,
        statuses=(403,),
        ours=True,
    ),
]
