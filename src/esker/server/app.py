"""The server as a WSGI application: the table of operations, made into routes behind one verifier.

What a request passes, in order:

    1. name       it gets an id, its client's own if that is one
    2. verify     who calls, and whether the operation's need is met; nothing of it is looked at before
    3. decode     path, query and body, into what the handler's annotations say
    4. handle     the handler answers
    5. encode     the answer, or the error
    6. count      it, by operation and status; and tell whoever watches what it took
"""

import itertools
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, get_origin

import falcon
import msgspec

from esker import activity
from esker.auth import OWNER, Directory, Identity, Need, role_for
from esker.counting import REGISTRY, CollectorRegistry, Histogram
from esker.engine.lake import Lake
from esker.errors import ForbiddenError, InvalidError, Kind
from esker.server import errors, uploads
from esker.server.call import Call, Operation, Server, Stream
from esker.server.errors import REQUEST_ID
from esker.server.known import Known
from esker.server.operations import OPERATIONS
from esker.server.places import place
from esker.server.signing import Signer
from esker.world import World

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_PREFIX_BYTES: Final = 6
"""Of the ids that this process gives: numbers behind something that no other process has."""

NOTE: Final = "esker.note"
"""Where, in a request's environment, there may be a `logs.Note` to be filled in."""

_SIGNING: Final = "addresses and urls"
"""What the key that is derived for it signs: all servers of a lake derive the same."""

_KEY_BYTES: Final = 32

_NOBODY: Final = Identity("", ())

_REQUEST_ID_KEY: Final = "HTTP_X_REQUEST_ID"
_TRACEPARENT_KEY: Final = "HTTP_TRACEPARENT"
_TRACED_BY: Final = (("traceparent", _TRACEPARENT_KEY), ("tracestate", "HTTP_TRACESTATE"))
_TRACED: Final = "traceresponse"

_UNWATCHED: Final = frozenset({"health", "healthCheck", "metrics", "ready"})
"""What machines ask every few seconds."""

