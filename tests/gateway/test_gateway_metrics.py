"""What the gateway counts and measures, as Prometheus reads it."""

import asyncio
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.calls.call import ToolOutcome, failed
from ductile_gateway.telling.calls import CallsTold
from ductile_gateway.telling.metrics import GatewayMetrics
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.telemetry.metrics import exposition
from schemas import subjects
from tests.gateway.on_nats import a_bus, all_acknowledged, send
from tests.gateway.parts import RUN, FakeRunner, World, a_request, asked_for
from tests.gateway.served import ENVIRONMENT, Gateway
from tests.kit.otlp import receiving
from tests.kit.waiting import until

EVERYTHING = (
    *("agentic_ready", "agentic_gateway_call_duration_seconds_count", "agentic_gateway_call_wait_seconds_count"),
    *("agentic_gateway_calls_in_hand", "agentic_gateway_calls_waiting", "agentic_ledger_open"),
    *("agentic_retries_total", "agentic_dedupe_hits_total", "agentic_outbound_waiting", "agentic_store_writes_total"),
    *("agentic_store_commit_duration_seconds_count", "agentic_store_sync_duration_seconds_count", "target_info"),
)


class Counted(World):
    """A world whose calls are counted."""

    def __init__(self, runner: Any = None) -> None:
        super().__init__(runner=runner)
        self.metrics = GatewayMetrics()
        self.observer = CallsTold(self.metrics, None, urls={"": ""}, clock=self.clock)

    async def read(self) -> dict[str, float]:
        text = (await exposition(self.metrics.instruments, subjects.SERVICE_GATEWAY)).decode()
        return values(text)


def values(text: str) -> dict[str, float]:
    """The value of each series by its name with its labels, as they are written."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}


class Slow(FakeRunner):
    """Takes three seconds, by the clock of its world."""

    world: World

    async def run(self, call: Any, begin: Any = None) -> Any:
        found = await super().run(call, begin)
        self.world.clock.pass_by(3)
        return found


@pytest.mark.parametrize(
    ("verdict", "labels"),
    [
        (ToolOutcome("ok", text="done"), 'agentic_outcome="ok",error_type=""'),
        (failed("not_found", "no", retryable=False), 'agentic_outcome="error",error_type="not_found"'),
        (failed("timeout", "late", retryable=False), 'agentic_outcome="timeout",error_type="timeout"'),
    ],
)
async def test_a_call_is_counted_by_tool_and_outcome_with_how_long_it_took_and_waited(
    verdict: ToolOutcome, labels: str
) -> None:
    runner = Slow(verdict)
    world = runner.world = Counted(runner)
    world.clock.pass_by(2)
    await world.relay().take(asked_for())
    found = await world.read()
    series = f'{{{labels.partition(",")[0]},{labels.partition(",")[2]},gen_ai_tool_name="fetch"}}'
    assert found[f"agentic_gateway_call_duration_seconds_count{series}"] == 1
    assert found[f"agentic_gateway_call_duration_seconds_sum{series}"] == 3
    assert found['agentic_gateway_call_wait_seconds_sum{gen_ai_tool_name="fetch"}'] == 2


async def test_a_gateway_at_work_exports_all_of_it_and_names_no_run(
    link: NatsLink, nats_server: EmbeddedNats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_bus(link)
    monkeypatch.setitem(ENVIRONMENT, "OTEL_METRIC_EXPORT_INTERVAL", "200")
    with receiving() as otlp:
        gateway = Gateway(tmp_path, nats_server.url, runner="in_process", telemetry={"endpoint": otlp.url})
        await send(link, a_request(tool="echo", payload={"a": 1}), "echo")
        with gateway.serving() as process:
            await until(lambda: all_acknowledged(link), within_s=30)
            await until(lambda: answers(gateway), within_s=30)
            text = httpx2.get(f"{gateway.url}/metrics", trust_env=False).text
            pushed = "agentic.gateway.call.duration"
            await until(lambda: pushed in {metric.name for service, metric in otlp.metrics if service}, within_s=30)
            process.terminate()
            process.wait(10)
    found = values(text)
    assert [name for name in EVERYTHING if not any(series.startswith(name) for series in found)] == []
    assert found['agentic_ready{agentic_check="nats"}'] == 1
    assert found["agentic_ledger_open"] == 0
    assert RUN not in text
    if promtool := shutil.which("promtool"):
        checked = partial(subprocess.run, [promtool, "check", "metrics"], input=text, text=True, capture_output=True)
        assert (await asyncio.to_thread(checked)).returncode == 0


def answers(gateway: Gateway) -> bool:
    try:
        return httpx2.get(f"{gateway.url}/readyz", trust_env=False).is_success
    except httpx2.TransportError:
        return False
