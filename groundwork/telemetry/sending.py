"""Sends spans by OTLP over HTTP. Imports the SDK, and sets no global provider.

Of the environment only OpenTelemetry's variables count: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, certificates.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from groundwork.service.json_log import Outage
from groundwork.service.program import installed_version
from groundwork.sqlite.file import microseconds
from groundwork.telemetry.settings import TraceReceiver
from groundwork.telemetry.span import Span

_SCOPE = InstrumentationScope("agentic-loop")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_FINE = Status(StatusCode.UNSET)
MOMENT = timedelta(microseconds=3)
"""Duration of a span without one. Jaeger takes a span without duration for faulty, and one outside of its parent for
one of a wrong clock, unless it is the longer of the two."""
TOO_LARGE = 413
REFUSED = frozenset({400, TOO_LARGE, 422})
"""Statuses that refuse the spans themselves: they are never taken. A person can end any other trouble."""

log = logging.getLogger(__name__)


class _Session(requests.Session):
    """`asked`: False if the exporter refuses the spans itself, which are too many bytes, or cannot be encoded."""

    asked = False

    def request(self, *args: Any, **named: Any) -> requests.Response:
        self.asked = True
        return super().request(*args, **named)


class SpanSender(logging.Handler):
    """Sends batches of spans synchronously. Logs an outage of the receiver once; its reason is the first message that
    the exporter logs for a batch."""

    def __init__(self, receiver: TraceReceiver, service: str) -> None:
        super().__init__(logging.WARNING)
        ours = Resource({SERVICE_NAME: service, SERVICE_VERSION: installed_version()})
        self._resource = ours.merge(OTELResourceDetector().detect())
        self._address = receiver.address
        self._outage = Outage(f"{receiver.address}, which takes traces,", log)
        self._why, self._status = "", 0
        # It quotes a header that is no pair, which may be a key: `TelemetrySettings.receiver` tells of it.
        logging.getLogger("opentelemetry.util.re").setLevel(logging.ERROR)
        talkative = logging.getLogger(OTLPSpanExporter.__module__.removesuffix(".__init__"))
        talkative.propagate = False
        talkative.addHandler(self)
        self._session = session = _Session()
        session.trust_env = False
        session.hooks["response"].append(self._answered)
        if receiver.proxy:
            session.proxies = {"http": receiver.proxy, "https": receiver.proxy}
        self._exporter = OTLPSpanExporter(receiver.url, headers=dict(receiver.headers), session=session)

    def emit(self, record: logging.LogRecord) -> None:
        self._why = self._why or record.getMessage()

    def send(self, spans: Sequence[Span]) -> bool:
        """True if the receiver took them, or will never take the others, which are dropped. Retries for up to
        OTEL_EXPORTER_OTLP_TIMEOUT (10 s)."""
        self._why, self._status, self._session.asked = "", 0, False
        taken = self._exporter.export([made(span, self._resource) for span in spans]) is SpanExportResult.SUCCESS
        self._status = self._status if self._session.asked else TOO_LARGE
        if not taken and self._status not in REFUSED:
            self._outage.continues(self._why or "no answer")
            return False
        self._outage.over()
        if taken:
            return True
        if parts := _smaller(spans, halve=self._status == TOO_LARGE):
            return all(map(self.send, parts))
        facts = {"event": "spans_refused", "trace_id": spans[0].trace_id, "spans": len(spans), "why": self._why}
        log.warning("%s refuses spans of a trace: they are dropped", self._address, extra=facts)
        return True

    def _answered(self, answer: requests.Response, **_: object) -> None:
        """The exporter takes a redirect for a success."""
        self._status = answer.status_code
        if answer.is_redirect:
            answer.close()
            raise requests.TooManyRedirects("it redirects: name the address that takes traces itself")


def _smaller(spans: Sequence[Span], *, halve: bool) -> Sequence[Sequence[Span]]:
    """One part for each trace; of one trace, its halves or nothing."""
    by_trace = dict[str, list[Span]]()
    for span in spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    if len(by_trace) > 1:
        return tuple(by_trace.values())
    middle = len(spans) // 2
    return (spans[:middle], spans[middle:]) if halve and middle else ()


def made(span: Span, resource: Resource) -> ReadableSpan:
    return ReadableSpan(
        span.name,
        context=_context(span.trace_id, span.span_id),
        parent=_context(span.trace_id, span.parent_id) if span.parent_id else None,
        resource=resource,
        attributes=span.attributes,
        links=[Link(SpanContext(int(one.trace_id, 16), int(one.span_id, 16), is_remote=True)) for one in span.links],
        kind=SpanKind[span.kind.upper()],
        status=_FINE if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=1000 * microseconds(span.started_at),
        end_time=1000 * microseconds(span.ended_at if span.ended_at > span.started_at else span.started_at + MOMENT),
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)
