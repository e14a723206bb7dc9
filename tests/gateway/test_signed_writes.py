"""Where writes have to be signed, who may publish requests has nothing written, and stands in nobody's way."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ductile_gateway.bus.outgoing import NatsArtifacts, NatsBus
from ductile_gateway.store.agent_keys import PinnedKeys
from ductile_gateway.trust import Trust
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink
from schemas import keys, subjects
from schemas.events import ToolRequest
from tests.gateway.on_nats import a_bus, all_acknowledged, dead_letters, requests_of
from tests.gateway.parts import StoppedClock, World, a_request, message_of
from tests.gateway.test_trust import Agent
from tests.kit.agent_keys import AGENT, STRANGER, Signer
from tests.kit.waiting import until


class House:
    """A gateway on a bus, and who asks it."""

    def __init__(self, link: NatsLink, folder: Path) -> None:
        self.link = link
        self.agent = Agent(AGENT.told())
        self.trust = Trust(PinnedKeys(folder, StoppedClock()), self.agent)
        bucket = NatsArtifacts(ArtifactBucket(link, subjects.ARTIFACT_BUCKET))
        self.world = World(bus=NatsBus(link), artifacts=bucket)

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        requests = requests_of(self.link, self.world.relay(), trust=self.trust)
        running = asyncio.create_task(requests.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def meets_the_agent(self) -> None:
        """From now on its key is known."""
        await self.trust.check("agent.completed", b"{}", AGENT.header("agent.completed", b"{}"))

    async def ask(self, request: ToolRequest, by: Signer | None, msg_id: str = "") -> None:
        """Ask, until it is settled."""
        subject, body, headers = message_of(request)
        signed = by.headers(subject, body) if by else {}
        key = msg_id or keys.request(request.run_id, request.step, request.attempt)
        await self.link.publish(subject, body, msg_id=key, headers=headers | signed)
        await until(lambda: all_acknowledged(self.link))

    @property
    def ran(self) -> list[str]:
        """What was carried out, by command and step."""
        return [f"{call.command} {call.asked.request.step}" for call in self.world.runner.executed]


@pytest.fixture
async def house(link: NatsLink, tmp_path: Path) -> House:
    await a_bus(link)
    return House(link, tmp_path)


@pytest.mark.attack(98)
async def test_a_write_that_the_agent_did_not_sign_is_a_dead_letter_and_in_nobody_s_way(house: House) -> None:
    async with house.at_work():
        await house.ask(a_request("save", step=1), AGENT)
        await house.meets_the_agent()
        await house.ask(a_request("save", step=2, payload={"url": "http://evil.example"}), None, msg_id="forged-1")
        await house.ask(a_request("save", step=2, payload={"url": "http://evil.example"}), STRANGER, msg_id="forged-2")
        assert house.ran == ["save 1"]
        assert len(await dead_letters(house.link)) == 2
        await house.ask(a_request("save", step=2), AGENT)
        assert house.ran == ["save 1", "save 2"]


@pytest.mark.attack(98)
async def test_the_signature_of_another_request_is_none(house: House) -> None:
    await house.meets_the_agent()
    subject, body, _ = message_of(a_request("save", step=1))
    async with house.at_work():
        other, other_body, headers = message_of(a_request("save", step=2))
        taken = {**headers, **AGENT.headers(subject, body)}
        await house.link.publish(other, other_body, msg_id="forged", headers=taken)
        await until(lambda: all_acknowledged(house.link))
    assert house.ran == []


async def test_reads_need_no_signature_and_writes_wait_while_no_key_is_known(house: House) -> None:
    house.agent.away = True
    async with house.at_work():
        await house.ask(a_request("handle", step=1), None)
        subject, body, headers = message_of(a_request("save", step=2))
        signed = headers | AGENT.headers(subject, body)
        await house.link.publish(subject, body, msg_id="save", headers=signed)
        await until(lambda: house.agent.asked)
        assert house.ran == ["handle 1"]
        house.agent.away = False
        await until(lambda: all_acknowledged(house.link))
    assert house.ran == ["handle 1", "save 2"]
