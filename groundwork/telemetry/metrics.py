"""What a service counts and measures: one set of instruments, read as Prometheus text and pushed by OTLP alike.

    calls = instruments.counter("agentic.calls", "Calls that were made", unit="{call}", attributes=("agentic.outcome",))
    calls.add("ok")

Names, units and attributes are OpenTelemetry's. An instrument is a dict: counting takes a third of a microsecond, where
prometheus-client takes 2 and OpenTelemetry's SDK 5, and neither is loaded before somebody reads. Attribute values come
in the announced order; series beyond `MOST_SERIES` count as `other`. One thread at a time writes to a series.
"""

import asyncio
import logging
import math
import re
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from groundwork.service.beginning import loaded
from groundwork.service.installed import installed_version
from groundwork.telemetry.settings import Receiver

EXPOSED, PUSH = "groundwork.telemetry.exposition:exposed", "groundwork.telemetry.pushing:Push"
CONTENT_TYPE = "text/plain; version=0.0.4"

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds of buckets for what mostly takes less than a minute."""
MOST_SERIES = 200
OTHER = "other"
FRESH_S = 5.0
"""How long what was observed is good for: several who read at once ask once."""
WITHIN_S = 2.0
"""How long an observation may take; Prometheus itself gives a scrape 10 seconds."""

_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}

log = logging.getLogger(__name__)

Attributes = tuple[str, ...]
"""The values of one series, in the order of its instrument's names for them."""
Reading = float | Mapping[Attributes, float] | None
"""How things stand: one number, one of each series, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What an instrument measures. `unit` is UCUM's: `s`, `By`, `1` (a part of one), or `{thing}`."""

    name: str
    text: str
    unit: str
    attributes: tuple[str, ...]


class Counter:
    def __init__(self, described: Description, known: Iterable[Attributes]) -> None:
        self.described = described
        self.values: dict[Attributes, float] = dict.fromkeys(known, 0)

    def add(self, *attributes: str, by: float = 1) -> None:
        if attributes not in self.values:
            attributes = _bounded(self.values, attributes)
            self.values.setdefault(attributes, 0)
        self.values[attributes] += by


class Gauge:
    def __init__(self, described: Description) -> None:
        self.described = described
        self.values: dict[Attributes, float] = {}

    def show(self, found: Reading) -> None:
        """All its series as they stand now: one that is left out is gone."""
        self.values = dict(found) if isinstance(found, Mapping) else {} if found is None else {(): found}


@dataclass(slots=True)
class Buckets:
    """One series of a histogram: `counts` between each bound and the one before; the last for those above."""

    counts: list[int]
    total: float = 0.0
    least: float = math.inf
    most: float = 0.0


class Histogram:
    def __init__(self, described: Description, bounds: tuple[float, ...]) -> None:
        self.described = described
        self.bounds = bounds
        self.values: dict[Attributes, Buckets] = {}

    def record(self, value: float, *attributes: str) -> None:
        """One value; below zero counts as zero, for clocks of two machines may differ."""
        buckets, value = self.values.get(attributes) or self._begun(attributes), max(0.0, value)
        buckets.counts[bisect_left(self.bounds, value)] += 1
        buckets.total += value
        if value < buckets.least:
            buckets.least = value
        if value > buckets.most:
            buckets.most = value

    def _begun(self, attributes: Attributes) -> Buckets:
        fresh = Buckets([0] * (len(self.bounds) + 1))
        return self.values.setdefault(_bounded(self.values, attributes), fresh)


Instrument = Counter | Gauge | Histogram
AnyInstrument = TypeVar("AnyInstrument", bound=Instrument)


@dataclass(slots=True)
class _Observation:
    gauges: tuple[Gauge, ...]
    read: Callable[[], Awaitable[None]]
    read_at: float = field(default=float("-inf"))


