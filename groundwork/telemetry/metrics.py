"""Counters, gauges and histograms under OpenTelemetry's names; prometheus-client renders them.

Values are kept here: prometheus-client's own take a lock and several calls for each update. It is imported on the first
scrape.

    calls = instruments.counter("agentic.calls", "Calls that were made", "agentic.outcome", unit="{call}")
    calls.add("ok")

Attribute values come in the declared order; series beyond `MOST_SERIES` count as `other`. One thread may read while
another adds.
"""

import asyncio
import logging
import re
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from groundwork.service.program import installed_version, loaded

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bucket bounds for durations that are mostly below a minute."""
CONTENT_TYPE = "text/plain; version=0.0.4"
MOST_SERIES = 200
OTHER = "other"
FRESH_S = 5.0
"""Lifetime of an observation: concurrent scrapes share it."""
WITHIN_S = 2.0
"""Timeout of an observation; Prometheus itself gives a scrape 10 seconds."""
_UNITS = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}

log = logging.getLogger(__name__)

Attributes = tuple[str, ...]
"""Attribute values of one series, in the order of the instrument's names."""
Reading = float | Mapping[Attributes, float] | None
"""One number, a number per series, or none."""
Readings = Reading | tuple[Reading, ...]
Reader = Callable[[], Readings | Awaitable[Readings]]
Level = tuple[str, str, str, Reader, *tuple[str, ...]]
"""Name, text, unit, reader and attributes of a gauge."""


class Instrument:
    """`unit` is of UCUM: `s`, `By`, `1` (a ratio), or `{thing}`. `name` and `labels` are spelled as in Prometheus,
    without the `_total` of a counter."""

    def __init__(self, name: str, text: str, unit: str, attributes: tuple[str, ...]) -> None:
        self.name, *self.labels = (re.sub(r"[^a-zA-Z0-9_]", "_", one) for one in (name, *attributes))
        suffix = _UNITS.get(unit, "")
        self.name = self.name.removesuffix(suffix) + suffix
        self._text = text
        self._values: dict[Attributes, Any] = {}

    def collect(self) -> Iterable[Any]:
        """Called by prometheus-client."""
        made = loaded(f"prometheus_client.metrics_core:{type(self).__name__}MetricFamily")
        family = made(self.name, self._text, labels=self.labels)
        for series, value in tuple(self._values.items()):
            family.add_metric(series, *self._shown(value))
        return [family]

    def _shown(self, value: Any) -> Iterable[Any]:
        yield value

    def _series(self, new: Attributes) -> Attributes:
        return (OTHER,) * len(new) if len(self._values) >= MOST_SERIES else new


class Counter(Instrument):
    def add(self, *attributes: str, by: float = 1) -> None:
        series = attributes if attributes in self._values else self._series(attributes)
        self._values[series] = self._values.get(series, 0.0) + by


class Gauge(Instrument):
    def show(self, found: Reading) -> None:
        """Replaces all series."""
        self._values = dict(found) if isinstance(found, Mapping) else {} if found is None else {(): found}


class Histogram(Instrument):
    """Keeps per series the count of each bucket, of values beyond the last one, and the sum."""

    bounds: tuple[float, ...] = SECONDS

    def record(self, value: float, *attributes: str) -> None:
        """Negative values count as zero: clocks of two machines may differ."""
        spread, value = self._values.get(attributes) or self.begin(attributes), max(0.0, value)
        spread[bisect_left(self.bounds, value)] += 1
        spread[-1] += value

    def begin(self, attributes: Attributes) -> list[float]:
        begun: list[float] = self._values.setdefault(self._series(attributes), [0.0] * (len(self.bounds) + 2))
        return begun

    def _shown(self, value: Any) -> Iterable[Any]:
        *counts, total = tuple(value)
        ends = *map(loaded("prometheus_client.utils:floatToGoString"), self.bounds), "+Inf"
        yield from (list(zip(ends, accumulate(counts), strict=True)), total)


