"""A running stack to which everything happens that is measured: all endings, retries, duplicates, dead letters."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from agent_service.workbench.dev import DevOptions, DevStack, stack
from groundwork.nats import link as nats_link
from groundwork.nats.settings import NatsSettings
from schemas import subjects
from tests.kit.waiting import until

PLUGINS = (Path(__file__).resolve().parent.parent / "plugins", Path("deploy/ductile/plugins").resolve())
SCRIPT = Path(__file__).with_name("story.yaml")
ENDINGS = {
    "fine": "done",
    "overloaded at first": "done",
    "unusable at first": "done",
    "stuck": "escalated",
    "flaky": "escalated",
    "no model": "failed",
    "spent": "paused",
}
"""Goals, and the state in which each run comes to rest."""


@asynccontextmanager
async def observed_stack(folder: Path, *, agent: Mapping[str, Any] | None = None) -> AsyncIterator[DevStack]:
    """`agent`: further settings of its section."""
    options = DevOptions(
        folder=folder,
        script=SCRIPT,
        plugins=PLUGINS,
        sync_interval="1s",
        agent={"limits": {"retry_base_s": 0.05}, **(agent or {})},
    )
    async with stack(options) as made:
        yield made


def gateway_url(made: DevStack) -> str:
    http = json.loads(made.config.read_text())["gateway"]["http"]
    return f"http://{http['host']}:{http['port']}"


async def play(made: DevStack, round_: int = 1) -> None:
    """Once around; returns when all runs rest."""
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False, timeout=30) as client:
        for goal in ENDINGS:
            for _ in range(2):  # the second names the run of the first
                answer = await client.post(
                    "/v1/wake", json={"goal": goal, "wake_id": f"{goal}-{round_}".replace(" ", "-")}
                )
                assert answer.status_code == 202, answer.text
        await client.post("/v1/wake", json={"goal": "other", "wake_id": f"fine-{round_}"})
        cancelled = (await client.post("/v1/wake", json={"goal": "slow"})).json()["run_id"]
        await asyncio.gather(_send_what_is_refused(made, round_), *(_rests(client, goal, round_) for goal in ENDINGS))
        await client.post(f"/v1/runs/{cancelled}/cancel", json={"reason": "seen enough"})


async def _rests(client: httpx2.AsyncClient, goal: str, round_: int) -> None:
    answer = await client.post("/v1/wake", json={"goal": goal, "wake_id": f"{goal}-{round_}".replace(" ", "-")})
    run_id = answer.json()["run_id"]

    async def is_there() -> bool:
        return bool((await client.get(f"/v1/runs/{run_id}")).json()["state"] == ENDINGS[goal])

    await until(is_there, within_s=30, otherwise=lambda: f"the run that is to {goal} does not rest")


async def _send_what_is_refused(made: DevStack, round_: int) -> None:
    """A start by the bus, and one that nobody can read."""
    link = await nats_link.connect(NatsSettings(urls=(made.nats.url,)), name="story")
    try:
        start = json.dumps({"type": subjects.START, "payload": {"goal": "fine"}}).encode()
        await link.publish(subjects.START, start, msg_id=f"agentic:start:by-bus-{round_}", headers={})
        await link.publish(subjects.START, b"no JSON", msg_id=f"agentic:start:garbage-{round_}", headers={})
    finally:
        await link.close()
