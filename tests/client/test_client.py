"""The client over both transports: the same application answers through a socket and in this process."""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import falcon
import msgspec
import pytest

from esker.client import Body, Client, HttpTransport, WsgiTransport, basic, bearer
from esker.client.client import TRIES_MAX
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
from esker.server import errors
from esker.world import RealWorld
from tests import services

Connect = Callable[..., Client]

CHUNK: Final = b"x" * (1 << 20)


class Quick(RealWorld):
    """Nobody waits, and what for is remembered."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def chance(self) -> float:
        return 1.0


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=["http", "in process"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """A client of an application that is served as the parameter says."""
    with ExitStack() as opened:

        def client(app: WSGIApplication, **how: Any) -> Client:
            how.setdefault("world", Quick())
            if request.param == "in process":
                return Client(WsgiTransport(app), **how)
            server = make_server("127.0.0.1", 0, app, _Server, _Silent)
            opened.callback(server.server_close)
            opened.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            transport = HttpTransport(f"http://127.0.0.1:{server.server_port}")
            opened.callback(transport.close)
            return Client(transport, **how)

        yield client


class App:
    """Answers in turn what it was told to, the last for ever, and remembers what it was asked."""

    def __init__(self, *answers: tuple[int, object] | tuple[int, object, dict[str, str]]) -> None:
        self.answers = [*answers]
        self.asked: list[WSGIEnvironment] = []
        self.bodies: list[Any] = []

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        self.asked.append(environ)
        data = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        self.bodies.append(msgspec.json.decode(data) if data else None)
        status, document, *more = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        data = msgspec.json.encode(document)
        headers = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(more[0] if more else {})}
        start(f"{status} Said", list(headers.items()))
        return [data]


@pytest.mark.parametrize(
    "error",
    [
        InvalidError(Kind.DIRTY_BRANCH, "dirty"),
        UnauthenticatedError(Kind.UNAUTHENTICATED, "who"),
        ForbiddenError(Kind.PROTECTED_BRANCH, "no"),
        NotFoundError(Kind.TAG_NOT_FOUND, "none"),
        NotFoundError(Kind.BLOB_NOT_FOUND, "gone"),
        ConflictError(Kind.BRANCH_EXISTS, "there"),
        ConflictError(Kind.MERGE_CONFLICT, "both", ["a", "b"]),
        PreconditionError(Kind.HEAD_MOVED, "moved"),
        ContentionError(Kind.CONTENTION, "later", "a hint"),
        UnavailableError(Kind.STORE_UNAVAILABLE, "down"),
        CorruptError(Kind.DAMAGED_FILE, "damaged"),
        OutcomeUnknownError(message="perhaps"),
    ],
    ids=lambda error: error.kind,
)
def test_an_error_arrives_as_what_the_server_raised(connect: Connect, error: EskerError) -> None:
    class Raises:
        def on_get(self, _: falcon.Request, __: falcon.Response) -> None:
            raise error

    app: falcon.App[Any, Any] = falcon.App()
    app.add_middleware(Named())
    errors.install(app)
    app.add_route("/api/v1/config", Raises())
    with pytest.raises(EskerError) as caught:
        connect(app).config()
    assert type(caught.value) is type(error)
    assert (caught.value.kind, caught.value.message) == (error.kind, error.message)
    for extra in ("paths", "hint"):
        assert getattr(caught.value, extra, None) == getattr(error, extra, None)


class Named:
    def process_request(self, request: falcon.Request, _: falcon.Response) -> None:
        request.context.request_id = "1"


@pytest.mark.parametrize(
    ("status", "reads", "expected"),
    [
        (404, True, NotFoundError),
        (405, True, InvalidError),
        (413, False, InvalidError),
        (501, False, InvalidError),
        (500, True, UnavailableError),
        (500, False, OutcomeUnknownError),
        (502, False, OutcomeUnknownError),
    ],
)
def test_an_answer_that_tells_no_kind_has_the_class_of_its_status(
    connect: Connect, status: int, reads: bool, expected: type[EskerError]
) -> None:
    client = connect(App((status, ["no document of ours"])))
    with pytest.raises(expected, match=str(status)):
        client.config() if reads else client.create_user("ada")


@pytest.mark.parametrize("status", [429, 503])
def test_what_is_refused_for_now_is_asked_again_ever_later(connect: Connect, status: int) -> None:
    app, world = App((status, {}), (status, {}), (201, {"id": "ada"})), Quick()
    assert connect(app, world=world).create_user("ada") == {"id": "ada"}
    assert len(app.asked) == 3
    assert world.slept == sorted(world.slept)
    assert 0 < world.slept[0] < world.slept[1]
    app, world = App((status, {}, {"Retry-After": "3"}), (200, {"id": "ada"})), Quick()
    connect(app, world=world).create_user("ada")
    assert world.slept[0] >= 3


def test_patience_ends(connect: Connect) -> None:
    app = App((503, {"message": "busy"}))
    with pytest.raises(UnavailableError, match="busy"):
        connect(app).config()
    assert len(app.asked) == TRIES_MAX


def test_a_merge_passes_on_the_hint_of_the_try_before(connect: Connect) -> None:
    refused = {"message": "others won", "kind": "contention"}
    app = App((429, {**refused, "hint": "1"}), (429, {**refused, "hint": "2"}), (200, {"reference": "abc"}))
    assert connect(app).merge("repo", "dev", "main") == "abc"
    assert [body.get("hint") for body in app.bodies] == [None, "1", "2"]


def test_pages_are_asked_for_as_they_are_wanted(connect: Connect) -> None:
    def page(*names: str, following: str) -> dict[str, Any]:
        return {
            "results": [{"id": name} for name in names],
            "pagination": {"has_more": bool(following), "next_offset": following},
        }

    def app() -> App:
        return App((200, page("a", "b", following="b")), (200, page("c", following="")))

    whole = app()
    assert [one["id"] for one in connect(whole).branches("repo", prefix="p q")] == ["a", "b", "c"]
    assert "prefix=p%20q" in whole.asked[0]["QUERY_STRING"]
    assert "after=b" in whole.asked[1]["QUERY_STRING"]
    part = app()
    assert next(connect(part).branches("repo"))["id"] == "a"
    assert len(part.asked) == 1


@pytest.mark.parametrize(
    ("last", "raised"),
    [
        (b'{"done":true,"looked":9,"wrong":1}\n', None),
        (b'{"error":{"message":"down","kind":"store-unavailable"},"status":503}\n', UnavailableError),
        (b'{"error":{"message":"bad","kind":"damaged-record"},"status":500}\n', CorruptError),
        (b'{"looked":9}\n{"wh', UnavailableError),
    ],
    ids=["done", "a store fails", "damage", "broken off"],
)
def test_a_check_tells_what_it_finds_and_how_it_ended(
    connect: Connect, last: bytes, raised: type[EskerError] | None
) -> None:
    class Checks:
        def on_get(self, _: falcon.Request, response: falcon.Response, name: str) -> None:
            response.stream = iter((b'{"what":"range","whe', b're":"a","message":"b"}\n' + last))

    app: falcon.App[Any, Any] = falcon.App()
    app.add_route("/api/v1/repositories/{name}/fsck", Checks())
    found = connect(app).check("repo")
    assert next(found) == {"what": "range", "where": "a", "message": "b"}
    if raised is None:
        assert list(found) == []
    else:
        with pytest.raises(raised):
            list(found)


def test_names_travel_as_they_are(connect: Connect) -> None:
    app = App((200, {"path": "x"}))
    client = connect(app, authorization=basic("id", "secret"))
    client.stat("repo", "main~2^1@", "a b/ü?&=#%2F+;\n")
    [asked] = app.asked
    assert asked["PATH_INFO"] == "/api/v1/repositories/repo/refs/main~2^1@/objects/stat"
    assert falcon.uri.parse_query_string(asked["QUERY_STRING"])["path"] == "a b/ü?&=#%2F+;\n"
    assert asked["HTTP_AUTHORIZATION"] == "Basic aWQ6c2VjcmV0"
    connect(app, authorization=bearer("token")).stat("repo", "ünï", "x")
    assert app.asked[1]["HTTP_AUTHORIZATION"] == "Bearer token"
    assert app.asked[1]["PATH_INFO"].encode("latin-1").decode() == "/api/v1/repositories/repo/refs/ünï/objects/stat"
    for name in ("", ".", ".."):
        with pytest.raises(InvalidError):
            client.repository(name)
    assert len(app.asked) == 2


def test_bytes_stream_both_ways_and_nobody_runs_ahead(connect: Connect) -> None:
    count = 64
    sent = received = 0
    ahead = 0

    def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        nonlocal received, ahead
        if environ["REQUEST_METHOD"] == "GET":
            start("200 OK", [("Content-Length", str(count * len(CHUNK)))])
            return (CHUNK for _ in range(count))
        left = int(environ["CONTENT_LENGTH"])
        while left:
            data = environ["wsgi.input"].read(min(left, len(CHUNK)))
            left -= len(data)
            received += len(data)
            ahead = max(ahead, sent - received)
        data = b'{"size_bytes":1}'
        start("201 Created", [("Content-Length", str(len(data)))])
        return [data]

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(count):
            sent += len(CHUNK)
            yield CHUNK

    client = connect(app)
    client.upload("repo", "main", "x", Body(chunks, count * len(CHUNK), "text/plain"))
    assert received == count * len(CHUNK)
    assert ahead <= 16 * len(CHUNK), "a kernel's buffers, and no more"
    answer = client.read("repo", "main", "x")
    assert max(len(chunk) for chunk in answer.chunks) <= len(CHUNK)
    answer.close()


def test_a_body_is_sent_anew_at_each_try(connect: Connect) -> None:
    got = []

    def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        got.append(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        start("503 Busy" if len(got) == 1 else "201 Created", [("Content-Length", "2")])
        return [b"{}"]

    connect(app).upload("repo", "main", "x", Body(lambda: iter([b"one", b"two"]), 6, "text/plain"))
    assert got == [b"onetwo", b"onetwo"]


class Hangs:
    """A server that takes requests and hangs up on them; on the last of some, it answers."""

    def __init__(self, hang_ups: int, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") -> None:
        self.asked = 0
        self._hang_ups = hang_ups
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                if connection.recv(65536):
                    self.asked += 1
                    if self.asked > self._hang_ups:
                        connection.sendall(self._answer)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def hangs() -> Iterator[Callable[..., Hangs]]:
    with ExitStack() as opened:

        def start(*how: Any) -> Hangs:
            server = Hangs(*how)
            opened.callback(server.close)
            return server

        yield start


def test_a_read_whose_answer_was_lost_is_asked_again(hangs: Callable[..., Hangs]) -> None:
    server = hangs(2)
    assert Client(HttpTransport(server.url), world=Quick()).config() == {}
    assert server.asked == 3


def test_a_write_whose_answer_was_lost_is_not_done_twice(hangs: Callable[..., Hangs]) -> None:
    server = hangs(2)
    client = Client(HttpTransport(server.url), world=Quick())
    with pytest.raises(OutcomeUnknownError):
        client.commit("repo", "main", "once", metadata={})
    assert server.asked == 1
    assert client.login("id", "secret") == {}, "twice is as good as once"


def test_a_body_that_ends_early_is_no_body(hangs: Callable[..., Hangs]) -> None:
    server = hangs(0, b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
    client = Client(HttpTransport(server.url), world=Quick())
    with pytest.raises(EskerError) as caught:
        client.config()
    assert caught.value.kind is Kind.STORE_UNAVAILABLE


def test_a_server_that_is_not_there_is_unavailable_even_to_writes() -> None:
    world = Quick()
    client = Client(HttpTransport(f"http://127.0.0.1:{services.free_port()}"), world=world)
    with pytest.raises(UnavailableError, match="no server answers"):
        client.commit("repo", "main", "once", metadata={})
    assert len(world.slept) == TRIES_MAX - 1


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", ""])
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        HttpTransport(url)
