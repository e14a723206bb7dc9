"""Metrics on the wire: what a receiver decodes is what was counted, and one that is away costs a warning."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from groundwork.telemetry.metrics import Instruments
from groundwork.telemetry.sending import Push
from groundwork.telemetry.settings import Receiver
from tests.kit.otlp import Otlp, receiving
from tests.kit.waiting import until

SOON_S = 0.02


@contextlib.asynccontextmanager
async def pushed(instruments: Instruments, base: str, *, every_s: float = SOON_S) -> AsyncIterator[None]:
    """They are pushed until the block ends."""
    push = Push(instruments, Receiver(url=f"{base}/v1/metrics", headers={"authorization": "Bearer x"}), "agentic-loop")
    task = asyncio.create_task(push.run(every_s))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def newest(otlp: Otlp, name: str) -> Metric:
    await until(lambda: any(metric.name == name for _, metric in otlp.metrics))
    return next(metric for _, metric in reversed(otlp.metrics) if metric.name == name)


async def test_a_counter_arrives_as_a_cumulative_sum_with_its_own_name_and_unit() -> None:
    instruments = Instruments()
    instruments.counter("agentic.retries", "Again", unit="{retry}", attributes=("agentic.retry.scope",)).add(
        "tool", by=3
    )
    with receiving() as otlp:
        async with pushed(instruments, otlp.url):
            metric = await newest(otlp, "agentic.retries")
        path, headers = otlp.requests[0]
        assert (path, headers["authorization"]) == ("/v1/metrics", "Bearer x")
        assert {service for service, _ in otlp.metrics} == {"agentic-loop"}
    assert (metric.unit, metric.description) == ("{retry}", "Again")
    assert metric.sum.is_monotonic
    assert metric.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    (point,) = metric.sum.data_points
    assert point.as_double == 3
    assert [(pair.key, pair.value.string_value) for pair in point.attributes] == [("agentic.retry.scope", "tool")]
    assert point.start_time_unix_nano == instruments.since_ns < point.time_unix_nano


@pytest.mark.attack(65)
async def test_no_proxy_of_the_environment_sees_what_is_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody listens
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    instruments = Instruments()
    instruments.counter("agentic.retries", "Again").add()
    with receiving() as otlp:
        async with pushed(instruments, otlp.url):
            await newest(otlp, "agentic.retries")


async def test_the_last_push_is_made_when_the_service_ends_and_no_silent_receiver_holds_that_up() -> None:
    instruments = Instruments()
    with receiving() as otlp:
        async with pushed(instruments, otlp.url, every_s=3600.0):
            await asyncio.sleep(0)  # it has begun
            instruments.gauge("agentic.ready", "Ready").show({(): 1})
        assert [metric.name for _, metric in otlp.metrics] == ["agentic.ready"]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with pushed(instruments, f"http://127.0.0.1:{silent.getsockname()[1]}"):
            await asyncio.sleep(0.1)  # the first push is under way
            began = time.monotonic()
        assert time.monotonic() - began < 5.0  # it would be given 10