_SECONDS: Final = Histogram(
    "esker_request_seconds",
    "Requests, and the time until their answers began, by operation and status.",
    ["operation", "status"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)


def create_app(
    lake: Lake,
    *,
    storage: str,
    directory: Directory | None,
    sources: Sequence[str] = (),
    targets: Sequence[str] = (),
    metrics: CollectorRegistry = REGISTRY,
) -> falcon.App[Any, Any]:
    """The application for a lake whose repositories lie below the URL `storage`.

    With no directory, whoever calls is the owner of the lake: for a program that has the stores open anyway. Objects
    that lie elsewhere may be linked and imported if they are below one of the URLs in `sources`, and exported to places
    below those in `targets`.
    """
    signing_key = directory.signing_key(_SIGNING) if directory else bytes.fromhex(lake.world.token(_KEY_BYTES))
    server = Server(
        lake=lake,
        storage=storage,
        sources=tuple(map(place, sources)),
        targets=tuple(map(place, targets)),
        directory=directory,
        signer=Signer(signing_key),
        known=Known(lake),
        metrics=metrics,
        operations=OPERATIONS,
    )
    app: falcon.App[Any, Any] = falcon.App(middleware=[_Passage(server)])
    app.req_options.strip_url_path_trailing_slash = False
    app.req_options.auto_parse_form_urlencoded = False
    errors.install(app)
    for template, operations in _routes(OPERATIONS).items():
        app.add_route(template, _Resource(server, operations))
    return app


@lru_cache(maxsize=10_000)
def _histogram(operation: str, status: int) -> Histogram:
    return _SECONDS.labels(operation, status)


class _Passage:
    """What every request passes on its way in and out."""

    def __init__(self, server: Server) -> None:
        self._directory = server.directory
        self._world: World = server.lake.world
        self._prefix = self._world.token(_PREFIX_BYTES)
        self._numbers = itertools.count()

    def process_request(self, request: falcon.Request, response: falcon.Response) -> None:
        environ = request.env  # by whose keys headers are found at once
        name = environ.get(_REQUEST_ID_KEY)
        if name is None or not _REQUEST_ID.fullmatch(name):
            name = f"{self._prefix}-{next(self._numbers):x}"
        request.context.request_id = name
        request.context.begun_s = self._world.monotonic_s()
        request.context.operation = None
        request.context.activity = watched = activity.begin("request")
        if watched and _TRACEPARENT_KEY in environ:
            watched.came_with = {header: environ[key] for header, key in _TRACED_BY if key in environ}
        response.set_header(REQUEST_ID, name)
        if note := environ.get(NOTE):
            note.request_id = name

    def process_resource(
        self, request: falcon.Request, _: falcon.Response, resource: object, params: dict[str, str]
    ) -> None:
        """Verify. Whatever is routed comes by here before it is handled."""
        operation = resource.operations.get(request.method) if isinstance(resource, _Resource) else None
        if operation is None:
            return  # there is nothing to reach: falcon answers 404 or 405
        request.context.operation = operation
        note = request.env.get(NOTE)
        if note:
            note.path = operation.route
        identity = self._identify(request, operation)
        if note:
            note.user = identity.user
        path = {name: params[number] for name, number in operation.variables}
        repository = path.get("repository")
        if not identity.may(operation.need, repository):
            raise ForbiddenError(
                Kind.NOT_ALLOWED,
                f"{identity.user!r} may not do this: it takes the role {role_for(operation.need, repository)}",
            )
        request.context.identity = identity
        request.context.path = path

    def process_response(self, request: falcon.Request, response: falcon.Response, _: object, __: bool) -> None:
        operation = request.context.operation
        counted = _histogram(operation.id if operation else "none", response.status_code)
        counted.observe(self._world.monotonic_s() - request.context.begun_s)
        watched = request.context.activity
        if watched is None:
            return
        if operation is None or operation.id in _UNWATCHED:
            activity.dropped()
            return
        watched.whole.name = operation.id
        watched.whole.attributes |= _told_of(request, operation, response.status_code)
        if told := activity.end(watched):
            response.set_header(_TRACED, told)

    def _identify(self, request: falcon.Request, operation: Operation) -> Identity:
        if self._directory is None:
            return OWNER
        if operation.need is Need.PUBLIC:
            return _NOBODY
        authorization = request.env.get("HTTP_AUTHORIZATION")
        return self._directory.identify(authorization, {} if authorization else request.cookies)


def _told_of(request: falcon.Request, operation: Operation, status: int) -> dict[str, str | int | float]:
    """What is told of a request that was watched."""
    context = request.context
    told = {"method": request.method, "request_id": context.request_id, "path": operation.route, "status": status}
    if "identity" in context:  # it was let in
        told["user"] = context.identity.user
        if repository := context.path.get("repository"):
            told["repo"] = repository
    return told


class _Resource:
    """The operations at one route, by method."""

    def __init__(self, server: Server, operations: Sequence[Operation]) -> None:
        self.operations = {operation.method: operation for operation in operations}
        for operation in operations:
            setattr(self, f"on_{operation.method.lower()}", _responder(server, operation))


def _routes(operations: Sequence[Operation]) -> dict[str, list[Operation]]:
    """Operations by route. Variables are numbered: at one place in a path, operations have several names for them."""
    found: dict[str, list[Operation]] = {}
    for operation in operations:
        template = operation.route
        for name, number in operation.variables:
            template = template.replace(f"{{{name}}}", f"{{{number}}}")
        found.setdefault(template, []).append(operation)
    return found


def _responder(server: Server, operation: Operation) -> Callable[..., None]:
    shape = operation.shape
    read_query = _query_reader(shape.query)
    decoder = None if shape.body is None else msgspec.json.Decoder(shape.body)

    def respond(request: falcon.Request, response: falcon.Response, **_: str) -> None:
        response.status = operation.status
        query = read_query(request)
        body = None
        if decoder:
            bytes_max = operation.body_bytes_max
            body = uploads.json_body(request, decoder, required=shape.body_required, bytes_max=bytes_max)
        call = Call(server, request, response, request.context.identity, request.context.path, query, body)
        _send(response, operation.handler(call))

    return respond


def _query_reader(kind: type[msgspec.Struct]) -> Callable[[falcon.Request], msgspec.Struct]:
    fields = msgspec.structs.fields(kind)
    lists = [field.encode_name for field in fields if get_origin(field.type) is tuple]
    nothing = kind() if not any(field.required for field in fields) else None

    def read(request: falcon.Request) -> msgspec.Struct:
        if nothing is not None and not request.query_string:
            return nothing
        params: dict[str, Any] = dict(request.params)
        for name in lists:
            if isinstance(params.get(name), str):
                params[name] = [params[name]]
        try:
            return msgspec.convert(params, kind, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidError(Kind.INVALID_ARGUMENT, f"the query of this request: {error}") from None

    return read


def _send(response: falcon.Response, answer: object) -> None:
    if isinstance(answer, Stream):
        if answer.size is not None:
            response.content_length = answer.size
        response.stream = answer.chunks
    elif isinstance(answer, str):
        response.content_type = falcon.MEDIA_HTML
        response.text = answer
    elif answer is not None:
        response.content_type = falcon.MEDIA_JSON
        response.data = msgspec.json.encode(answer)
