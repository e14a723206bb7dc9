"""Endings of runs on a real bus: each is told to everybody, and what cannot be told is among the dead letters."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from agent_service.bus.topology import topology
from ductile_gateway.bus.outgoing import NatsAgentKeys
from ductile_gateway.company import Alone
from ductile_gateway.outbound.service import serve_outbound
from ductile_gateway.outbound.settings import OutboundSettings
from ductile_gateway.ports import SystemClock
from ductile_gateway.status import Status
from ductile_gateway.store.agent_keys import PinnedKeys
from ductile_gateway.store.stores import Stores
from ductile_gateway.trust import Trust
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from schemas import subjects
from schemas.signing import AgentKey, AgentKeys
from schemas.status import Finding
from tests.gateway.outbound_parts import SECRET, Receiver, an_event
from tests.gateway.stores import opened
from tests.kit.agent_keys import AGENT, STRANGER, Signer
from tests.kit.waiting import until


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver().listening() as receiver:
        yield receiver


def settings(receiver: Receiver, **subscription: Any) -> OutboundSettings:
    """One subscription, to the receiver; runs may ask for callbacks to public addresses. The agent's key is known."""
    network = {"allow_private": True, "allow_http": True, "ports": [receiver.port]}
    url = f"http://127.0.0.1:{receiver.port}/"
    one = {"url": url, "secret": SECRET, "network": network} | subscription
    told = {"subscriptions": {"one": one}, "callbacks": {"secret": SECRET}, "agent_keys": [AGENT.public]}
    return OutboundSettings.model_validate(told)


async def fine() -> list[Finding]:
    return [Finding(name="test", mark="ok", text="as it should be")]


async def said(status: Status) -> list[str]:
    """What there is to say of what goes out."""
    told = (await status.tell()).findings
    return [finding.text for finding in told if finding.name in ("outbound", "agent's word")]


@contextlib.asynccontextmanager
async def telling(link: NatsLink, folder: Path, chosen: OutboundSettings) -> AsyncIterator[Status]:
    """A gateway at work, until the end of the block; and how it says it is."""
    status = Status({"test": fine}, version="1")
    stored = partial(Stores.embedded, folder=folder, run_bytes=0)
    async with opened(folder, stored) as stores:
        trust = Trust(PinnedKeys(folder, SystemClock()), NatsAgentKeys(link), given=chosen.agent_keys)
        status.also("agent's word", trust.findings)
        serving = serve_outbound(
            chosen, link, stores, trust=trust, clock=SystemClock(), status=status, told=lambda *_: None, company=Alone()
        )
        running = asyncio.create_task(serving)
        try:
            yield status
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def say(link: NatsLink, event: Any, by: Signer | None = AGENT) -> None:
    body = json.dumps(event).encode()
    headers = by.headers(event["type"], body) if by else {}
    await link.publish(event["type"], body, msg_id=event["dedupe_key"], headers=headers)


async def waiting(link: NatsLink) -> int:
    """Messages that the gateway has not acknowledged."""
    info = await link.jetstream.consumer_info(subjects.STREAM, subjects.DURABLE_LIFECYCLE)
    return (info.num_pending or 0) + (info.num_ack_pending or 0)


async def test_each_ending_is_told_once_also_across_a_restart(
    tmp_path: Path, link: NatsLink, receiver: Receiver
) -> None:
    await create_missing(link, topology(max_gib=1))
    for number in range(20):
        await say(link, an_event(run_id=f"run_{number}"))
    async with telling(link, tmp_path, settings(receiver)):
        await until(lambda: len(receiver.requests) >= 5)
    for number in range(20, 30):
        await say(link, an_event(run_id=f"run_{number}"))
    async with telling(link, tmp_path, settings(receiver)):
        await until(lambda: len({request.headers["webhook-id"] for request in receiver.requests}) == 30)
        await until(lambda: _none_waits(link))


