"""Work beside the messages of runs: dead letters, the gateway's rows, results outside streams, clocks that jump."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from nats.aio.msg import Msg

from agent_service.bus.dead_letters import NatsDeadLetters, retry_id
from agent_service.bus.gateway import prune_rows
from agent_service.bus.messages import MOST_WAITING_BYTES, DroppedResults
from agent_service.trust.identity import SystemClock
from agent_service.views.inbox import DeadLetter, NoSuchLetter, NotSentAgain
from ductile_gateway.bus.incoming import answer_prune, serve_endpoints
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Delivery
from groundwork.service import machine
from groundwork.service.errors import GiveUp
from schemas import subjects
from schemas.envelope import MSG_ID
from schemas.status import GatewayPruned
from tests.gateway.test_serving import fine
from tests.kit.consumer import consume
from tests.kit.runs import NOON
from tests.kit.waiting import beside, until

HOUR, MIB = 3600.0, 1024 * 1024


async def test_a_gateway_is_asked_and_where_none_answers_that_is_told(link: NatsLink) -> None:
    asked: list[bool] = []

    async def prune(dry_run: bool) -> GatewayPruned:
        asked.append(dry_run)
        return GatewayPruned(rows={"answers": 3}, dry_run=dry_run)

    told = await prune_rows(link, dry_run=False)
    assert (told.rows, "no gateway answers" in told.trouble) == ({}, True)
    async with serve_endpoints(link, fine) as service:
        await answer_prune(service, prune)
        assert (await prune_rows(link, dry_run=True)).rows == {"answers": 3}
        assert (await prune_rows(link, dry_run=False)).trouble == ""
    assert asked == [True, False]


# Results that no stream keeps are heard as they pass


class Passing:
    """Results that pass on the bus."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes]] = []
        self.overheard = DroppedResults(lambda msg_id, body: self.taken.append((msg_id, body)))

    async def passes(self, msg_id: str, body: bytes) -> None:
        await self.overheard.hear(Msg(None, subjects.TOOL_RESULT, "", body, {MSG_ID: msg_id}))  # type: ignore[arg-type]

    def stored(self, msg_id: str, body: bytes) -> None:
        about: dict[str, Any] = {"seq": 1, "delivered": 1, "at": NOON, "headers": {MSG_ID: msg_id}}
        self.overheard.remember(Delivery(subject=subjects.TOOL_RESULT, body=body, **about))


@pytest.mark.parametrize("passes_first", [True, False], ids=["it passes first", "the stream is first"])
async def test_a_second_one_that_is_the_same_to_the_byte_answers_anew_unless_it_names_its_attempt(
    *, passes_first: bool
) -> None:
    passing = Passing()
    named = b'{"payload": {"attempt": 1}}'
    for body in (b"{}", named):
        if passes_first:
            await passing.passes(str(body), body)
        passing.stored(str(body), body)
        if not passes_first:
            await passing.passes(str(body), body)
        assert passing.taken == []
    for body in (b"{}", named):
        await passing.passes(str(body), body)
    assert passing.taken == [(str(b"{}"), b"{}")]


