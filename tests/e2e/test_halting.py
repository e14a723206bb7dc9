"""The kill switch on the whole stack: both services stop, stay stopped through kills, and go on without loss."""

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.workbench.dev import DevStack
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from schemas import subjects
from tests.e2e.bodies import lines, on_the_bus, recording, running, to_the_end, touch, view, wake
from tests.kit.waiting import until

pytestmark = pytest.mark.attack(108)


async def call(made: DevStack, path: str, **body: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False, timeout=20) as client:
        return await client.post(path, json=body)


async def look(made: DevStack, path: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False, timeout=20) as client:
        return await client.get(path)


async def answers(made: DevStack) -> bool:
    try:
        return (await look(made, "/healthz")).is_success
    except httpx2.TransportError:
        return False


async def has_recorded(made: DevStack, run_id: str) -> bool:
    entries = (await look(made, f"/v1/runs/{run_id}/entries")).json()["entries"]
    return any(entry["kind"] == "ToolReturned" for entry in entries)


async def test_nothing_begins_until_somebody_lets_it_go_on_also_after_kills(tmp_path: Path) -> None:
    file, go = tmp_path / "marks" / "lines", tmp_path / "marks" / "go"
    async with running(tmp_path / "stack", recording(file, go=go)) as made:
        run_id = await wake(made)
        await until(file.exists)
        stopped = (await call(made, "/v1/stop-all", reason="it mails everybody", by="ann")).json()
        touch(go, 1)
        await until(partial(has_recorded, made, run_id))
        made.agent.kill()
        made.gateway.kill()
        await until(partial(answers, made))
        refused = await call(made, "/v1/wake", goal="record")
        readiness = await look(made, "/readyz")
        shown = await view(made, run_id)
        why = (await look(made, f"/v1/runs/{run_id}/why")).json()
        asked = await on_the_bus(made, subjects.ALL_TOOL_REQUESTS)
        touch(go, 2)
        goes_on = (await call(made, "/v1/go-on")).json()
        ended = await to_the_end(made, run_id)
        everything = await on_the_bus(made, subjects.ALL_TOOL_REQUESTS)
    assert (stopped["stopped"], stopped["reason"], goes_on["stopped"]) == (True, "it mails everybody", False)
    assert (refused.status_code, refused.json()["error"]["code"], refused.headers["retry-after"]) == (
        503,
        "stopped",
        "30",
    )
    assert readiness.status_code == 503
    assert 'says "ann"' in readiness.json()["checks"]["halt"]
    assert shown["state"] == "running"
    assert "it mails everybody" in shown["stopped"]
    assert "it mails everybody" in why["verdict"]
    assert why["remedy"]["command"] == "agentic go-on"
    assert [request["step"] for request in asked] == [1]
    assert (ended["state"], lines(file)) == ("done", 2)
    assert [request["step"] for request in everything] == [1, 2]


async def test_the_gateway_begins_no_call_that_waits_for_it(tmp_path: Path) -> None:
    """A write that was on the bus when everything was stopped: the gateway was asleep then."""
    file = tmp_path / "marks" / "lines"
    async with running(tmp_path / "stack", recording(file)) as made:
        gateway = made.gateway.pid
        assert gateway
        os.kill(gateway, signal.SIGSTOP)
        run_id = await wake(made)
        await until(partial(_is_asked_for, made))
        await call(made, "/v1/stop-all")
        os.kill(gateway, signal.SIGCONT)
        waiting: list[dict[str, Any]] = []

        async def told() -> bool:
            waiting[:] = (await status(made))["waiting"]
            return bool(waiting)

        await until(told, within_s=30)
        assert not file.exists()
        assert "everything is stopped" in waiting[0]["why"]
        await call(made, "/v1/go-on")
        assert (await to_the_end(made, run_id))["state"] == "done"
    assert lines(file) == 2


async def _is_asked_for(made: DevStack) -> bool:
    return bool(await on_the_bus(made, subjects.ALL_TOOL_REQUESTS))


async def status(made: DevStack) -> Any:
    link = await connect(NatsSettings(urls=(made.nats.url,)))
    try:
        return await asyncio.to_thread(_parsed, await link.request(subjects.STATUS, b""))
    finally:
        await link.close()


def _parsed(body: bytes) -> Any:
    return httpx2.Response(200, content=body).json()
