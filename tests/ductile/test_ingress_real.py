"""A real Ductile whose pipeline relays to the ingress: what it signs is accepted, and what it learns of it."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ductile_gateway.clock import SystemClock
from schemas import keys
from tests.ductile.conftest import NO_BINARY
from tests.ductile.real import RealDuctile
from tests.ductile.under_test import Peer
from tests.gateway.ingress_house import INGEST, House, on_the_wire
from tests.gateway.parts import RUN
from tests.kit.waiting import until

pytestmark = pytest.mark.ductile

PEERS = {"ductile-test": {"keys": [{"id": "v1", "secret": Peer().secret}], "accept": ["report.done", "agentic.start"]}}
INSTANCE = {"name": "agentic", "enabled": True, "ingress_path": INGEST, "secret_ref": "relay", "key_id": "v1"}
RELAYS = {
    "report": {
        "to": "agentic",
        "event": "report.done",
        "with": {"title": "payload.title"},
        "baggage": {"run_id": "payload.run_id", "step": "payload.step", "tool": "payload.tool"},
    },
    "start": {
        "to": "agentic",
        "event": "agentic.start",
        "dedupe_key": "payload.order",
        "with": {"goal": "payload.title"},
    },
    "strange": {"to": "agentic", "event": "report.strange", "with": {"title": "payload.title"}},
}
SENT = {"title": "A page", "run_id": RUN, "step": 2, "tool": "fetch", "order": "agentic:start:order-7"}


@pytest.fixture
async def house() -> House:
    return House(peers=PEERS, clock=SystemClock())


@pytest.fixture
async def ductile(house: House, tmp_path: Path) -> AsyncIterator[RealDuctile]:
    """A Ductile with a pipeline for each relay step."""
    binary = os.environ.get("DUCTILE_BIN")
    if not binary:
        pytest.skip(NO_BINARY)
    async with on_the_wire(house) as port:
        instance = INSTANCE | {"base_url": f"http://127.0.0.1:{port}", "timeout": "5s"}
        pipelines = [
            {"name": name, "on": f"relay.{name}", "steps": [{"id": "relay", "relay": relay}]}
            for name, relay in RELAYS.items()
        ]
        further = {"instances.yaml": {"instances": [instance]}, "relaying.yaml": {"pipelines": pipelines}}
        running = await asyncio.to_thread(RealDuctile, binary, tmp_path, further=further)
        yield running
        await asyncio.to_thread(running.close)


async def relayed(ductile: RealDuctile, name: str) -> dict[str, Any]:
    """The job of the relay step, once it is over."""
    bearer = {"Authorization": f"Bearer {ductile.token}"}
    async with httpx2.AsyncClient(base_url=ductile.url, headers=bearer, trust_env=False) as client:
        job_id = (await client.post(f"/pipeline/{name}", json={"payload": SENT})).json()["job_id"]

        async def job() -> dict[str, Any]:
            return dict((await client.get(f"/job/{job_id}")).json())

        async def over() -> bool:
            return (await job())["status"] not in {"queued", "running"}

        await until(over, within_s=30)
        return await job()


async def test_what_a_real_ductile_signs_answers_the_step_that_its_baggage_names(
    ductile: RealDuctile, house: House
) -> None:
    job = await relayed(ductile, "report")
    assert (job["status"], job["result"]["status"]) == ("succeeded", "relayed")
    accepted = job["result"]["accepted"]
    assert (accepted["receiver_event_id"], accepted["job_id"]) == (keys.result(RUN, 2, 1), RUN)
    payload = house.events()[0]["payload"]
    assert (payload["run_id"], payload["step"], payload["tool"], payload["status"]) == (RUN, 2, "fetch", "ok")
    assert payload["result"]["title"] == "A page"


async def test_a_start_that_is_relayed_twice_is_one_start(ductile: RealDuctile, house: House) -> None:
    jobs = [await relayed(ductile, "start") for _ in range(2)]
    assert [job["status"] for job in jobs] == ["succeeded"] * 2
    assert [job["result"]["accepted"]["job_id"] for job in jobs] == ["order-7"] * 2
    assert [event["payload"]["goal"] for event in house.events()] == ["A page"]


async def test_what_is_refused_fails_the_step(ductile: RealDuctile, house: House) -> None:
    assert (await relayed(ductile, "strange"))["status"] == "failed"
    house.bus.down = True
    assert (await relayed(ductile, "report"))["status"] == "failed"
    assert house.bus.messages == []
