"""A receiver of traces: OTLP over HTTP, in a thread, with all the spans that it was sent."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span(NamedTuple):
    name: str
    trace: str
    id: str
    parent: str
    kind: int
    failed: bool
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    service: str


class Collector:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.spans: list[Span] = []
        self.paths: set[str] = set()

    def children(self, span: Span) -> list[str]:
        """The names of the spans below it, in the order of their beginnings."""
        below = sorted((one for one in self.spans if one.parent == span.id), key=lambda one: one.start_ns)
        return [one.name for one in below]

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for group in request.resource_spans:
            about = _values(group.resource.attributes)
            for scope in group.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        Span(
                            span.name,
                            span.trace_id.hex(),
                            span.span_id.hex(),
                            span.parent_span_id.hex(),
                            span.kind,
                            span.status.code == 2,
                            span.start_time_unix_nano,
                            span.end_time_unix_nano,
                            _values(span.attributes),
                            about["service.name"],
                        )
                    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """For as long as the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # as the standard library calls it
            collector.paths.add(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            collector.take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(server.server_port)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
