"""An operation of the API, and one call of it.

A handler is a function from a `Call` to its answer, and its annotations are all that is known of it: `Call[Q, B]` says
what the query holds and what the body is, the return annotation what is sent back. Decoding, the OpenAPI document and
the table in the documentation all follow from them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import getdoc
from typing import Any, Final, Generic, NamedTuple, TypeVar, get_args, get_type_hints

import falcon
import msgspec

from esker.auth import Directory, Identity, Need
from esker.counting import CollectorRegistry
from esker.engine.lake import Lake
from esker.model import Repository
from esker.server.known import Known
from esker.server.places import Place
from esker.server.signing import Signer
from esker.server.uploads import JSON_BYTES_MAX

API: Final = "/api/v1"


class NoQuery(msgspec.Struct, frozen=True):
    """No parameters."""


Q = TypeVar("Q")
B = TypeVar("B")


@dataclass(frozen=True, kw_only=True)
class Server:
    """What all calls share."""

    lake: Lake
    storage: str
    """The URL below which a repository's data lies unless it names another place."""
    sources: tuple[Place, ...]
    """Places below which objects that lie elsewhere may be linked and imported."""
    targets: tuple[Place, ...]
    """Places below which exports may lie."""
    directory: Directory | None
    """None: whoever calls is the owner of the lake."""
    signer: Signer
    known: Known
    metrics: CollectorRegistry
    operations: "tuple[Operation, ...]"


class Stream(NamedTuple):
    """An answer of bytes, sent as they come."""

    chunks: Iterator[bytes]
    size: int | None = None
    """None: nobody knows yet."""


class Call(Generic[Q, B]):
    """One request, checked: who calls may do this, and query and body are what they should be."""

    def __init__(
        self,
        server: Server,
        request: falcon.Request,
        response: falcon.Response,
        identity: Identity,
        path: Mapping[str, str],
        query: Q,
        body: B,
    ) -> None:
        self.server = server
        self.lake = server.lake
        self.request = request
        self.response = response
        self.identity = identity
        self.path = path
        """The variables of the operation's path."""
        self.query = query
        self.body = body

    @property
    def repo(self) -> Repository:
        """The repository that the path names. NotFoundError if there is none."""
        return self.server.known.get(self.path["repository"])

    def writable_repo(self, *, force: bool = False) -> Repository:
        """The repository to be written to: with `force`, even if it is read-only."""
        repo = self.repo
        return msgspec.structs.replace(repo, read_only=False) if force and repo.read_only else repo


class Shape(NamedTuple):
    """What a handler's annotations say."""

    query: type[msgspec.Struct]
    body: Any
    """None: there is none."""
    body_required: bool
    answer: Any


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One entry of the table: what is not in it does not exist."""

    id: str
    method: str
    path: str
    """`{name}` stands for one segment."""
    need: Need
    handler: Callable[[Call[Any, Any]], object]
    status: int = 200
    """Of an answer that is no error."""
    group: str = ""
    base: str = API
    implemented: bool = True
    """False: answers 501, and says so."""
    ours: bool = False
    """Not part of the lakeFS API."""
    upload: bool = False
    """The body is an object's bytes: the handler reads it."""
    body_bytes_max: int = JSON_BYTES_MAX
    headers: tuple[str, ...] = ()
    """Of a request, that the handler looks at."""
    statuses: tuple[int, ...] = field(default=())
    """Others that this operation in particular answers with."""

    @property
    def route(self) -> str:
        return self.base + self.path

    @cached_property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """Of the path, by name, and numbered by where they stand in it."""
        parts = enumerate(self.route.split("/"))
        return tuple((part[1:-1], f"v{at}") for at, part in parts if part.startswith("{"))

    @cached_property
    def shape(self) -> Shape:
        hints = get_type_hints(self.handler)
        query, body = get_args(next(iter(hints.values())))
        required = body is not type(None)
        if required and type(None) in get_args(body):
            body, required = next(kind for kind in get_args(body) if kind is not type(None)), False
        return Shape(query, None if body is type(None) else body, required, hints["return"])

    @cached_property
    def summary(self) -> str:
        """The first paragraph of the handler's docstring."""
        return " ".join((getdoc(self.handler) or "").partition("\n\n")[0].split())
