"""The gateway on a real bus: requests in, results out, and writes that the agent did not sign made by nobody."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agent_service.bus.gateway import NatsCallbacks
from ductile_gateway.bus.micro_service import serve_questions
from ductile_gateway.bus.outgoing import NatsArtifacts, NatsBus
from ductile_gateway.bus.prerequisites import ack_wait, require
from ductile_gateway.calls.call import Answer, ProducedArtifact, ToolOutcome
from ductile_gateway.store.agent_keys import PinnedKeys
from ductile_gateway.trust import Trust
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import BucketSpec, Topology, create_missing
from groundwork.service.errors import Broken, Misconfigured
from schemas import keys, subjects
from schemas.events import Envelope, Rejected
from schemas.status import Finding, GatewayStatus
from tests.gateway.on_nats import a_bus, all_acknowledged, consuming, dead_letters, requests_of, results, send
from tests.gateway.parts import NOON, RUN, FakeRunner, MemoryLedger, World, a_request, message_of
from tests.gateway.test_trust import Agent
from tests.kit.agent_keys import AGENT, STRANGER, Signer
from tests.kit.fakes import FakeClock
from tests.kit.waiting import until


def a_world(link: NatsLink, **parts: Any) -> World:
    return World(bus=NatsBus(link), artifacts=NatsArtifacts(ArtifactBucket(link, subjects.ARTIFACT_BUCKET)), **parts)


async def test_a_request_that_was_published_twice_has_one_result_and_one_that_is_refused_tells_who_asked(
    link: NatsLink,
) -> None:
    await a_bus(link)
    subject, body, headers = message_of(a_request())
    for msg_id in ("one", "two"):
        await link.publish(subject, body, msg_id=msg_id, headers=headers)
    await link.publish(subject, body.replace(b'"tool":"fetch"', b'"tool":"FETCH"'), msg_id="theirs", headers={})
    world = a_world(link)
    async with consuming(link, world.relay()):
        await until(lambda: all_acknowledged(link))
    assert (len(world.runner.executed), len(await results(link))) == (1, 1)
    message = await link.jetstream.get_last_msg(subjects.STREAM_DEAD_LETTERS, subjects.REJECTED)
    told = Envelope[Rejected].model_validate_json(message.data or b"").payload
    assert (told.subject, told.run_id, told.step) == (subject, RUN, 1)
    assert (told.msg_id, told.repeat_as, "payload.tool" in told.reason) == ("theirs", "theirs#2", True)


async def test_what_finds_no_room_in_the_bucket_ends_the_step_at_once_with_the_remedy(link: NatsLink) -> None:
    await create_missing(link, Topology(buckets=(BucketSpec(subjects.ARTIFACT_BUCKET, {"max_bytes": 1 << 16}),)))
    await a_bus(link)
    large = ProducedArtifact("page.html", "text/html", b"well " * 40_000)
    await send(link, a_request())
    async with consuming(link, a_world(link, runner=FakeRunner(ToolOutcome("ok", artifacts=(large,)))).relay()):
        await until(lambda: all_acknowledged(link))
    (result,) = await results(link)
    assert result.error is not None
    assert (result.error.error_class, result.error.retryable) == ("storage_full", False)
    for part in ("the tool has run", f"`nats stream edit OBJ_{subjects.ARTIFACT_BUCKET} --max-bytes=SIZE`"):
        assert part in result.error.message


async def fine() -> GatewayStatus:
    return GatewayStatus(version="1", findings=(Finding(name="gateway", mark="ok", text="as it should be"),))


async def test_a_server_that_was_not_set_up_is_named_with_the_remedy(link: NatsLink) -> None:
    with pytest.raises(Misconfigured, match=r"stream AGENTIC.*consumer tools.*agentic setup"):
        await require(link)
    await a_bus(link)
    await require(link)
    assert await ack_wait(link) == 5


@pytest.mark.parametrize("error", [Broken, Misconfigured])
async def test_trouble_of_its_own_ends_the_gateway_and_buries_no_request(
    link: NatsLink, error: type[Exception]
) -> None:
    class Failing(MemoryLedger):
        async def answer(self, _: object) -> Answer:
            raise error("the disk failed")

    await a_bus(link)
    await send(link, a_request())
    with pytest.raises(ExceptionGroup) as failure:
        await requests_of(link, a_world(link, ledger=Failing()).relay()).run()
    assert failure.group_contains(error, match="the disk failed")
    assert (await dead_letters(link), await all_acknowledged(link)) == ([], False)


async def test_the_agent_hears_why_a_callback_would_never_be_called_and_nothing_where_nobody_answers(
    link: NatsLink,
) -> None:
    async def flaw_of(url: str) -> str:
        return f"not {url}"

    callbacks = NatsCallbacks(link)
    assert await callbacks.flaw("https://10.0.0.7") == ""
    async with serve_questions(link, fine) as questions:
        await questions.answer_callbacks(flaw_of)
        assert await callbacks.flaw("https://10.0.0.7") == "not https://10.0.0.7"


class Asking:
    """A gateway on a bus, and who asks it."""

    def __init__(self, link: NatsLink, folder: Path) -> None:
        self.link = link
        self.trust = Trust(PinnedKeys(folder, FakeClock(NOON)), Agent(AGENT.told()))
        self.world = a_world(link)

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        running = asyncio.create_task(requests_of(self.link, self.world.relay(), trust=self.trust).run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def ask(
        self, command: str, step: int, by: Signer | None, *, of: tuple[str, bytes] | None = None, **changed: Any
    ) -> None:
        """`of`: what was signed, where it is another message."""
        request = a_request(command, step=step, **changed)
        subject, body, headers = message_of(request)
        signed = by.headers(*(of or (subject, body))) if by else {}
        key = f"forged-{step}-{by and by.id}" if of or changed else keys.request(RUN, step, 1)
        await self.link.publish(subject, body, msg_id=key, headers=headers | signed)

    async def settled(self) -> list[str]:
        """What was carried out, by command and step, once all is settled."""
        await until(lambda: all_acknowledged(self.link))
        return [f"{call.command} {call.asked.request.step}" for call in self.world.runner.executed]


@pytest.mark.attack(98)
async def test_a_write_that_the_agent_did_not_sign_is_a_dead_letter_and_in_nobody_s_way(
    link: NatsLink, tmp_path: Path
) -> None:
    await a_bus(link)
    asking, evil = Asking(link, tmp_path), {"url": "http://evil.example"}
    await asking.trust.check("agent.completed", b"{}", AGENT.header("agent.completed", b"{}"))
    async with asking.at_work():
        for forger in (None, STRANGER):
            await asking.ask("save", 2, forger, payload=evil)
        await asking.ask("save", 2, AGENT, of=message_of(a_request("save", step=1))[:2])
        assert (await asking.settled(), len(await dead_letters(link))) == ([], 3)
        await asking.ask("save", 2, AGENT)
        await asking.ask("handle", 3, None)
        assert sorted(await asking.settled()) == ["handle 3", "save 2"]
