"""The table of operations: all that the server answers to, and what each takes.

Routing, authorisation, the OpenAPI document, counting and the documentation follow from it. A route that is not in the
table cannot exist, so none can be forgotten by the one place that decides who may do what.
"""

from dataclasses import replace
from itertools import chain
from typing import Final

from esker.server import openapi
from esker.server.absent import LAKEFS, absent
from esker.server.api import (
    auth,
    blobs,
    branches,
    checking,
    collecting,
    commits,
    config,
    dumps,
    exports,
    garbage,
    health,
    imports,
    jobs,
    layers,
    metadata,
    multipart,
    objects,
    readiness,
    refs,
    repositories,
    setup,
    staging,
    tags,
    tasks,
)
from esker.server.call import Operation

OURS: Final = "esker"
"""The group of operations that are in none of lakeFS's."""

_THERE: Final = list(
    chain(
        config.OPERATIONS,
        health.OPERATIONS,
        readiness.OPERATIONS,
        setup.OPERATIONS,
        auth.OPERATIONS,
        repositories.OPERATIONS,
        dumps.OPERATIONS,
        branches.OPERATIONS,
        commits.OPERATIONS,
        refs.OPERATIONS,
        tags.OPERATIONS,
        objects.OPERATIONS,
        staging.OPERATIONS,
        multipart.OPERATIONS,
        imports.OPERATIONS,
        exports.OPERATIONS,
        garbage.OPERATIONS,
        jobs.OPERATIONS,
        layers.OPERATIONS,
        tasks.OPERATIONS,
        checking.OPERATIONS,
        collecting.OPERATIONS,
        metadata.OPERATIONS,
        blobs.OPERATIONS,
        openapi.OPERATIONS,
    )
)


def _table() -> tuple[Operation, ...]:
    known = {operation.id: operation for operation in LAKEFS}
    there = {operation.id for operation in _THERE}
    assert len(there) == len(_THERE), "an id names one operation"
    grouped = [replace(one, group=known[one.id].group if one.id in known else one.group or OURS) for one in _THERE]
    table = (*grouped, *(absent(operation) for operation in LAKEFS if operation.id not in there))
    routes = {(operation.method, operation.route) for operation in table}
    assert len(routes) == len(table), "a method and a route name one operation"
    return table


OPERATIONS: Final = _table()
