"""Traces, by OpenTelemetry's protocol over HTTP. The one module that imports it, and is imported only for them.

Spans are made when what they tell of is over, with the times that were noted, so that OpenTelemetry has no part in the
work itself. A caller's `traceparent` decides whether a request is traced, and is the parent of its span; of others, a
part is traced. Spans that cannot be sent are dropped: nothing waits for the receiver.
"""

from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from esker.activity import Activity, Step
from esker.errors import InvalidError, Kind
from esker.server import VERSION

SEND_S: Final = 5.0
"""How long sending a batch may take. When the server stops, it waits so long at most."""

_NAMES: Final = {
    "method": "http.request.method",
    "path": "http.route",
    "status": "http.response.status_code",
    "user": "enduser.id",
}
"""Of attributes that OpenTelemetry has names for. The others are ours: `esker.repo`, ..."""


class OTLP:
    """A `watching.Traces`."""

    def __init__(self, endpoint: str, ratio: float) -> None:
        if not endpoint.startswith(("http://", "https://")):
            raise InvalidError(
                Kind.INVALID_URL, f"`otlp_endpoint` is the URL of an OTLP receiver, http://host:4318, not {endpoint!r}"
            )
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        ours = Resource({"service.name": "esker", "service.version": VERSION})
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(ratio)),
            resource=ours.merge(OTELResourceDetector().detect()),
            shutdown_on_exit=False,
        )
        url = f"{endpoint.rstrip('/').removesuffix('/v1/traces')}/v1/traces"
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=SEND_S)))
        self._tracer = self._provider.get_tracer("esker", VERSION)
        self._context = TraceContextTextMapPropagator()

    def export(self, activity: Activity) -> tuple[str, str]:
        whole = activity.whole
        is_request = "method" in whole.attributes
        root = self._tracer.start_span(
            f"{whole.attributes['method']} {whole.attributes['path']}" if is_request else whole.name,
            context=self._context.extract(activity.came_with, context=Context()),
            kind=SpanKind.SERVER if is_request else SpanKind.INTERNAL,
            start_time=_at_ns(activity, whole.begun_s),
        )
        about = root.get_span_context()
        if not root.is_recording():
            return "", ""
        spans: dict[Step, Span] = {whole: root}
        for step in activity.steps:
            assert step.parent is not None
            spans[step] = self._tracer.start_span(
                step.name,
                context=set_span_in_context(spans[step.parent], Context()),
                start_time=_at_ns(activity, step.begun_s),
            )
        if is_request:
            root.set_attribute("esker.operation", whole.name)
        for name, calls in dict(activity.calls).items():
            root.set_attribute(f"esker.{name}", calls)
        for store, spent_s in dict(activity.seconds).items():
            root.set_attribute(f"esker.{store}_seconds", spent_s)
        if activity.steps_left_out:
            root.set_attribute("esker.steps_left_out", activity.steps_left_out)
        for step, span in reversed(spans.items()):
            for name, value in dict(step.attributes).items():
                span.set_attribute(_NAMES.get(name, f"esker.{name}"), value)
            if step.failed or int(step.attributes.get("status", 0)) >= 500:
                span.set_status(StatusCode.ERROR, step.failed)
            span.end(_at_ns(activity, step.begun_s + step.took_s))
        trace = f"{about.trace_id:032x}"
        return trace, f"00-{trace}-{about.span_id:016x}-{about.trace_flags:02x}"

    def close(self) -> None:
        self._provider.shutdown()


def _at_ns(activity: Activity, moment_s: float) -> int:
    return activity.begun_ms * 1_000_000 + int((moment_s - activity.whole.begun_s) * 1e9)
