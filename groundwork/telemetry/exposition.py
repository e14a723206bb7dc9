"""Instruments in the Prometheus text format (version 0.0.4), and what the process itself takes (Linux only)."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from groundwork.telemetry.metrics import Buckets, Counter, Gauge, Instrument, prometheus_label, prometheus_name


def exposed(instruments: Iterable[Instrument], resource: Mapping[str, str]) -> bytes:
    """The text of /metrics. `resource`: what is measured, shown as `target_info`."""
    registry = CollectorRegistry()
    registry.register(_Read(tuple(instruments), resource))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Read(Collector):
    def __init__(self, instruments: tuple[Instrument, ...], resource: Mapping[str, str]) -> None:
        self._instruments = instruments
        self._resource = resource

    def collect(self) -> Iterator[Metric]:
        info = {prometheus_label(name): value for name, value in self._resource.items()}
        yield InfoMetricFamily("target", "What is measured", value=info)
        for instrument in self._instruments:
            yield _family(instrument)


def _family(instrument: Instrument) -> Metric:
    described, name = instrument.described, prometheus_name(instrument)
    labels = tuple(map(prometheus_label, described.attributes))
    if isinstance(instrument, Counter | Gauge):
        kind = CounterMetricFamily if isinstance(instrument, Counter) else GaugeMetricFamily
        family = kind(name, described.text, labels=labels)
        for series, value in list(instrument.values.items()):
            family.add_metric(series, value)
        return family
    spread = HistogramMetricFamily(name, described.text, labels=labels)
    for series, buckets in list(instrument.values.items()):
        spread.add_metric(series, _cumulative(instrument.bounds, buckets), buckets.total)
    return spread


def _cumulative(bounds: tuple[float, ...], buckets: Buckets) -> list[tuple[str, float]]:
    """Each bound with how many values were at most that."""
    ends = [*map(floatToGoString, bounds), "+Inf"]
    return list(zip(ends, accumulate(buckets.counts), strict=True))
