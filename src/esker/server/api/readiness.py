"""Whether the server can do its work now: it can if both of its stores answer. Health is less: that it runs at all."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from esker.auth import Need
from esker.server import wire
from esker.server.call import Call, NoQuery, Operation
from esker.stores.blob import BlobStore

_ASKED_FOR: Final = "esker-readiness"
"""Not there: that the stores say so is all that is wanted."""


def ready(call: Call[NoQuery, None]) -> wire.Status:
    """Answer, if the stores do; else 503."""
    call.lake.kv.scan("repositories", limit=1)  # a get may be answered without asking the store
    _store(call.lake.open_blobs, call.server.storage).head(_ASKED_FOR)
    return wire.Status(status="ok")


@lru_cache(maxsize=8)
def _store(open_blobs: Callable[[str], BlobStore], url: str) -> BlobStore:
    """Opened once: it keeps connections."""
    return open_blobs(url)


OPERATIONS: Final = [
    Operation(
        id="ready",
        group="healthCheck",
        method="GET",
        base="",
        path="/_ready",
        need=Need.PUBLIC,
        handler=ready,
        statuses=(503,),
        ours=True,
    )
]
