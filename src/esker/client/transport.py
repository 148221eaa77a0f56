"""A transport carries one request to whoever answers the API, and its answer back, both as streams.

It neither retries nor judges: an answer of any status is an answer. What never got one raises `LostError`.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

CHUNK_BYTES: Final = 1 << 20
"""Of a body on its way, either way."""


class Body(NamedTuple):
    """What a request sends. It can be opened again, for the next try."""

    open: Callable[[], Iterable[bytes]]
    size: int
    content_type: str


class Answer:
    """Its body is read once, and closed by whoever asked."""

    def __init__(
        self, status: int, headers: Mapping[str, str], chunks: Iterator[bytes], close: Callable[[], object]
    ) -> None:
        self.status = status
        self.headers = headers
        """By names in lower case."""
        self.chunks = chunks
        self.close = close

    def read(self) -> bytes:
        """The whole body: of an answer that is known to be small."""
        try:
            return b"".join(self.chunks)
        finally:
            self.close()


class LostError(Exception):
    """No answer came. `reached` tells whether the request may have been heard."""

    def __init__(self, message: str, *, reached: bool) -> None:
        super().__init__(message)
        self.reached = reached


class Transport(Protocol):
    base: str
    """The URL that all targets are below."""

    @abstractmethod
    def send(self, method: str, target: str, headers: Mapping[str, str], body: Body | None) -> Answer:
        """The answer, as soon as its headers are there. `target` is a path with its query, both quoted."""

    @abstractmethod
    def close(self) -> None:
        """Give back connections."""