async def test_a_callback_waits_for_the_agent_to_say_where_it_goes(
    tmp_path: Path, link: NatsLink, receiver: Receiver
) -> None:
    await create_missing(link, topology(max_gib=1))
    hook = f"http://127.0.0.1:{receiver.port}/hook?token=1"
    network = {"allow_private": True, "allow_http": True, "ports": [receiver.port]}
    callbacks = {"secret": SECRET, "network": network}
    chosen = OutboundSettings.model_validate({"callbacks": callbacks, "agent_keys": [AGENT.public]})

    async def answer(question: Msg) -> None:
        asked.append(json.loads(question.data)["run_id"])
        await question.respond(json.dumps({"callback": hook} if len(asked) > 1 else {"error": {}}).encode())

    asked: list[str] = []
    async with telling(link, tmp_path, chosen):
        await say(link, an_event(run_id="run_1", has_callback=True))
        await until(lambda: waits(link, 1))
        await link.subscribe(subjects.RUN_CALLBACK, answer)
        await until(lambda: len(receiver.requests) == 1, within_s=20)
        await until(lambda: _none_waits(link))
    assert asked == ["run_1", "run_1"]
    assert b"token=1" not in receiver.requests[0].body


async def waits(link: NatsLink, number: int) -> bool:
    return await waiting(link) == number


async def _none_waits(link: NatsLink) -> bool:
    return await waiting(link) == 0


async def test_a_callback_into_a_private_network_is_a_dead_letter_with_the_reason(
    tmp_path: Path, link: NatsLink, receiver: Receiver
) -> None:
    await create_missing(link, topology(max_gib=1))

    async def answer(question: Msg) -> None:
        await question.respond(json.dumps({"callback": "https://127.0.0.1/secret-token"}).encode())

    async with telling(link, tmp_path, settings(receiver)) as status:
        assert await said(status) == []
        await link.subscribe(subjects.RUN_CALLBACK, answer)
        await say(link, an_event(has_callback=True))
        letter = await _first_dead_letter(link)
        await until(lambda: _says(status, "1 deliveries were given up in the last 15 days"))
    assert letter["Dead-Letter-Target"] == "callback"
    assert "127.0.0.1 is not a public address" in letter["Dead-Letter-Reason"]
    assert "secret-token" not in json.dumps(letter)


async def _says(status: Status, text: str) -> bool:
    return text in await said(status)


async def _rejected(link: NatsLink, subject: str) -> bool:
    """Whether it was told that a message on the subject was refused."""
    with contextlib.suppress(NotFoundError):
        told = await link.jetstream.get_last_msg(subjects.STREAM_DEAD_LETTERS, subjects.REJECTED)
        return bool(json.loads(told.data or b"")["payload"]["subject"] == subject)
    return False


async def _first_dead_letter(link: NatsLink) -> dict[str, str]:
    async def there() -> bool:
        return (await link.jetstream.stream_info(subjects.STREAM_DEAD_LETTERS)).state.messages > 0

    await until(there)
    message = await link.jetstream.get_last_msg(subjects.STREAM_DEAD_LETTERS, subjects.DEAD_LETTERS_OUTBOUND)
    return message.headers or {}


async def tells_keys(link: NatsLink, *told: AgentKey) -> None:
    """An agent answers who asks for its keys."""

    async def answer(question: Msg) -> None:
        await question.respond(AgentKeys(keys=told).model_dump_json().encode())

    await link.subscribe(subjects.AGENT_KEYS, answer)


@pytest.mark.attack(98)
async def test_who_may_publish_endings_has_none_of_its_own_sent_on(
    tmp_path: Path, link: NatsLink, receiver: Receiver
) -> None:
    await create_missing(link, topology(max_gib=1))
    chosen = settings(receiver).model_copy(update={"agent_keys": ()})
    async with telling(link, tmp_path, chosen) as status:
        await say(link, an_event(run_id="run_1", has_callback=True), by=None)
        await until(lambda: _says_part(status, "no agent has told the keys that it signs with"))
        await tells_keys(link, AGENT.told())
        await say(link, an_event(run_id="run_2", has_callback=True), by=STRANGER)
        await say(link, an_event(run_id="run_3"))
        await until(lambda: len(receiver.requests) >= 1)
        await until(lambda: _none_waits(link))
        await until(lambda: _says_part(status, "2 messages since the start were not the agent's word"))
        letter = await _first_dead_letter(link)
    assert [json.loads(request.body)["data"]["run_id"] for request in receiver.requests] == ["run_3"]
    assert "not said by the agent" in letter["Dead-Letter-Reason"]
    assert await _rejected(link, "agent.completed")


async def _says_part(status: Status, text: str) -> bool:
    return any(text in one for one in await said(status))
