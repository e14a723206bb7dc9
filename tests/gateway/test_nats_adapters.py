"""The gateway on a real bus: requests in, results out, the catalog told, and trouble called by its name."""

import json
from typing import Any

import pytest

from agent_service.bus.gateway import NatsCallbacks
from ductile_gateway.bus.micro_service import serve_questions
from ductile_gateway.bus.outgoing import NatsArtifacts, NatsBus, NatsRuns
from ductile_gateway.bus.prerequisites import ack_wait, require
from ductile_gateway.calls.call import Answer
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Broken, Misconfigured
from schemas import subjects
from schemas.events import Envelope, Rejected
from schemas.status import Finding, GatewayStatus
from tests.gateway.on_nats import a_bus, all_acknowledged, consuming, dead_letters, requests_of, results, send
from tests.gateway.parts import RUN, MemoryLedger, World, a_request, message_of
from tests.kit.waiting import until


def a_world(link: NatsLink, **parts: Any) -> World:
    return World(bus=NatsBus(link), artifacts=NatsArtifacts(ArtifactBucket(link, subjects.ARTIFACT_BUCKET)), **parts)


async def test_a_request_that_was_published_twice_has_one_result(link: NatsLink) -> None:
    await a_bus(link)
    subject, body, headers = message_of(a_request())
    for msg_id in ("one", "two"):
        await link.publish(subject, body, msg_id=msg_id, headers=headers)
    world = a_world(link)
    async with consuming(link, world.relay()):
        await until(lambda: all_acknowledged(link))
    assert len(world.runner.executed) == 1
    assert len(await results(link)) == 1


async def test_who_asked_is_told_that_the_request_was_refused_and_how_to_correct_it(link: NatsLink) -> None:
    await a_bus(link)
    subject, body, _ = message_of(a_request())
    broken = body.replace(b'"tool":"fetch"', b'"tool":"FETCH"')
    await link.publish(subject, broken, msg_id="theirs", headers={})
    async with consuming(link, a_world(link).relay()):
        await until(lambda: all_acknowledged(link))
    message = await link.jetstream.get_last_msg(subjects.STREAM_DEAD_LETTERS, subjects.REJECTED)
    told = Envelope[Rejected].model_validate_json(message.data or b"").payload
    assert (told.subject, told.run_id, told.step) == (subject, RUN, 1)
    assert (told.msg_id, told.repeat_as) == ("theirs", "theirs#2")
    assert "payload.tool" in told.reason


async def fine() -> GatewayStatus:
    return GatewayStatus(version="1", findings=(Finding(name="gateway", mark="ok", text="as it should be"),))


@pytest.mark.parametrize(
    ("answer", "ended"),
    [
        (b'{"status": "cancelled"}', True),
        (b'{"status": "escalated"}', True),
        (b'{"status": "running"}', False),
        (b'{"status": "paused"}', False),
        (b"", False),
        (b"[]", False),
        (None, None),
    ],
)
async def test_a_run_has_ended_when_the_agent_says_so(link: NatsLink, answer: bytes | None, ended: bool | None) -> None:
    asked: list[bytes] = []

    async def tell(message: Any) -> None:
        asked.append(message.data)
        await message.respond(answer)

    if answer is not None:
        await link.subscribe(subjects.RUN_STATUS, tell)
    assert await NatsRuns(link).has_ended(RUN) is ended
    assert [json.loads(question) for question in asked] == [{"run_id": RUN, "brief": True}] * (answer is not None)


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
    relay = a_world(link, ledger=Failing()).relay()
    requests = requests_of(link, relay)
    with pytest.raises(ExceptionGroup) as failure:
        await requests.run()
    assert failure.group_contains(error, match="the disk failed")
    assert await dead_letters(link) == []
    assert not await all_acknowledged(link)


async def test_the_agent_hears_why_a_callback_would_never_be_called_and_nothing_where_nobody_answers(
    link: NatsLink,
) -> None:
    callbacks = NatsCallbacks(link)
    assert await callbacks.flaw("https://10.0.0.7") == ""
    async with serve_questions(link, fine) as questions:

        async def flaw_of(url: str) -> str:
            return f"not {url}"

        await questions.answer_callbacks(flaw_of)
        assert await callbacks.flaw("https://10.0.0.7") == "not https://10.0.0.7"
