"""Exports: begin one, and see by its task how far it is."""

from esker.auth import Need
from esker.engine import exports, tasks
from esker.server import places, wire, working
from esker.server.call import Call, NoQuery, Operation


def export_objects(call: Call[NoQuery, wire.ExportCreation]) -> wire.TaskInfo:
    """Copy the objects of a ref, or what changed since another, to a plain place: a task, in the task list."""
    body, repo = call.body, call.repo
    place = places.check_elsewhere(
        call.server.known.homes(), call.server.targets, body.destination.rstrip("/"), "targets"
    )

    def start() -> str:
        task = exports.start(call.lake, repo, call.path["ref"], place.url, since=body.since, prefix=body.prefix)
        return task.id

    def run(name: str) -> None:
        exports.export(call.lake, repo, tasks.get(call.lake, repo, name))

    return wire.TaskInfo(id=working.begin(start, run))


OPERATIONS = [
    Operation(
        id="exportObjects",
        method="POST",
        path="/repositories/{repository}/refs/{ref}/export",
        need=Need.WRITE,
        handler=export_objects,
        status=202,
        statuses=(403,),
        ours=True,
    ),
]
