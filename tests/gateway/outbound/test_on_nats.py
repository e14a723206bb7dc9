"""Endings of runs on a real bus: what cannot be told is a dead letter, and what the agent did not say goes nowhere."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from agent_service.bus.topology import topology
from ductile_gateway.bus.outgoing import NatsAgentKeys
from ductile_gateway.clock import SystemClock
from ductile_gateway.company import Alone
from ductile_gateway.outbound.service import serve_outbound
from ductile_gateway.outbound.settings import OutboundSettings
from ductile_gateway.status import Status
from ductile_gateway.store.agent_keys import PinnedKeys
from ductile_gateway.store.stores import Stores
from ductile_gateway.trust import Trust
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from schemas import subjects
from schemas.signing import AgentKeys
from schemas.status import Finding
from tests.gateway.outbound.kit import SECRET, Receiver, an_event
from tests.gateway.parts import opened
from tests.kit.agent_keys import AGENT, STRANGER, Signer
from tests.kit.waiting import until


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await create_missing(link, topology(max_gib=1))
    return link


async def fine() -> list[Finding]:
    return [Finding(name="test", mark="ok", text="as it should be")]


class Telling:
    """A gateway with one subscription, to the receiver."""

    def __init__(self, folder: Path, link: NatsLink, receiver: Receiver) -> None:
        network = {"allow_private": True, "allow_http": True, "ports": [receiver.port]}
        one = {"url": f"http://127.0.0.1:{receiver.port}/", "secret": SECRET, "network": network}
        told = {"subscriptions": {"one": one}, "callbacks": {"secret": SECRET}, "agent_keys": [AGENT.public]}
        self.settings = OutboundSettings.model_validate(told)
        self.folder = folder
        self.link = link
        self.status = Status({"test": fine}, version="1")

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        clock, told = SystemClock(), partial(Stores.embedded, folder=self.folder, run_bytes=0)
        async with opened(self.folder, told) as stores:
            pins, asked = PinnedKeys(self.folder, clock), NatsAgentKeys(self.link)
            trust = Trust(pins, asked, given=self.settings.agent_keys)
            self.status.also("agent's word", trust.findings)
            serving = serve_outbound(
                self.settings,
                self.link,
                stores,
                trust=trust,
                clock=clock,
                status=self.status,
                told=lambda *_: None,
                company=Alone(),
            )
            running = asyncio.create_task(serving)
            try:
                yield
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running

    async def says(self, part: str) -> bool:
        """Whether there is this to say of what goes out."""
        return any(part in finding.text for finding in (await self.status.tell()).findings)


async def say(link: NatsLink, event: Any, by: Signer | None = AGENT) -> None:
    body = json.dumps(event).encode()
    headers = by.headers(event["type"], body) if by else {}
    await link.publish(event["type"], body, msg_id=event["dedupe_key"], headers=headers)


async def dead_letter(link: NatsLink) -> dict[str, str]:
    """The headers of the newest, once there is one."""

    async def there() -> bool:
        return (await link.jetstream.stream_info(subjects.STREAM_DEAD_LETTERS)).state.messages > 0

    await until(there)
    letter = await link.jetstream.get_last_msg(subjects.STREAM_DEAD_LETTERS, subjects.DEAD_LETTERS_OUTBOUND)
    return letter.headers or {}


async def test_a_callback_into_a_private_network_is_a_dead_letter_with_the_reason(
    tmp_path: Path, bus: NatsLink, receiver: Receiver
) -> None:
    async def answer(question: Msg) -> None:
        await question.respond(json.dumps({"callback": "https://127.0.0.1/secret-token"}).encode())

    telling = Telling(tmp_path, bus, receiver)
    async with telling.at_work():
        await bus.subscribe(subjects.RUN_CALLBACK, answer)
        await say(bus, an_event(has_callback=True))
        letter = await dead_letter(bus)
        await until(lambda: telling.says("1 deliveries were given up in the last 15 days"))
    assert letter["Dead-Letter-Target"] == "callback"
    assert "127.0.0.1 is not a public address" in letter["Dead-Letter-Reason"]
    assert "secret-token" not in json.dumps(letter)


@pytest.mark.attack(98)
async def test_who_may_publish_endings_has_none_of_its_own_sent_on(
    tmp_path: Path, bus: NatsLink, receiver: Receiver
) -> None:
    async def answer(question: Msg) -> None:
        await question.respond(AgentKeys(keys=(AGENT.told(),)).model_dump_json().encode())

    telling = Telling(tmp_path, bus, receiver)
    telling.settings = telling.settings.model_copy(update={"agent_keys": ()})
    async with telling.at_work():
        await say(bus, an_event(run_id="run_1", has_callback=True), by=None)
        await until(lambda: telling.says("no agent has told the keys that it signs with"))
        await bus.subscribe(subjects.AGENT_KEYS, answer)
        await say(bus, an_event(run_id="run_2", has_callback=True), by=STRANGER)
        await say(bus, an_event(run_id="run_3"))
        await until(lambda: len(receiver.requests) >= 1)
        await until(lambda: telling.says("2 messages since the start were not the agent's word"))
        letter = await dead_letter(bus)
        rejected = await bus.jetstream.get_last_msg(subjects.STREAM_DEAD_LETTERS, subjects.REJECTED)
    assert [json.loads(request.body)["data"]["run_id"] for request in receiver.requests] == ["run_3"]
    assert "not said by the agent" in letter["Dead-Letter-Reason"]
    assert json.loads(rejected.data or b"")["payload"]["subject"] == "agent.completed"
