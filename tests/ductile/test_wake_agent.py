"""A wake starts a run: the agentic-wake plugin and the real agent."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from agent_service.workbench.dev import DevStack, stack
from agent_service.workbench.dev_settings import DevOptions
from tests.kit.stack import ENDED, PROBES, recording
from tests.kit.waiting import until
from tests.plugins.asking import SHIPPED, a_request, run

WAKE_TOKEN = "a-wake-token-for-tests-0123"  # noqa: S105 - as the next one, of an agent that lives for one test
READ_TOKEN = "a-read-token-for-tests-0123"  # noqa: S105
TOKENS = [
    {"name": "ductile", "scopes": ["wake"], "token": WAKE_TOKEN},
    {"name": "reader", "scopes": ["read"], "token": READ_TOKEN},
]


@pytest.fixture
async def made(tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[DevStack]:
    """The agent with tokens, following a script that records two lines."""
    script = tmp_path / "script.yaml"
    script.write_text(yaml.safe_dump(recording(tmp_path / "record")))
    http = {"host": "127.0.0.1", "port": unused_tcp_port, "tokens": TOKENS}
    options = DevOptions(
        folder=tmp_path / "stack",
        http_port=unused_tcp_port,
        script=script,
        plugins=(PROBES, SHIPPED),
        sync_interval="1s",
        agent={"http": http},
    )
    async with stack(options) as running:
        yield running


async def read(made: DevStack, path: str) -> Any:
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
        answer = await client.get(path, headers={"Authorization": f"Bearer {READ_TOKEN}"})
        assert answer.status_code == 200, answer.text
        return answer.json()


async def test_a_wake_starts_one_run_however_often_it_is_made(made: DevStack) -> None:
    asked = a_request({"goal": "record two lines"}, command="wake", config={"url": made.url, "token": WAKE_TOKEN})
    responses = [await asyncio.to_thread(run, SHIPPED / "agentic-wake", asked) for _ in range(3)]
    assert {response["status"] for response in responses} == {"ok"}
    (run_id,) = {response["state_updates"]["last_run_id"] for response in responses}
    assert responses[0]["output"]["status_url"] == f"{made.url}/v1/runs/{run_id}"
    found = await until(lambda: read(made, f"/v1/runs/{run_id}"), lambda run: run["state"] in ENDED, within_s=60)
    assert (found["state"], found["wake_id"]) == ("done", "ductile:job-1")
    assert len((await read(made, "/v1/runs"))["runs"]) == 1
