"""A running stack to which everything happens that is measured: all endings, retries, duplicates, dead letters."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from agent_service.workbench.dev import DevOptions, DevStack, free_port, stack
from groundwork.nats import link as nats_link
from groundwork.nats.settings import NatsSettings
from schemas import subjects
from tests.ductile.fake import FakeDuctile
from tests.ductile.fake.behaviours import Behaviour, Outcome, answers, fails
from tests.ductile.under_test import Execution, Peer
from tests.kit.waiting import until

ECHO, PROBE = Path("deploy/ductile/plugins/echo"), Path("tests/plugins/probe")
SCRIPT = Path(__file__).with_name("story.yaml")
LATE_S = 2.0
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


@contextmanager
def ductile() -> Iterator[FakeDuctile]:
    """With the two tools of the story; one fails so that Ductile tries it again, or answers when its run has ended."""
    cancelled = threading.Event()

    def late(execution: Execution) -> Outcome:
        cancelled.wait(LATE_S)
        return answers("late")(execution)

    with FakeDuctile(peer=Peer(accepts=("agent.completed",))) as fake:
        for plugin in (ECHO, PROBE):
            fake.plugin(plugin)
        fake.on("echo", "handle", answers("said"))
        misbehaves: dict[str, Behaviour] = {"stumble": fails(retry=True, error_class="transient"), "hang": late}
        fake.on("probe", "misbehave", lambda execution: misbehaves[execution.payload["how"]](execution))
        yield fake
        cancelled.set()


@asynccontextmanager
async def observed_stack(folder: Path, *, agent: Mapping[str, Any] | None = None) -> AsyncIterator[DevStack]:
    """Both services, a Ductile that is told of endings, and a webhook. `agent`: further settings of its section."""
    with ductile() as fake:
        options = DevOptions(
            folder=folder,
            script=SCRIPT,
            plugins=(),
            sync_interval="1s",
            agent={"limits": {"retry_base_s": 0.05}, **(agent or {})},
            gateway=_gateway(fake),
        )
        async with stack(options) as made:
            yield made


def _gateway(fake: FakeDuctile) -> dict[str, Any]:
    relay = {"url": fake.url, "peer": fake.peer.name, "key_id": fake.peer.key_id, "secret": fake.peer.secret}
    to_start = {"to": "agentic.start", "goal": "fine"}
    hook = {"scheme": "github", "keys": [{"secret": "a-secret-shared-with-nobody"}], "events": {"*": to_start}}
    return {
        "runner": "ductile",
        "ductile": {"url": fake.url, "token": fake.token, "poll_first_s": 0.05, "poll_most_s": 0.5},
        "tools": {"echo": {}, "probe": {"commands": ["misbehave"]}},
        "ingress": {"port": free_port(), "webhooks": {"story": hook}},
        "outbound": {"relay": {**relay, "types": ["agent.completed"]}},
    }


def gateway_url(made: DevStack) -> str:
    """Where its probes are answered."""
    http = _settings_of_the_gateway(made)["http"]
    return f"http://{http['host']}:{http['port']}"


def _settings_of_the_gateway(made: DevStack) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(made.config.read_text())["gateway"]
    return settings


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
    """A start by the bus, and one that nobody can read; an event without a signature."""
    hook = f"http://127.0.0.1:{_settings_of_the_gateway(made)['ingress']['port']}/webhooks/story"
    async with httpx2.AsyncClient(trust_env=False) as client:
        assert (await client.post(hook, json={})).status_code >= 400
    link = await nats_link.connect(NatsSettings(urls=(made.nats.url,)), name="story")
    try:
        start = json.dumps({"type": subjects.START, "payload": {"goal": "fine"}}).encode()
        await link.publish(subjects.START, start, msg_id=f"agentic:start:by-bus-{round_}", headers={})
        await link.publish(subjects.START, b"no JSON", msg_id=f"agentic:start:garbage-{round_}", headers={})
    finally:
        await link.close()
