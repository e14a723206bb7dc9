"""The agent's adapters on a real bus: positions, deduplication, room."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_core import to_json

from agent_service.admission import limits
from agent_service.admission.limits import Capacity
from agent_service.bus.health import stream_trouble
from agent_service.bus.reading import locate
from agent_service.core.waiting import Status
from agent_service.kill_switch import KillSwitch
from agent_service.run.messages import OutgoingMessage
from agent_service.run.outbox import Publisher
from agent_service.trust.proofs import Signing
from agent_service.views.why import ConsumerPosition, MessageLocation
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from groundwork.service.keys import KeyRing
from schemas import keys, subjects
from schemas.envelope import SIGNATURE

REQUEST = subjects.tool_request("echo")
PAYLOAD = {"run_id": "r"}
KEY = "agentic:run:r:said"


async def ask(bus: NatsLink, *steps: int) -> None:
    for step in steps:
        await bus.publish(REQUEST, b"{}", msg_id=keys.request("run_1", step, 1), headers={})


async def found(bus: NatsLink, step: int, since: datetime) -> MessageLocation | None:
    return await locate(bus, subjects.STREAM_REQUESTS, REQUEST, keys.request("run_1", step, 1), since)


def only(place: MessageLocation | None) -> ConsumerPosition:
    assert place is not None
    (holder,) = place.consumers
    return holder


async def test_a_request_is_followed_from_the_stream_into_a_hand_and_out_of_it(bus: NatsLink) -> None:
    since = datetime.now(UTC)
    await ask(bus, 1, 2, 3)
    ahead = await found(bus, 2, since)
    assert ahead is not None
    assert (ahead.stream, ahead.seq) == (subjects.STREAM_REQUESTS, 2)
    assert abs(ahead.at - since) < timedelta(seconds=30)
    assert (only(ahead).consumer, only(ahead).progress, only(ahead).before) == ("tools", "ahead", 1)
    pulled = await bus.client.jetstream().pull_subscribe_bind(subjects.DURABLE_TOOLS, subjects.STREAM_REQUESTS)
    first, second = await pulled.fetch(2)
    assert only(await found(bus, 2, since)).progress == "in_hand"
    await second.ack_sync()
    await first.ack_sync()
    assert only(await found(bus, 2, since)).progress == "done"
    assert only(await found(bus, 3, since)).progress == "ahead"


async def test_a_message_that_took_the_id_of_ours_is_not_taken_for_it_nor_one_that_was_sent_long_before(
    bus: NatsLink,
) -> None:
    since = datetime.now(UTC)
    await bus.publish(REQUEST, b"somebody else's", msg_id=keys.request("run_1", 1, 1), headers={})
    await ask(bus, 1)
    place = await found(bus, 1, since)
    assert place is not None
    assert place.seq == 2
    assert await found(bus, 2, since) is None
    assert await found(bus, 1, since + timedelta(hours=1)) is None


def publisher(bus: NatsLink, folder: Path) -> Publisher:
    store: Any = SimpleNamespace(head=lambda _: (1, "head"))
    return Publisher(bus, store, Signing(KeyRing.fresh(), folder), KillSwitch())


async def test_a_request_with_a_newer_capability_is_the_same_request(bus: NatsLink, tmp_path: Path) -> None:
    request = OutgoingMessage(REQUEST, KEY, PAYLOAD, "r", proves=("r", "1"))
    for _ in range(2):
        await publisher(bus, tmp_path).publish(request, at=datetime.now(UTC))
    assert (await bus.client.jetstream().stream_info(subjects.STREAM_REQUESTS)).state.messages == 1


async def test_an_announcement_that_the_agent_took_from_its_queue_is_not_stored_again(
    bus: NatsLink, tmp_path: Path
) -> None:
    ours = publisher(bus, tmp_path)
    announcement = OutgoingMessage(subjects.START, "agentic:start:w", PAYLOAD, "r")
    await ours.publish(announcement, at=datetime.now(UTC))
    queue = await bus.client.jetstream().pull_subscribe_bind(subjects.DURABLE_STARTS, subjects.STREAM_STARTS)
    await (await queue.fetch(1))[0].ack_sync()
    await ours.publish(announcement, at=datetime.now(UTC))
    assert (await bus.client.jetstream().stream_info(subjects.STREAM_STARTS)).state.messages == 0


@pytest.mark.attack(99)
async def test_an_ending_that_somebody_said_before_without_a_signature_is_said_with_one(
    bus: NatsLink, tmp_path: Path
) -> None:
    body = to_json({"type": subjects.COMPLETED, "payload": PAYLOAD, "dedupe_key": KEY})
    await bus.publish(subjects.COMPLETED, body, msg_id=KEY, headers={SIGNATURE: f"k1.{'A' * 86}"})
    ours, ending = publisher(bus, tmp_path), OutgoingMessage(subjects.COMPLETED, KEY, PAYLOAD, "r")
    await ours.publish(ending, at=datetime.now(UTC))
    stored = await bus.stored(subjects.STREAM, 2)
    assert stored is not None
    assert ours.signing.verifies(stored.subject, stored.body, stored.headers.get(SIGNATURE))


@pytest.mark.parametrize(("discard", "most", "told"), [("new", 100, True), ("new", 200, False), ("old", 100, False)])
def test_only_what_refuses_new_work_when_it_is_full_is_reported(discard: str, most: int, told: bool) -> None:
    info = {"config": {"name": "AGENTIC", "discard": discard, "max_bytes": most}, "state": {"bytes": 90}}
    assert bool(list(stream_trouble(info))) == told


@pytest.mark.parametrize(
    ("known_within_s", "is_over", "is_stored"),
    [(0.01, True, True), (30.0, False, True), (0.01, False, False)],
    ids=["the trouble is over in time", "it is being stored", "neither"],
)
async def test_a_wake_that_waits_is_refused_unless_the_trouble_is_over_in_time_or_it_is_being_stored(
    monkeypatch: pytest.MonkeyPatch, *, known_within_s: float, is_over: bool, is_stored: bool
) -> None:
    async def wake() -> str:
        async with room.unless_trouble():
            await storing.wait()
        return "stored"

    async def none() -> dict[Status, int]:
        return {}

    monkeypatch.setattr(limits, "KNOWN_WITHIN_S", known_within_s)
    room, storing = Capacity(none, max_queued=1), asyncio.Event()
    waiting = asyncio.create_task(wake())
    await asyncio.sleep(0)
    room.say("stream AGENTIC_RUNS is full", again_s=7)
    if is_over:
        room.say("")
    if is_stored:
        await asyncio.sleep(0.05 if is_over else 0)
        storing.set()
        assert await waiting == "stored"
        return
    with pytest.raises(TryAgain, match="AGENTIC_RUNS is full") as refused:
        await waiting
    assert refused.value.delay_s == 7
