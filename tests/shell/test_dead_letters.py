"""Dead letters over a real server: refused messages are listed, read, resent or dropped."""

import asyncio
from functools import partial

import pytest

from agent_service.bus.dead_letters import NatsDeadLetters, retry_id
from agent_service.views.inbox import DeadLetter, NoSuchLetter, NotSentAgain
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Delivery
from groundwork.service.errors import GiveUp
from schemas import subjects
from tests.kit.consumer import consume
from tests.kit.waiting import until

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
    running = asyncio.create_task(consume(link, *consumer, handler, subjects.DEAD_LETTERS_LOOP, slots=4))
    await buried.wait()
    stored = partial(link.client.jetstream().stream_info, subjects.STREAM_DEAD_LETTERS)
    await until(stored, lambda info: info.state.messages)
    running.cancel()


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
