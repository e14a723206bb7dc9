"""Instruments, pushed by OTLP over HTTP: cumulative values, every OTEL_METRIC_EXPORT_INTERVAL (milliseconds)."""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
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
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from groundwork.telemetry.beside import beside
from groundwork.telemetry.metrics import Attributes, Counter, Gauge, Histogram, Instrument, Instruments
from groundwork.telemetry.sending import Outage, resource_of, session_for
from groundwork.telemetry.settings import Receiver

EVERY_S = 60.0
LAST_WITHIN_S = 1.0
_SCOPE = InstrumentationScope("agentic-loop")
_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
_TALKATIVE = ("opentelemetry.exporter.otlp.proto.http.metric_exporter",)


class Push:
    def __init__(self, instruments: Instruments, receiver: Receiver, service: str) -> None:
        self._instruments = instruments
        self._resource = resource_of(service)
        self._outage = Outage("metrics", receiver.address, _TALKATIVE)
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
            self._outage.over()
            self._exporter.shutdown()

    async def _once(self) -> None:
        instruments = await self._instruments.read()
        self._outage.note(taken=await beside(lambda: self._export(instruments), what="metrics"))

    def _export(self, instruments: Iterable[Instrument]) -> bool:
        span = self._instruments.since_ns, time.time_ns()
        measured = [_metric(one, span) for one in instruments if one.values]
        scoped = ScopeMetrics(_SCOPE, measured, "")
        data = MetricsData([ResourceMetrics(self._resource, [scoped], "")])
        return self._exporter.export(data) is MetricExportResult.SUCCESS


def interval_s(environ: Mapping[str, str]) -> float:
    """How often is pushed, in seconds. What is no positive number counts as not set, as the specification has it."""
    try:
        milliseconds = float(environ.get(_INTERVAL, ""))
    except ValueError:
        return EVERY_S
    return milliseconds / 1000 if milliseconds > 0 else EVERY_S


def _metric(instrument: Instrument, span: tuple[int, int]) -> Metric:
    described = instrument.described
    points: Sum | GaugePoints | HistogramPoints
    match instrument:
        case Counter():
            points = Sum(_numbers(instrument, span), AggregationTemporality.CUMULATIVE, is_monotonic=True)
        case Gauge():
            points = GaugePoints(_numbers(instrument, span))
        case Histogram():
            points = HistogramPoints(_spread(instrument, span), AggregationTemporality.CUMULATIVE)
    return Metric(described.name, described.text, described.unit, points)


def _numbers(instrument: Counter | Gauge, span: tuple[int, int]) -> list[NumberDataPoint]:
    named = [(_named(instrument, series), value) for series, value in list(instrument.values.items())]
    return [NumberDataPoint(attributes, *span, float(value)) for attributes, value in named]


def _spread(instrument: Histogram, span: tuple[int, int]) -> list[HistogramDataPoint]:
    return [
        HistogramDataPoint(
            _named(instrument, series),
            *span,
            count=sum(buckets.counts),
            sum=buckets.total,
            bucket_counts=tuple(buckets.counts),
            explicit_bounds=instrument.bounds,
            min=buckets.least,
            max=buckets.most,
        )
        for series, buckets in list(instrument.values.items())
    ]


def _named(instrument: Instrument, series: Attributes) -> dict[str, str]:
    return dict(zip(instrument.described.attributes, series, strict=True))