class Instruments:
    def __init__(self) -> None:
        self.all: list[Instrument] = []
        self._observations: list[tuple[Reader, tuple[Gauge, ...]]] = []
        self._reading = asyncio.Lock()
        self._read_at = float("-inf")

    def counter(
        self, name: str, text: str, *attributes: str, unit: str = "", known: Iterable[Attributes] = ()
    ) -> Counter:
        """`known`: series that start at zero, so that the first event shows as a change."""
        counter = Counter(name, text, unit, attributes)
        self.all.append(counter)
        for series in known if attributes else [()]:
            counter.add(*series, by=0.0)
        return counter

    def gauge(self, name: str, text: str, *attributes: str, unit: str = "") -> Gauge:
        gauge = Gauge(name, text, unit, attributes)
        self.all.append(gauge)
        return gauge

    def histogram(
        self, name: str, text: str, *attributes: str, unit: str = "s", bounds: tuple[float, ...] = SECONDS
    ) -> Histogram:
        """`bounds`: ascending upper bounds of the buckets."""
        histogram = Histogram(name, text, unit, attributes)
        histogram.bounds = bounds
        self.all.append(histogram)
        if not attributes:
            histogram.begin(())
        return histogram

    def observe(self, read: Reader, *gauges: Gauge) -> None:
        """Calls `read` before a scrape, for the reading of the gauge, or of each. If it fails, they are empty."""
        self._observations.append((read, gauges))

    def levels(self, *levels: Level) -> None:
        """Adds gauges that are read before a scrape."""
        for name, text, unit, read, *attributes in levels:
            self.observe(read, self.gauge(name, text, *attributes, unit=unit))

    async def exposed(self, service: str) -> bytes:
        """Body of /metrics, of CONTENT_TYPE, rendered in another thread."""
        async with self._reading:
            if time.monotonic() - self._read_at > FRESH_S:
                await asyncio.gather(*(_observe(*one) for one in self._observations))
                self._read_at = time.monotonic()
        return await asyncio.to_thread(self.text, service)

    def text(self, service: str = "") -> bytes:
        registry = loaded("prometheus_client:CollectorRegistry")(
            target_info={"service_name": service, "service_version": installed_version()}
        )
        loaded("prometheus_client:ProcessCollector")(registry=registry)
        for instrument in self.all:
            registry.register(instrument)
        written: bytes = loaded("prometheus_client:generate_latest")(registry)
        return written


async def _observe(read: Reader, gauges: Sequence[Gauge]) -> None:
    try:
        async with asyncio.timeout(WITHIN_S):
            found = read()
            found = await found if isinstance(found, Awaitable) else found
    except Exception as error:  # noqa: BLE001 - it is reported elsewhere, and the others are still read
        log.debug("cannot be observed: %r", error)
        found = (None,) * len(gauges)
    for gauge, reading in zip(gauges, found if isinstance(found, tuple) else (found,), strict=True):
        gauge.show(reading)


class RepeatMetrics:
    """Counts what a service does again (`retries`, told by `again`), and what came to it again (`dedupe`)."""

    def __init__(
        self, instruments: Instruments, again: str, *, retries: Iterable[tuple[str, str]], dedupe: Iterable[str]
    ) -> None:
        known = [*retries, ("publish", "try_again")]
        attributes = "agentic.retry.scope", "error.type"
        self.retries = instruments.counter("agentic.retries", again, *attributes, unit="{retry}", known=known)
        known_hits, text = [(kind,) for kind in (*dedupe, "publish")], "What came again and changed nothing"
        of_kind = "agentic.dedupe.kind"
        self.dedupe = instruments.counter("agentic.dedupe.hits", text, of_kind, unit="{hit}", known=known_hits)
        taken = "Message ids of ours that somebody else's message had"
        self.taken = instruments.counter("agentic.ids.taken_by_others", taken)
