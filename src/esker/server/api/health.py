"""Whether the server is there, and what it counts."""

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from esker.auth import Need
from esker.server import wire
from esker.server.call import Call, NoQuery, Operation, Stream


def health_check(call: Call[NoQuery, None]) -> None:
    """Answer, if the server can."""


def health(call: Call[NoQuery, None]) -> wire.Status:
    """Answer, if the server can."""
    return wire.Status(status="ok")


def metrics(call: Call[NoQuery, None]) -> Stream:
    """What the server counts, for Prometheus."""
    text = generate_latest(call.server.metrics)
    call.response.content_type = CONTENT_TYPE_LATEST
    return Stream(iter([text]), len(text))


OPERATIONS = [
    Operation(
        id="healthCheck",
        method="GET",
        path="/healthcheck",
        need=Need.PUBLIC,
        handler=health_check,
        status=204,
    ),
    Operation(
        id="health",
        group="healthCheck",
        method="GET",
        base="",
        path="/_health",
        need=Need.PUBLIC,
        handler=health,
        ours=True,
    ),
    Operation(
        id="metrics",
        group="healthCheck",
        method="GET",
        base="",
        path="/metrics",
        need=Need.PUBLIC,
        handler=metrics,
        ours=True,
    ),
]
