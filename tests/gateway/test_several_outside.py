"""Several gateways and the world outside: what comes in is one event, whichever of them it is posted to and how often;
what goes out is sent once for each key, and by another where the first is killed."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.workbench.dev import free_port
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from tests.gateway.fleet import Fleet, fleet
from tests.gateway.ingress_house import INGEST, PEERS, an_event, signed
from tests.gateway.on_nats import results
from tests.gateway.outbound_parts import SECRET, Receiver
from tests.gateway.outbound_parts import an_event as an_ending
from tests.kit.agent_keys import AGENT
from tests.kit.waiting import until

RUNS = 20


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver().listening() as receiver:
        yield receiver


@pytest.fixture
async def ships(tmp_path: Path, link: NatsLink, nats_server: EmbeddedNats, receiver: Receiver) -> AsyncIterator[Fleet]:
    network = {"allow_private": True, "allow_http": True, "ports": [receiver.port]}
    one = {"url": f"http://127.0.0.1:{receiver.port}/", "secret": SECRET, "network": network}
    outbound = {"subscriptions": {"one": one}, "agent_keys": [AGENT.public]}
    async with fleet(tmp_path, link, nats_server.url, outbound=outbound) as ships:
        yield ships


def listening() -> tuple[int, dict[str, Any]]:
    port = free_port()
    return port, {"port": port, "peers": PEERS}


async def post(port: int, event: dict[str, Any]) -> int:
    body = json.dumps(event).encode()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    async with httpx2.AsyncClient(trust_env=False) as client:
        with contextlib.suppress(httpx2.TransportError):
            url = f"http://127.0.0.1:{port}{INGEST}"
            return (await client.post(url, content=body, headers=signed(body, timestamp=now))).status_code
    return 0


async def answers(port: int) -> bool:
    """Whether it was taken: else it is sent again, as every sender does."""
    return await post(port, an_event()) == 202


async def test_an_event_that_is_posted_to_each_of_them_at_the_same_time_and_again_is_one_message(
    ships: Fleet, link: NatsLink
) -> None:
    (first, ours), (second, theirs) = listening(), listening()
    with ships.serving("one", ingress=ours), ships.serving("two", ingress=theirs):
        await ships.ready("one")
        await ships.ready("two")

        senders = [partial(answers, port) for port in (first, second) * 10]
        await asyncio.gather(*(until(sender, within_s=30) for sender in senders))
    assert len(await results(link)) == 1


async def say(link: NatsLink, number: int) -> None:
    event = an_ending(run_id=f"run_{number}")
    body = json.dumps(event).encode()
    await link.publish(
        event["type"], body, msg_id=event["dedupe_key"], headers=dict(AGENT.headers(event["type"], body))
    )


def ids(receiver: Receiver) -> list[str]:
    return [request.headers["webhook-id"] for request in receiver.requests]


async def test_what_a_gateway_that_was_killed_had_taken_is_told_by_another(
    ships: Fleet, link: NatsLink, receiver: Receiver
) -> None:
    receiver.answer = b"HTTP/1.1 503 Not now\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n"
    with ships.serving("one") as first:
        await ships.ready("one")
        for number in range(RUNS):
            await say(link, number)
        await until(lambda: len(set(ids(receiver))) == RUNS, within_s=30)
        with ships.serving("two"):
            await ships.ready("two")
            first.kill()
            first.wait()
            receiver.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
            tried = len(receiver.requests)
            await until(lambda: len(set(ids(receiver)[tried:])) == RUNS, within_s=60)
    assert len(ids(receiver)) - tried == RUNS
