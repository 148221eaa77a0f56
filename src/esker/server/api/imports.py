"""Imports: start one, see how far it is, cancel it. Each runs in a thread of the server that it was started on."""

from datetime import UTC, datetime
from typing import Any

from esker.auth import Need
from esker.engine import imports
from esker.engine.imports import Source
from esker.engine.tasks import Task
from esker.errors import InvalidError, Kind
from esker.model import CommitID, Repository
from esker.server import places, wire, working
from esker.server.api.answers import commit_of, task_error
from esker.server.call import Call, NoQuery, Operation


class ImportQuery(NoQuery, frozen=True, kw_only=True):
    """Which import."""

    id: str


def import_start(call: Call[NoQuery, wire.ImportCreation]) -> wire.ImportCreationResponse:
    """Start an import: it commits on the branch when it is done. Poll its status by the id."""
    body, branch = call.body, call.path["branch"]
    repo = call.writable_repo(force=bool(body.force))

    def start() -> str:
        return imports.start(
            call.lake,
            repo,
            branch,
            [_source(call, location) for location in body.paths],
            message=body.commit.message,
            committer=call.identity.user,
            metadata=body.commit.metadata or {},
        )

    name = working.begin(start, lambda name: imports.run(call.lake, repo, name))
    return wire.ImportCreationResponse(id=name)


def import_status(call: Call[ImportQuery, None]) -> wire.ImportStatus:
    """How far an import is."""
    repo = call.repo
    task = imports.status(call.lake, repo, call.path["branch"], call.query.id)
    return _status(call, repo, task)


def import_cancel(call: Call[ImportQuery, None]) -> None:
    """Have an import stop: nothing will have changed. 409 if it is over."""
    imports.cancel(call.lake, call.repo, call.path["branch"], call.query.id)


def _source(call: Call[Any, Any], location: wire.ImportLocation) -> Source:
    """A prefix is a whole directory, there and here: else it would take in its neighbours, and replace others."""
    homes, sources = call.server.known.homes(), call.server.sources
    found = places.check_elsewhere(homes, sources, location.path)
    if location.type == "object":
        if location.inventory:
            raise InvalidError(
                Kind.INVALID_ARGUMENT, "an inventory lists what is below a prefix, and this is one object"
            )
        return Source(kind="object", address=found.address, destination=location.destination)
    destination = location.destination
    if destination and not destination.endswith("/"):
        destination += "/"
    listed = places.check_elsewhere(homes, sources, location.inventory).address if location.inventory else ""
    return Source(kind="common_prefix", address=f"{found.address}/", destination=destination, inventory=listed)


def _status(call: Call[Any, Any], repo: Repository, task: Task) -> wire.ImportStatus:
    commit, tree = (task.summary.get(name) for name in ("commit", "tree"))
    return wire.ImportStatus(
        completed=commit is not None,
        update_time=datetime.fromtimestamp(task.seen_ms / 1000, UTC),
        ingested_objects=task.progress.get("objects", 0),
        metarange_id=str(tree) if tree else None,
        commit=commit_of(call.lake, repo, CommitID(str(commit))) if commit else None,
        error=task_error(task),
    )


_IMPORT = "/repositories/{repository}/branches/{branch}/import"

OPERATIONS = [
    Operation(
        id="importStart",
        method="POST",
        path=_IMPORT,
        need=Need.WRITE,
        handler=import_start,
        status=202,
        statuses=(403,),
    ),
    Operation(id="importStatus", method="GET", path=_IMPORT, need=Need.READ, handler=import_status),
    Operation(
        id="importCancel",
        method="DELETE",
        path=_IMPORT,
        need=Need.WRITE,
        handler=import_cancel,
        status=204,
        statuses=(409,),
    ),
]
