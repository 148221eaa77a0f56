"""To an application in this process: the same requests and answers without a socket, streamed both ways."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote
from wsgiref.types import WSGIApplication

from esker.client.transport import Answer, Body, Transport

HOST: Final = "esker.invalid"
"""Nobody answers there: a URL of this host is good for nothing outside of this process."""


class WsgiTransport(Transport):
    def __init__(self, app: WSGIApplication) -> None:
        self.base = f"http://{HOST}"
        self._app = app

    def send(self, method: str, target: str, headers: Mapping[str, str], body: Body | None) -> Answer:
        path, _, query = target.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(path, "latin-1"),  # WSGI's way of passing bytes
            "QUERY_STRING": query,
            "SERVER_NAME": HOST,
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_LENGTH": str(body.size if body else 0),
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": _Input(body.open() if body else ()),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        if body:
            environ["CONTENT_TYPE"] = body.content_type
        for name, value in headers.items():
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
        begun: list[tuple[int, dict[str, str]]] = []

        def start(status: str, said: list[tuple[str, str]], _: Any = None) -> Callable[[bytes], object]:
            begun[:] = [(int(status[:3]), {name.lower(): value for name, value in said})]
            return _no_write

        chunks = self._app(environ, start)
        [(status, said)] = begun
        return Answer(status, said, iter(chunks), getattr(chunks, "close", _nothing))

    def close(self) -> None:
        """There is nothing to give back: whoever made the application closes it."""


class _Input:
    """A body, as applications read it."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks: Iterator[bytes] = iter(chunks)
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """So many bytes; fewer only at the end."""
        if size < 0:
            return self._rest + b"".join(self._chunks)
        found = [self._rest]
        missing = size - len(self._rest)
        while missing > 0 and (chunk := next(self._chunks, b"")):
            found.append(chunk)
            missing -= len(chunk)
        data = found[0] if len(found) == 1 else b"".join(found)
        self._rest = data[size:]
        return data[:size]


def _no_write(_: bytes) -> object:
    raise NotImplementedError("applications answer with a body, and do not write it")


def _nothing() -> None:
    pass
