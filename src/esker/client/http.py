"""To a server, over HTTP: connections are kept, and shared by threads."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from esker.client.transport import CHUNK_BYTES, Answer, Body, LostError, Transport
from esker.errors import InvalidError, Kind

CONNECT_S: Final = 10.0
READ_S: Final = 300.0
"""Between two chunks. A merge of a large lake sends nothing until it is done."""


class HttpTransport(Transport):
    def __init__(self, endpoint: str, *, connections: int = 8, connect_s: float = CONNECT_S, trace: str = "") -> None:
        """`trace` is a W3C `traceparent`, for the server to make its requests part of."""
        self.base = endpoint.rstrip("/").removesuffix("/api/v1")
        if not self.base.startswith(("http://", "https://")):
            raise InvalidError(
                Kind.INVALID_URL, f"{endpoint!r} is no URL of a server: write http://host:8000 or https://..."
            )
        self._traced = {"traceparent": trace} if trace else {}
        timeout = urllib3.Timeout(connect=connect_s, read=READ_S)
        self._pool = urllib3.PoolManager(maxsize=connections, retries=False, timeout=timeout)

    def send(self, method: str, target: str, headers: Mapping[str, str], body: Body | None) -> Answer:
        sent = {**headers, **self._traced}
        if body:
            # With a length, nothing is sent in chunks: the server can tell a body that was cut off.
            sent |= {"Content-Length": str(body.size), "Content-Type": body.content_type}
        try:
            answer = self._pool.request(
                method,
                self.base + target,
                headers=sent,
                body=body.open() if body else None,
                preload_content=False,
                redirect=False,
            )
        except HTTPError as error:
            raise _lost(error, self.base) from error
        low = {name.lower(): value for name, value in answer.headers.items()}
        return Answer(answer.status, low, _chunks(answer, self.base), _closing(answer))

    def close(self) -> None:
        self._pool.clear()


def _chunks(answer: urllib3.BaseHTTPResponse, base: str) -> Iterator[bytes]:
    """All of the body, or LostError: a body that ends early is no body."""
    try:
        yield from answer.stream(CHUNK_BYTES, decode_content=False)
    except HTTPError as error:
        raise _lost(error, base) from error


def _closing(answer: urllib3.BaseHTTPResponse) -> Callable[[], None]:
    def close() -> None:
        """One that was not read to its end takes its connection with it."""
        if answer.length_remaining:
            answer.close()
        answer.release_conn()

    return close


def _lost(error: HTTPError, base: str) -> LostError:
    reached = not isinstance(error, NewConnectionError | ConnectTimeoutError | SSLError)
    said = str(error.__cause__ or error).rpartition(": ")[2] or type(error).__name__
    why = "the connection broke" if reached else "no server answers"
    return LostError(f"{why} at {base} ({said})", reached=reached)
