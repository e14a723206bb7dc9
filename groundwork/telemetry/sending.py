"""Sends spans and metrics by OTLP over HTTP. Imports the SDK, and sets no global provider.

A receiver is reached without proxy and ~/.netrc of the environment; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
have the last word on the resource.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Gauge as GaugePoints
from opentelemetry.sdk.metrics.export import Histogram as HistogramPoints
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from groundwork.service.installed import installed_version
from groundwork.service.json_log import Outage
from groundwork.service.machine import in_daemon_thread
from groundwork.telemetry.metrics import Counter, Gauge, Histogram, Instrument, Instruments
from groundwork.telemetry.settings import Receiver
from groundwork.telemetry.span import Span

EVERY_S = 60.0
LAST_WITHIN_S = 1.0
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_SCOPE = InstrumentationScope("agentic-loop")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_FINE = Status(StatusCode.UNSET)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
MOMENT = 3 * _MICROSECOND
"""The length of a span that was told without one. Jaeger takes one without a length for faulty, and one that lies
outside of the span it belongs to for one of a wrong clock, unless it is the longer of the two."""

log = logging.getLogger(__name__)


class ReceiverWatch(logging.Handler):
    """Tells outages of a receiver once. What its exporter logs of a batch first is the reason."""

    def __init__(self, signal: str, receiver: Receiver, exporter: str) -> None:
        super().__init__(logging.WARNING)
        self._outage = Outage(f"{receiver.address}, which takes {signal},", log)
        self._why = ""
        talkative = logging.getLogger(f"opentelemetry.exporter.otlp.proto.http.{exporter}")
        talkative.propagate = False
        talkative.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self._why = self._why or record.getMessage()

    def note(self, *, taken: bool) -> bool:
        if taken:
            self._outage.over()
        else:
            self._outage.goes_on(self._why or "no answer")
        self._why = ""
        return taken


def session_for(receiver: Receiver, environ: Mapping[str, str] = os.environ) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.verify = next((environ[name] for name in _CERTIFICATES if environ.get(name)), True)
    if receiver.proxy:
        session.proxies = {"http": receiver.proxy, "https": receiver.proxy}
    return session


def resource_of(service: str) -> Resource:
    ours = Resource({SERVICE_NAME: service, SERVICE_VERSION: installed_version()})
    return ours.merge(OTELResourceDetector().detect())


class SpanSender:
    """Sends batches of spans; the caller waits."""

    def __init__(self, receiver: Receiver, service: str) -> None:
        self._resource = resource_of(service)
        self._watch = ReceiverWatch("traces", receiver, "trace_exporter")
        self._exporter = OTLPSpanExporter(
            endpoint=receiver.url, headers=dict(receiver.headers), session=session_for(receiver)
        )

    def send(self, spans: Sequence[Span]) -> bool:
        """Whether the receiver took them. It is tried again meanwhile, up to OTEL_EXPORTER_OTLP_TIMEOUT (10 s)."""
        taken = self._exporter.export([made(span, self._resource) for span in spans]) is SpanExportResult.SUCCESS
        return self._watch.note(taken=taken)


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
        start_time=_nanoseconds(span.started_at),
        end_time=_nanoseconds(span.ended_at if span.ended_at > span.started_at else span.started_at + MOMENT),
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=_SAMPLED)


def _nanoseconds(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND * 1000


class Push:
    """Pushes instruments: cumulative values, every OTEL_METRIC_EXPORT_INTERVAL (milliseconds)."""

    def __init__(self, instruments: Instruments, receiver: Receiver, service: str) -> None:
        self._instruments = instruments
        self._resource = resource_of(service)
        self._watch = ReceiverWatch("metrics", receiver, "metric_exporter")
        self._exporter = OTLPMetricExporter(
            endpoint=receiver.url, headers=dict(receiver.headers), session=session_for(receiver)
        )

    async def run(self, every_s: float | None = None) -> None:
        """Until cancelled, and then once more."""
        try:
            while True:
                await asyncio.sleep(every_s or interval_s(os.environ))
                await self._once()
        finally:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._once(), LAST_WITHIN_S)
            self._exporter.shutdown()

    async def _once(self) -> None:
        await self._instruments.read()
        try:
            self._watch.note(taken=await in_daemon_thread(self._export, name="metrics"))
        except Exception:
            log.exception("metrics are not sent")

    def _export(self) -> bool:
        metric = partial(_metric, span=(self._instruments.since_ns, time.time_ns()))
        scoped = ScopeMetrics(_SCOPE, [one for one in map(metric, self._instruments.all) if one.data.data_points], "")
        data = MetricsData([ResourceMetrics(self._resource, [scoped], "")])
        return self._exporter.export(data) is MetricExportResult.SUCCESS


def interval_s(environ: Mapping[str, str]) -> float:
    """How often is pushed, in seconds. What is no positive number counts as not set, as the specification has it."""
    try:
        milliseconds = float(environ.get("OTEL_METRIC_EXPORT_INTERVAL", ""))
    except ValueError:
        return EVERY_S
    return milliseconds / 1000 if milliseconds > 0 else EVERY_S


def _metric(instrument: Instrument, span: tuple[int, int]) -> Metric:
    points: Sum | GaugePoints | HistogramPoints
    match instrument:
        case Counter():
            points = Sum(list(_numbers(instrument, span)), AggregationTemporality.CUMULATIVE, is_monotonic=True)
        case Gauge():
            points = GaugePoints(list(_numbers(instrument, span)))
        case Histogram():
            points = HistogramPoints(list(_spread(instrument, span)), AggregationTemporality.CUMULATIVE)
    described = instrument.described
    return Metric(described.name, described.text, described.unit, points)


def _numbers(instrument: Instrument, span: tuple[int, int]) -> Iterator[NumberDataPoint]:
    for attributes, (value,) in _series(instrument):
        yield NumberDataPoint(attributes, *span, value)


def _spread(instrument: Histogram, span: tuple[int, int]) -> Iterator[HistogramDataPoint]:
    """prometheus-client tells of each series its cumulative buckets, then how many values there were, and their sum."""
    for attributes, (*below, count, total) in _series(instrument):
        counts = [int(more - less) for less, more in pairwise([0, *below])]
        bounds = instrument.described.bounds
        yield HistogramDataPoint(attributes, *span, int(count), total, counts, bounds, None, None)  # type: ignore[arg-type] # the wire has them optional


def _series(instrument: Instrument) -> Iterable[tuple[Mapping[str, str], list[float]]]:
    names = instrument.described.attributes
    found = defaultdict[tuple[str, ...], list[float]](list)
    for family in instrument.collect():
        for sample in family.samples:
            found[tuple(value for name, value in sample.labels.items() if name != "le")].append(sample.value)
    return [(dict(zip(names, series, strict=True)), values) for series, values in found.items()]
