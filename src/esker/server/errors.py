"""From an error to a status and a body: the class of an error is its status, and what is said is its message."""

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import falcon
import msgspec

from esker.counting import Counter
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
from esker.server import wire

STATUSES: Final[dict[type[EskerError], int]] = {
    InvalidError: 400,
    UnauthenticatedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    ConflictError: 409,
    PreconditionError: 412,
    ContentionError: 429,
    CorruptError: 500,
    UnavailableError: 503,
    OutcomeUnknownError: 504,
}
"""401 says who are you, 403 that is not for you. 504: a retry may do it twice, so it is not to be mistaken for 503."""

_NAMED_STATUSES: Final = {error.__name__: status for error, status in STATUSES.items()}

KIND_STATUSES: Final[dict[str, int]] = {Kind.BLOB_NOT_FOUND: 410}
"""The object is there, and its bytes are gone."""

PATHS_NAMED_MAX: Final = 1000
"""Conflicting paths in an answer; a diff tells all."""

RETRY_AFTER_S: Final = 1

REQUEST_ID: Final = "X-Request-ID"

_LOGINS_REFUSED: Final = Counter(
    "esker_logins_refused", "Requests whose key, session or token was no good, or that had none."
)

_LOG: Final = logging.getLogger("esker.server")


def status_of(error: EskerError) -> int:
    return KIND_STATUSES.get(error.kind) or STATUSES[type(error)]


def named_status(name: str, kind: str) -> int | None:
    """Of an error whose class and kind a record has kept. None for those of programs that knew others."""
    return KIND_STATUSES.get(kind) or _NAMED_STATUSES.get(name)


def answer(error: EskerError) -> msgspec.Struct:
    """The body that tells of an error."""
    if isinstance(error, ConflictError) and error.kind in (Kind.MERGE_CONFLICT, Kind.JOB_OVERLAP):
        paths = list(error.paths[:PATHS_NAMED_MAX])
        return wire.MergeConflict(message=error.message, kind=error.kind, reference="", conflicts=paths)
    hint = error.hint if isinstance(error, ContentionError) else ""
    return wire.Error(message=error.message, kind=error.kind, hint=hint or None)


def install(app: falcon.App[Any, Any]) -> None:
    """Have the app answer every error in our way."""
    app.add_error_handler(Exception, _unexpected)
    app.add_error_handler(EskerError, _ours)
    app.add_error_handler(falcon.HTTPError, _http)


def _ours(_: falcon.Request, response: falcon.Response, error: EskerError, __: dict[str, Any]) -> None:
    status = status_of(error)
    headers = {}
    if status == 401:
        _LOGINS_REFUSED.inc()
        headers["WWW-Authenticate"] = 'Bearer realm="esker"'
    if status in (429, 503):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, CorruptError):
        _LOG.error("%s", error.message)
    _tell(response, status, answer(error), headers)


def _http(_: falcon.Request, response: falcon.Response, error: falcon.HTTPError, __: dict[str, Any]) -> None:
    said = re.sub(r"\s+", " ", error.description or (error.title or "").removeprefix(f"{error.status_code} "))
    if isinstance(error, falcon.HTTPRouteNotFound):
        said = "nothing is at this path: the API is below /api/v1, and /docs lists what it has"
    _tell(response, error.status_code, wire.Error(message=said), dict(error.headers or {}))


def _unexpected(request: falcon.Request, response: falcon.Response, error: Exception, _: dict[str, Any]) -> None:
    """A mistake of ours: the log has the trace, and the caller the id to find it by."""
    _LOG.error("request %s failed", request.context.request_id, exc_info=error)
    said = f"something went wrong in the server; its log tells more under request id {request.context.request_id}"
    _tell(response, 500, wire.Error(message=said), {})


def _tell(response: falcon.Response, status: int, body: msgspec.Struct, headers: Mapping[str, str]) -> None:
    """Nothing stays of an answer that was begun, but the request's id."""
    for name in response.headers:
        if name != REQUEST_ID.lower():
            response.delete_header(name)
    for name, value in headers.items():
        response.set_header(name, value)
    response.status = status
    response.stream = None
    response.text = None
    response.content_type = falcon.MEDIA_JSON
    response.data = msgspec.json.encode(body)
