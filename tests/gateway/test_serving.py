"""The gateway as a process: started by its command line, stopped, killed and taken over, asked how it is, and told
apart from a misconfigured one."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.bus.prerequisites import ROLE
from ductile_gateway.probes.http import create_app
from ductile_gateway.probes.server import Readiness
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.leases.lease import look
from groundwork.nats.link import NatsLink
from schemas import subjects
from tests.gateway.on_nats import a_bus, all_acknowledged, results, send
from tests.gateway.parts import RUN, a_request
from tests.gateway.served import ENVIRONMENT, ROOT, Gateway, ending, lines
from tests.kit.otlp import receiving
from tests.kit.waiting import until


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await a_bus(link, ack_wait=2)
    return link


async def record(bus: NatsLink, folder: Path, *, step: int = 1) -> None:
    """Ask for a write that adds a line to a file, and ends once there is a file `go`."""
    payload = {"file": str(folder / "marks" / "ran"), "wait_for": str(folder / "marks" / "go")}
    await send(bus, a_request("record", payload, tool="probe", step=step), "probe")


async def endings(bus: NatsLink) -> list[str]:
    """Of all calls, once they are settled."""
    await until(lambda: all_acknowledged(bus), within_s=30)
    return [ending(result) for result in await results(bus)]


async def test_a_call_outlives_a_stop_a_kill_and_a_take_over_of_its_gateway_and_runs_once(
    bus: NatsLink, tmp_path: Path, nats_server: EmbeddedNats
) -> None:
    gateway = Gateway(tmp_path, nats_server.url, grace_s=0.2, lease_s=1)
    await record(bus, tmp_path)
    with gateway.serving() as stopped:
        await until(lambda: lines(tmp_path / "marks" / "ran"), within_s=30)
        stopped.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(stopped.wait, 10) == 0
    with gateway.serving() as killed:
        await until(lambda: gateway.starts() == 2, within_s=30)
        second = await asyncio.to_thread(gateway.run, "serve")
        assert (second.returncode, f"process {killed.pid}" in second.stderr) == (78, True)
        killed.kill()
        killed.wait()
    with gateway.serving() as blue:
        await until(lambda: gateway.starts() == 3, within_s=30)
        with gateway.serving("--take-over"):
            assert await asyncio.to_thread(blue.wait, 20) == 78
            (tmp_path / "marks" / "go").touch()
            assert await endings(bus) == ["ok"]
    assert lines(tmp_path / "marks" / "ran") == 1


async def test_a_gateway_that_was_stopped_for_longer_than_its_lease_starts_nothing_and_its_write_is_in_doubt(
    bus: NatsLink, nats_server: EmbeddedNats, tmp_path: Path
) -> None:
    async def has_expired() -> bool:
        found = await look(bus, ROLE)
        return found is not None and found.free

    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    first, second = (
        Gateway(folder, nats_server.url, marks=tmp_path / "marks", lease_s=1, concurrency=1) for folder in folders
    )
    await record(bus, tmp_path)
    with first.serving() as sleeper:
        await until(lambda: lines(tmp_path / "marks" / "ran"), within_s=30)
        refused = await asyncio.to_thread(second.run, "serve")
        assert (refused.returncode, str(folders[0]) in refused.stderr) == (78, True)
        os.kill(sleeper.pid, signal.SIGSTOP)
        await until(has_expired)
        for step in (2, 3):  # it had asked for them before
            await record(bus, tmp_path, step=step)
        (tmp_path / "marks" / "go").touch()
        with second.serving():
            await until(lambda: second.starts() == 1, within_s=30)
            os.kill(sleeper.pid, signal.SIGCONT)
            assert await asyncio.to_thread(sleeper.wait, 20) == 78
            assert sorted(await endings(bus)) == ["in_doubt", "ok", "ok"]
    assert lines(tmp_path / "marks" / "ran") == 3


async def test_after_its_stream_was_made_anew_it_gives_its_newest_results_again_and_takes_requests(
    bus: NatsLink, tmp_path: Path, nats_server: EmbeddedNats
) -> None:
    async def has_results(number: int) -> bool:
        return len(await results(bus)) == number

    await record(bus, tmp_path)
    gateway = Gateway(tmp_path, nats_server.url)
    (tmp_path / "marks" / "go").touch()
    with gateway.serving():
        assert await endings(bus) == ["ok"]
        first = await results(bus)
        await bus.jetstream.delete_stream(subjects.STREAM_RESULTS)
        await a_bus(bus, ack_wait=2)
        await until(lambda: has_results(1), within_s=10)
        assert await results(bus) == first
        await record(bus, tmp_path, step=2)
        await until(lambda: has_results(2), within_s=10)
    assert lines(tmp_path / "marks" / "ran") == 2


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tools": {"fetch": None}}, "there is no plugin fetch"),
        ({"tools": ["probe", "agentic-wake"]}, "start an agent"),
        ({"plugins": {"folders": []}}, "gateway.plugins.folders"),
        ({"plugins": {"folders": ["/nowhere"]}}, "/nowhere"),
        ({"slot": 3}, "did you mean slots"),
        ({"tools": {"probe": {"timeout": 3}}}, "timeout_s"),
    ],
)
def test_the_check_fails_and_names_what_is_wrong(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    checked = Gateway(tmp_path, "nats://127.0.0.1:1", **settings).run("check")
    assert (checked.returncode != 0, told in checked.stdout + checked.stderr) == (True, True)


async def test_what_is_wrong_is_named_and_all_else_is_ok() -> None:
    async def counted() -> bytes:
        return b"agentic_x_total 1\n"

    ductile = ["nothing answers", ""]
    readiness = Readiness()
    readiness.needs("nats", lambda: "")
    readiness.needs("ductile", lambda: ductile[0])
    app = create_app(readiness, counted, ["localhost"])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://10.1.2.3:9") as client:
        answer = await client.get("/readyz")
        told = {"ready": False, "checks": {"nats": "ok", "ductile": "nothing answers"}}
        assert (answer.status_code, answer.json()) == (503, told)
        ductile.pop(0)
        assert (await client.get("/readyz")).json()["ready"] is True
        assert (await client.get("/healthz")).json() == {"alive": True}


EVERYTHING = """
    agentic_ready agentic_gateway_call_duration_seconds_count agentic_gateway_call_wait_seconds_count
    agentic_gateway_calls_in_hand agentic_gateway_calls_waiting agentic_ledger_open agentic_retries_total
    agentic_dedupe_hits_total agentic_outbound_waiting agentic_store_writes_total
    agentic_store_commit_duration_seconds_count agentic_store_sync_duration_seconds_count target_info
