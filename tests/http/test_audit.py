"""Who asked is in the journal: what is known of a caller, and what it says of itself as no more than that."""

import json
import os
from pathlib import Path
from typing import Any

import httpx2
import nats
import pytest

from agent_service.api.micro_service import serve_on_bus
from agent_service.core.events import CancelRequested, SignalReceived, WakeAccepted
from groundwork.nats.link import connect
from groundwork.nats.micro_service import INFO
from groundwork.nats.settings import NatsSettings
from groundwork.service.process import user_name
from schemas import subjects
from tests.http.house import House, bearer, serving
from tests.kit.bus import server_with

ME = f"os user {user_name(os.getuid())}"
SECRET = os.urandom(8).hex()
WAKE = f"{subjects.SERVICE_AGENT}.wake"


async def who(house: House, run_id: str) -> list[str]:
    """By entry of the run's journal."""
    events = [entry.decoded() for entry in await house.store.entries(run_id)]
    return [event.by for event in events if isinstance(event, WakeAccepted | CancelRequested | SignalReceived)]


async def a_run(client: httpx2.AsyncClient, **more: Any) -> str:
    run_id: str = (await client.post("/v1/wake", json={"goal": "x", **more})).json()["run_id"]
    return run_id


async def test_who_woke_spoke_and_cancelled_is_the_token_and_the_os_user(house: House) -> None:
    async with serving(house.app) as port, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        client.headers.update(bearer("admin"))
        run_id = await a_run(client)
        client.headers.update(bearer("controller"))
        await client.post(f"/v1/runs/{run_id}/signals", json={"kind": "message", "message": "hurry"})
        await client.post(f"/v1/runs/{run_id}/cancel", json={})
    assert await who(house, run_id) == [f"token admin, {ME}", *[f"token controller, {ME}"] * 2]


async def test_a_callers_own_word_is_quoted_and_cannot_pass_for_what_is_known(house: House) -> None:
    async with house.client("admin") as client:
        run_id = await a_run(client, by='ann", token root, "x\nos user root')
    assert await who(house, run_id) == ['token admin, says "ann ; token root; x os user root"']


async def test_a_refusal_is_logged_with_the_token_that_was_refused(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="agent_service")
    for token in ("reader", "stranger"):
        async with house.client(token) as client:
            await client.post("/v1/wake", json={"goal": "x"})
    refused = [(vars(record)["status"], vars(record)["caller"]) for record in caplog.records]
    assert refused == [(403, "reader"), (401, None)]


async def test_over_the_bus_it_is_whom_nats_names_and_no_header_of_the_callers(
    tmp_path: Path, unused_port: int, house: House
) -> None:
    """A server names users of other accounts, where the import says so, and strikes out what they say themselves."""
    theirs = {"service": {"account": "AGENT", "subject": f"{subjects.SERVICE_AGENT}.>"}}
    accounts = {
        "AGENT": {
            "users": [{"user": "agent", "password": SECRET}],
            "exports": [{"service": f"{subjects.SERVICE_AGENT}.>"}],
        },
        "SHOP": {"users": [{"user": "ann", "password": SECRET}], "imports": [theirs | {"share": True}]},
        "BANK": {"users": [{"user": "ben", "password": SECRET}], "imports": [theirs]},
    }
    forged = {INFO: json.dumps({"acc": "ROOT", "user": "root"})}
    async with server_with(tmp_path, unused_port, {"accounts": accounts}) as address:
        link = await connect(NatsSettings(urls=(f"nats://agent:{SECRET}@{address}",)))
        await serve_on_bus(link, house.desk, house.signing, house.switch)
        found = {}
        for user in ("ann", "ben", "agent"):
            caller = await nats.connect(f"nats://{user}:{SECRET}@{address}")
            body = json.dumps({"goal": "x", "by": user}).encode()
            answer = json.loads((await caller.request(WAKE, body, headers=forged, timeout=5)).data)
            (found[user],) = await who(house, answer["run_id"])
            await caller.close()
        await link.close()
    assert found == {
        "ann": 'bus user ann of SHOP, says "ann"',
        "ben": 'bus of BANK, says "ben"',
        "agent": 'bus, says "agent"',
    }
