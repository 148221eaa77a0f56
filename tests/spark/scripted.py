"""A server that answers as it is told to, and notes what it was asked."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

DROP: Final = 0
"""In place of a status: the connection is closed, and nothing is answered."""


class Scripted(ThreadingHTTPServer):
    """Answers with each of these statuses in turn, and then with 200."""

    daemon_threads = True

    def __init__(self, *statuses: int, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.statuses = [*statuses]
        self.asked: list[str] = []
        self.connections = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Scripted

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            self.server.asked.append(f"{self.command} {self.path} {body.decode()}".strip())
            status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == DROP:
            self.close_connection = True
            return
        said = b'{"message":"so it was written","kind":"contention"}'
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - names that the library looks for

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def scripted(*statuses: int, port: int = 0) -> Iterator[Scripted]:
    server = Scripted(*statuses, port=port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