"""


async def test_a_gateway_at_work_exports_all_of_it_names_no_run_and_tells_an_outage_of_the_bus_once(
    bus: NatsLink, nats_server: EmbeddedNats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def checks() -> dict[str, str]:
        async with httpx2.AsyncClient(base_url=gateway.url, trust_env=False) as client:
            try:
                answer = await client.get("/readyz")
            except httpx2.TransportError:
                return {}
        told: dict[str, Any] = answer.json()
        assert (answer.status_code == 200) is told["ready"]
        found: dict[str, str] = told["checks"]
        return found

    async def is_ready() -> bool:
        return set((await checks()).values()) == {"ok"}

    async def is_away() -> bool:
        return "not connected" in (await checks()).get("nats", "")

    monkeypatch.setitem(ENVIRONMENT, "OTEL_METRIC_EXPORT_INTERVAL", "200")
    with receiving() as otlp:
        telemetry = {"endpoint": otlp.url}
        gateway = Gateway(tmp_path, nats_server.url, runner="in_process", telemetry=telemetry, lease_s=60)
        await send(bus, a_request(tool="echo", payload={"a": 1}), "echo")
        with gateway.serving():
            assert await endings(bus) == ["ok"]
            await until(is_ready, within_s=30)
            assert set(await checks()) == {"nats", "store", "tools", "requests"}
            text = httpx2.get(f"{gateway.url}/metrics", trust_env=False).text
            pushed = "agentic.gateway.call.duration"
            await until(lambda: pushed in {metric.name for service, metric in otlp.metrics if service}, within_s=30)
            nats_server.kill()
            await until(is_away, within_s=30)
            await until(lambda: "NATS is away" in gateway.log.read_text(), within_s=30)
            await nats_server.start()
            await until(is_ready, within_s=30)
    series = [line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#")]
    found = {name: float(value) for name, _, value in series}
    assert [name for name in EVERYTHING.split() if not any(one.startswith(name) for one in found)] == []
    assert (found['agentic_ready{agentic_check="nats"}'], found["agentic_ledger_open"], RUN in text) == (1, 0, False)
    told = [
        line for line in map(json.loads, gateway.log.read_text().splitlines()) if "outage" in str(line.get("event"))
    ]
    outages = [(line["level"], line["event"], bool(line["why"])) for line in told]
    assert outages == [("WARNING", "outage_began", True), ("WARNING", "outage_over", True)]
    if promtool := shutil.which("promtool"):
        checked = partial(subprocess.run, [promtool, "check", "metrics"], input=text, text=True, capture_output=True)
        assert (await asyncio.to_thread(checked)).returncode == 0


LATER = {"fastapi", "starlette", "uvicorn", "jinja2", "typer", "rich", "ductile_gateway.ingress.http"}


def test_a_gateway_has_not_loaded_what_takes_events_from_outside_before_its_calls_go_on() -> None:
    probe = (
        "import sys; from ductile_gateway.__main__ import _loaded; _loaded(['serve']); import ductile_gateway.app;"
        " print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ("ductile_gateway.calls.relay" in done.stdout, set(done.stdout.split()) & LATER) == (True, set())