class Instruments:
    def __init__(self) -> None:
        self.since_ns = time.time_ns()
        self._all: dict[str, Instrument] = {}
        self._observations: list[_Observation] = []
        self._reading = asyncio.Lock()

    def counter(
        self,
        name: str,
        text: str,
        *,
        unit: str = "",
        attributes: tuple[str, ...] = (),
        known: Iterable[Attributes] = (),
    ) -> Counter:
        """`known`: series that are there from the start, at zero, so that the first event is seen as a change."""
        described = Description(name=name, text=text, unit=unit, attributes=attributes)
        return self._added(Counter(described, known if attributes else [()]))

    def gauge(self, name: str, text: str, *, unit: str = "", attributes: tuple[str, ...] = ()) -> Gauge:
        """To be shown when something changes, or by `observe`."""
        return self._added(Gauge(Description(name=name, text=text, unit=unit, attributes=attributes)))

    def histogram(
        self,
        name: str,
        text: str,
        *,
        unit: str = "s",
        attributes: tuple[str, ...] = (),
        bounds: tuple[float, ...] = SECONDS,
    ) -> Histogram:
        """`bounds`: the upper ends of its buckets, ascending."""
        return self._added(Histogram(Description(name=name, text=text, unit=unit, attributes=attributes), bounds))

    def observe(self, read: Callable[[], Awaitable[None]], *gauges: Gauge) -> None:
        """Have `read` show `gauges` before anybody reads them. Where it fails or takes too long they show nothing."""
        self._observations.append(_Observation(gauges, read))

    def level(
        self,
        name: str,
        text: str,
        read: Callable[[], Reading | Awaitable[Reading]],
        *,
        unit: str = "",
        attributes: tuple[str, ...] = (),
    ) -> None:
        """A gauge that is read whenever somebody asks."""
        gauge = self.gauge(name, text, unit=unit, attributes=attributes)

        async def look() -> None:
            found = read()
            gauge.show(await found if isinstance(found, Awaitable) else found)

        self.observe(look, gauge)

    @property
    def all(self) -> tuple[Instrument, ...]:
        return tuple(self._all.values())

    async def read(self) -> tuple[Instrument, ...]:
        """All instruments, with what is observed now, or was some seconds ago."""
        async with self._reading:
            now = time.monotonic()
            await asyncio.gather(*(_observe(one, now) for one in self._observations if now - one.read_at > FRESH_S))
        return self.all

    def _added(self, instrument: AnyInstrument) -> AnyInstrument:
        name = instrument.described.name
        if name in self._all:
            raise ValueError(f"there is an instrument {name} already")
        self._all[name] = instrument
        return instrument


async def exposition(instruments: Instruments, service: str) -> bytes:
    """The text of /metrics, in the format CONTENT_TYPE. Another thread loads what that takes, and writes it."""
    read, exposed = await instruments.read(), await asyncio.to_thread(loaded, EXPOSED)
    resource = {"service.name": service, "service.version": installed_version()}
    text: bytes = await asyncio.to_thread(exposed, read, resource)
    return text


async def push(instruments: Instruments, receiver: Receiver, service: str) -> None:
    """Push them to `receiver` until cancelled. What that takes is loaded in another thread."""
    made = await asyncio.to_thread(loaded, PUSH)
    await (await asyncio.to_thread(made, instruments, receiver, service)).run()


def prometheus_name(instrument: Instrument) -> str:
    """As OpenTelemetry's specification spells a name for Prometheus, without the `_total` of a counter."""
    described = instrument.described
    name, unit = prometheus_label(described.name), _UNITS.get(described.unit, "")
    return name if not unit or name.endswith(f"_{unit}") else f"{name}_{unit}"


def prometheus_label(attribute: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", attribute)


async def _observe(one: _Observation, now: float) -> None:
    try:
        async with asyncio.timeout(WITHIN_S):
            await one.read()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told elsewhere, and others are to be read
        log.debug("cannot be observed: %r", error)
        for gauge in one.gauges:
            gauge.show({})
    one.read_at = now


def _bounded(values: Mapping[Attributes, object], attributes: Attributes) -> Attributes:
    """The series that attributes without one are counted in."""
    return attributes if len(values) < MOST_SERIES else (OTHER,) * len(attributes)
