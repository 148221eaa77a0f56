"""The gate of a worker: how much it takes on at once. What is too much is told so soon, so that the rest goes well.

- Up to `requests` are worked on. All others are told 503 and when to come back: nothing of such a request is looked at.
  Nobody waits in between: handing a place from one thread to another costs more than most requests do.
- At most half of them are uploads, which may take as long as their clients like; and at most an eighth those in which
  anybody may send a body: who is not known, and slow, keeps none of the others out.
- A request holds its place until its answer begins. An answer that is streamed then holds a thread until its reader has
  it all, and at most `streams` are: slow readers take no thread from those who ask for little.

The gate is also where a request is timed and logged, since everything passes it; but what machines ask every second
goes by unlogged.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from esker.auth import Need
from esker.counting import Counter, Gauge
from esker.server.app import NOTE
from esker.server.logs import Note, Requests
from esker.server.operations import OPERATIONS
from esker.world import World

RETRY_AFTER_S: Final = 1

PAUSE_S: Final = 0.4
"""Before a request is turned away. It bounds how often a worker can do that, and costs nothing: clients that come back
without waiting would otherwise keep it busy with turning them away."""

UPLOAD_BYTES: Final = 64 << 10
"""A body that is longer, or of unknown length, is an upload."""

ALWAYS: Final = frozenset({"/_health", "/_ready", "/metrics"})
"""Paths that take no place, and no line in the log: a server that is busy is not sick, and its figures are wanted."""

STRANGERS: Final = frozenset(
    operation.route for operation in OPERATIONS if operation.need is Need.PUBLIC and operation.shape.body is not None
)
"""Where bodies are read of which nobody knows who sends them: to log in, and to set up."""

_REFUSED: Final = Counter("esker_requests_refused", "Requests that were told to come back later.")

_RUNNING: Final = Gauge("esker_requests_running", "Requests that are worked on.", multiprocess_mode="livesum")
_STREAMING: Final = Gauge("esker_streams_running", "Answers that are being sent.", multiprocess_mode="livesum")

_BUSY: Final = b'{"message":"the server has as much to do as it can: try again in a second"}'
_HEADERS: Final = [
    ("Content-Type", "application/json"),
    ("Content-Length", str(len(_BUSY))),
    ("Retry-After", str(RETRY_AFTER_S)),
]


class Gate:
    """A WSGI application around `app`."""

    def __init__(self, app: WSGIApplication, *, requests: int, streams: int, log: Requests, world: World) -> None:
        self._app = app
        self._log = log
        self._world = world
        self._requests = _Places(requests)
        self._uploads = _Places(max(1, requests // 2))
        self._strangers = _Places(max(1, requests // 8))
        self._streams = _Places(streams)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] in ALWAYS:
            return self._app(environ, start_response)
        begun_s = self._world.monotonic_s()
        note = environ[NOTE] = Note()
        status = 500

        def started(line: str, headers: list[tuple[str, str]], trace: Any = None) -> Any:
            nonlocal status
            status = int(line[:3])
            return start_response(line, headers, trace)

        def ended() -> None:
            self._log.log(environ["REQUEST_METHOD"], note, status, self._world.monotonic_s() - begun_s)

        places = [self._requests]
        if _is_upload(environ):
            places.append(self._uploads)
        if environ["PATH_INFO"] in STRANGERS:
            places.append(self._strangers)
        try:
            body = self._answer(environ, started, places)
        except BaseException:
            ended()
            raise
        if isinstance(body, list):
            ended()
            return body
        if not self._streams.take():
            _close(body)
            body = self._refuse(started)
            ended()
            return body

        _STREAMING.inc()

        def sent() -> None:
            _STREAMING.dec()
            self._streams.give_back()
            ended()

        return _Sending(body, sent)

    def _answer(self, environ: WSGIEnvironment, started: StartResponse, places: list["_Places"]) -> Iterable[bytes]:
        taken = [place for place in places if place.take()]
        try:
            if len(taken) == len(places):
                with _RUNNING.track_inprogress():
                    return self._app(environ, started)
        finally:
            for place in taken:
                place.give_back()
        return self._refuse(started)

    def _refuse(self, started: StartResponse) -> list[bytes]:
        _REFUSED.inc()
        self._world.sleep(PAUSE_S)
        started("503 Service Unavailable", _HEADERS)
        return [_BUSY]


class _Places:
    """So many, to be taken and given back."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._changing = threading.Lock()

    def take(self) -> bool:
        """Whether there was one."""
        with self._changing:
            if self._free == 0:
                return False
            self._free -= 1
            return True

    def give_back(self) -> None:
        with self._changing:
            self._free += 1


class _Sending:
    """A body that tells, once, when it has been sent or given up."""

    def __init__(self, body: Iterable[bytes], ended: Callable[[], None]) -> None:
        self._body = body
        self._ended: Callable[[], None] | None = ended

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        ended, self._ended = self._ended, None
        try:
            _close(self._body)
        finally:
            if ended:
                ended()


def _close(body: Iterable[bytes]) -> None:
    if close := getattr(body, "close", None):
        close()


def _is_upload(environ: WSGIEnvironment) -> bool:
    try:
        length = int(environ.get("CONTENT_LENGTH") or 0)
    except ValueError:
        return True
    return length > UPLOAD_BYTES or "HTTP_TRANSFER_ENCODING" in environ