@pytest.mark.attack(99)
async def test_a_flood_under_ids_that_never_come_again_gives_up_the_oldest() -> None:
    passing = Passing()
    for number in range(2 * MOST_WAITING_BYTES // MIB):
        await passing.passes(f"id-{number}", bytes([number]) * MIB)
    passing.stored("id-0", b"other")
    assert passing.taken == []
    passing.stored(f"id-{number}", b"other")
    assert passing.taken == [(f"id-{number}", bytes([number]) * MIB)]


# The agent's clock beside one that jumps


async def test_a_clock_that_is_set_back_by_an_hour_makes_nothing_twice_as_late_and_no_new_run_older() -> None:
    shown, passed = [NOON], [0.0]
    machine.use(replace(machine.this(), wall=lambda: shown[0], monotonic=lambda: passed[0]))
    clock = SystemClock()

    def passes(seconds: float) -> None:
        shown[0] += timedelta(seconds=seconds)
        passed[0] += seconds

    due_at, first = clock.now() + timedelta(seconds=3), clock.new_run_id(clock.now())
    shown[0] -= timedelta(seconds=HOUR)
    passes(1.0)
    assert clock.new_run_id(clock.now()) > first
    passes(4.9)
    assert clock.now() < due_at
    passes(0.1)
    assert clock.now() >= due_at


ANN = "ann"


async def refused(link: NatsLink, subject: str, body: bytes = b"{}", *, msg_id: str = "1", **headers: str) -> None:
    """Publishes a message and dead-letters it as the consumer of its stream would."""
    durable = subjects.DURABLE_LOOP if subject == subjects.TOOL_RESULT else subjects.DURABLE_STARTS
    buried = asyncio.Event()

    async def handler(_: Delivery) -> None:
        buried.set()
        raise GiveUp("steps: at most 20")

    await link.publish(subject, body, msg_id=msg_id, headers=headers)
    consumer = subjects.CONSUMERS[durable][0], durable
    stored = partial(link.client.jetstream().stream_info, subjects.STREAM_DEAD_LETTERS)
    async with beside(consume(link, *consumer, handler, subjects.DEAD_LETTERS_LOOP, slots=4)):
        await buried.wait()
        await until(stored, lambda info: info.state.messages)


async def only(letters: NatsDeadLetters) -> DeadLetter:
    (letter,) = await letters.all()
    return letter


async def test_a_message_that_was_refused_is_sent_again_as_it_was_and_by_whom_is_kept(bus: NatsLink) -> None:
    await refused(bus, subjects.START, b'{"goal": "x"}', msg_id="agentic:start:order-2", traceparent="00-1-2-01")
    letters = NatsDeadLetters(bus)
    letter = await only(letters)
    told = letter.subject, letter.header("Msg-Id"), letter.header_number("Deliveries"), letter.header("Reason")
    assert told == (subjects.START, "agentic:start:order-2", 1, "steps: at most 20")
    _, sent = await letters.retry(letter.id, ANN)
    again = await bus.client.jetstream().get_msg(sent.stream, sent.seq)
    headers = again.headers or {}
    assert (again.data, headers["Nats-Msg-Id"] == "agentic:start:order-2") == (b'{"goal": "x"}', False)
    assert (headers["Agentic-Retried-By"], headers["traceparent"]) == (ANN, "00-1-2-01")
    settled = (await only(letters)).settled
    assert settled
    assert settled.by == ANN


async def test_a_letter_is_sent_again_once_also_when_it_was_not_recorded(bus: NatsLink) -> None:
    await refused(bus, subjects.START)
    letters = NatsDeadLetters(bus)
    letter = await letters.held((await only(letters)).id)
    await bus.publish(letter.subject, letter.body, msg_id=retry_id(letter), headers={})  # and then it crashed
    assert (await letters.retry(letter.id, ANN))[1].seq == 2
    with pytest.raises(NotSentAgain, match=f"retried by {ANN}"):
        await letters.retry(letter.id, ANN)
    assert (await bus.client.jetstream().stream_info(subjects.STREAM_STARTS)).state.last_seq == 2


async def test_a_body_too_large_for_its_letter_is_read_and_sent_from_its_stream(bus: NatsLink) -> None:
    body = b"x" * (bus.max_payload - 300)
    await refused(bus, subjects.TOOL_RESULT, body)
    letters = NatsDeadLetters(bus)
    letter = await only(letters)
    stored = await letters.refused(letter)
    assert stored
    assert (letter.size, stored.body) == (0, body)
    _, sent = await letters.retry(letter.id, ANN)
    assert (await bus.client.jetstream().get_msg(sent.stream, sent.seq)).data == body


async def test_a_dropped_letter_is_gone_and_who_dropped_it_is_on_record(bus: NatsLink) -> None:
    await refused(bus, subjects.START)
    letters = NatsDeadLetters(bus)
    number = (await only(letters)).id
    await letters.drop(number, ANN)
    left = await only(letters)
    assert left.settled
    assert (left.settled.deed, left.settled.by, left.subject) == ("dropped", ANN, subjects.START)
    for again in (letters.held(number), letters.retry(number, ANN), letters.drop(number, ANN)):
        with pytest.raises(NoSuchLetter, match=f"dropped by {ANN}"):
            await again
    state = (await bus.client.jetstream().stream_info(subjects.STREAM_DEAD_LETTERS)).state
    assert state.last_seq > number, "the newest message was deleted: the server may forget all ids"
    await bus.client.jetstream().get_msg(subjects.STREAM_DEAD_LETTERS, state.last_seq)


SAID: list[tuple[dict[str, str], str]] = [
    ({"Dead-Letter-Subject": subjects.COMPLETED}, "published once"),
    ({"Dead-Letter-Subject": "$JS.API.STREAM.DELETE.AGENTIC"}, "published once"),
    ({"Dead-Letter-Subject": subjects.COMPLETED, "Dead-Letter-Target": "callback:x"}, "an address outside"),
    ({"Dead-Letter-Subject": subjects.START, "Dead-Letter-Body": "left out"}, "no more"),
]


async def test_what_must_not_or_cannot_be_sent_again_is_refused(bus: NatsLink) -> None:
    for number, (said, why) in enumerate(SAID, start=1):
        await bus.publish("agentic.dlq.somebody", b"{}", msg_id=str(number), headers=said)
        with pytest.raises(NotSentAgain, match=why):
            await NatsDeadLetters(bus).retry(number, ANN)
