"""From an answer that tells of an error back to the class that the server raised: the status is the class."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from esker.client.transport import Answer
from esker.errors import (
    ConflictError,
    ContentionError,
    CorruptError,
    EskerError,
    ForbiddenError,
    InvalidError,
    Kind,
    NotFoundError,
    OutcomeUnknownError,
    PreconditionError,
    UnauthenticatedError,
    UnavailableError,
)

_CLASSES: Final[dict[int, tuple[type[EskerError], Kind]]] = {
    400: (InvalidError, Kind.INVALID_ARGUMENT),
    401: (UnauthenticatedError, Kind.UNAUTHENTICATED),
    403: (ForbiddenError, Kind.NOT_ALLOWED),
    404: (NotFoundError, Kind.REF_NOT_FOUND),
    409: (ConflictError, Kind.MERGE_CONFLICT),
    410: (NotFoundError, Kind.BLOB_NOT_FOUND),
    412: (PreconditionError, Kind.OBJECT_EXISTS),
    429: (ContentionError, Kind.CONTENTION),
    503: (UnavailableError, Kind.STORE_UNAVAILABLE),
    504: (OutcomeUnknownError, Kind.OUTCOME_UNKNOWN),
}
"""With the kind to assume of servers that tell none. Of the rest, 4xx is for the caller to mend."""


def failure(answer: Answer, *, reads: bool) -> EskerError:
    """The error that an answer tells of. `reads`: it was asked by a request that changes nothing."""
    return error_of(answer.status, _document(answer), reads=reads)


def error_of(status: int, said: Mapping[str, Any], *, reads: bool) -> EskerError:
    """The same, of one that was told otherwise than by an answer of its own."""
    kind = _kind(said.get("kind"))
    message = str(said.get("message") or f"the server answered {status}")
    if status == 500 and kind:
        return CorruptError(kind, message)
    if status in _CLASSES:
        found, default = _CLASSES[status]
    elif status < 500 or status == 501:
        found, default = InvalidError, Kind.INVALID_ARGUMENT
    elif reads:
        found, default = UnavailableError, Kind.STORE_UNAVAILABLE
    else:
        found, default = OutcomeUnknownError, Kind.OUTCOME_UNKNOWN
    if found is ConflictError:
        return ConflictError(kind or default, message, said.get("conflicts") or ())
    if found is ContentionError:
        return ContentionError(kind or default, message, said.get("hint") or "")
    return found(kind or default, message)


def _document(answer: Answer) -> dict[str, Any]:
    data = answer.read()
    try:
        found = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _kind(said: object) -> Kind | None:
    """None: the server tells none, or one that is newer than this."""
    try:
        return Kind(str(said))
    except ValueError:
        return None
