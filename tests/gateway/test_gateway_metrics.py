"""What the gateway counts and measures, as Prometheus reads it."""

import asyncio
import shutil
import subprocess
from functools import partial
from pathlib import Path

import httpx2
import pytest

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from tests.gateway.on_nats import a_bus, all_acknowledged, send
from tests.gateway.parts import RUN, a_request
from tests.gateway.served import ENVIRONMENT, Gateway
from tests.kit.otlp import receiving
from tests.kit.waiting import until

EVERYTHING = (
    *("agentic_ready", "agentic_gateway_call_duration_seconds_count", "agentic_gateway_call_wait_seconds_count"),
    *("agentic_gateway_calls_in_hand", "agentic_gateway_calls_waiting", "agentic_ledger_open"),
    *("agentic_retries_total", "agentic_dedupe_hits_total", "agentic_outbound_waiting", "agentic_store_writes_total"),
    *("agentic_store_commit_duration_seconds_count", "agentic_store_sync_duration_seconds_count", "target_info"),
)


def values(text: str) -> dict[str, float]:
    """The value of each series by its name with its labels, as they are written."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}


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
