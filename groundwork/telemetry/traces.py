"""Sends spans by OTLP over HTTP. Imports the SDK, and sets no global tracer provider."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from groundwork.telemetry.sending import Outage, resource_of, session_for
from groundwork.telemetry.settings import Receiver
from groundwork.telemetry.span import Context, Span

CLOSING_S = 2.0
_TALKATIVE = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",  # a queue that is full
)
_SCOPE = InstrumentationScope("agentic-loop")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_KINDS = {
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
}
_FINE = Status(StatusCode.UNSET)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
MOMENT = 3 * _MICROSECOND
"""The length of a span that was told without one. Jaeger takes one without a length for faulty, and one that lies
outside of the span it belongs to for one of a wrong clock, unless it is the longer of the two."""


class SpanSender:
    """Sends batches of spans; the caller waits. An outage of the receiver is told once."""

    def __init__(self, receiver: Receiver, resource: Resource) -> None:
        self._resource = resource
        self._outage = Outage("traces", receiver.address, _TALKATIVE)
        self._exporter = OTLPSpanExporter(
            endpoint=receiver.url, headers=dict(receiver.headers), session=session_for(receiver)
        )

    def send(self, spans: Sequence[Span]) -> bool:
        """Whether the receiver took them. It is tried again meanwhile, up to OTEL_EXPORTER_OTLP_TIMEOUT (10 s)."""
        return self.send_made([made(span, self._resource) for span in spans])

    def send_made(self, spans: Sequence[ReadableSpan]) -> bool:
        taken = self._exporter.export(spans) is SpanExportResult.SUCCESS
        self._outage.note(taken=taken)
        return taken

    def close(self) -> None:
        """Send nothing more; a batch under way is not tried again."""
        self._outage.over()
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


def span_sender(receiver: Receiver, service: str) -> SpanSender:
    return SpanSender(receiver, resource_of(service))


class SpanQueue:
    """Sends spans in the background, in batches, from a queue of bounded length (OTEL_BSP_… set both)."""

    def __init__(self, receiver: Receiver, resource: Resource) -> None:
        self._resource = resource
        self._batches = BatchSpanProcessor(_Batches(SpanSender(receiver, resource)))

    def ended(self, span: Span) -> None:
        """Take a span. Where the queue is full, the oldest is lost."""
        self._batches.on_end(made(span, self._resource))

    def close(self, within_s: float = CLOSING_S) -> None:
        """Send what is left, and wait for that no longer than `within_s` seconds: the thread ends with the process."""
        closing = threading.Thread(target=self._batches.shutdown, daemon=True)
        closing.start()
        closing.join(within_s)


class _Batches(SpanExporter):
    """Inherits because the SDK takes nothing else."""

    def __init__(self, sender: SpanSender) -> None:
        self._sender = sender

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS if self._sender.send_made(spans) else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._sender.close()


def made(span: Span, resource: Resource) -> ReadableSpan:
    return ReadableSpan(
        span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource=resource,
        attributes=span.attributes,
        links=tuple(map(_link, span.links)),
        kind=_KINDS[span.kind],
        status=_FINE if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=_nanoseconds(span.started_at),
        end_time=_nanoseconds(span.ended_at if span.ended_at > span.started_at else span.started_at + MOMENT),
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)


def _link(context: Context) -> Link:
    return Link(SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=True))


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1000
