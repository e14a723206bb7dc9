"""What becomes of messages that cannot be handled."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError

from groundwork.nats.consuming.settling import DeadLetters, Delivery, Handler, Notice, Notify
from groundwork.nats.link import NatsLink
from groundwork.service.errors import GiveUp
from tests.kit.bus import a_consumer, a_stream
from tests.kit.consuming import consume
from tests.kit.waiting import until

TERMINATED = "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.WORK.>"


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await a_stream(link)
    await a_stream(link, "DEAD", subjects=["dlq.>", TERMINATED])
    await a_consumer(link)
    return link


@contextlib.asynccontextmanager
async def consuming(
    link: NatsLink, handler: Handler, *, max_deliveries: int = 5, notify: Notify | None = None
) -> AsyncIterator[None]:
    dead = DeadLetters("dlq.workers", max_deliveries, notify)
    running = asyncio.create_task(
        consume(link, "WORK", "workers", slots=4, handler=handler, dead_letter=dead, in_progress_s=10.0)
    )
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def dead_letter(link: NatsLink) -> RawStreamMsg:
    """The first one, as soon as its original is done with."""
    found: list[RawStreamMsg] = []

    async def there() -> bool:
        with contextlib.suppress(NotFoundError):
            found.append(await link.jetstream.get_last_msg("DEAD", "dlq.workers"))
        return bool(found) and not (await link.jetstream.consumer_info("WORK", "workers")).num_ack_pending

    await until(there)
    return found[-1]


async def poisonous(_: Delivery) -> None:
    raise GiveUp("the body is\nno JSON")


async def test_poison_is_kept_with_all_that_is_needed_to_understand_and_repeat_it(bus: NatsLink) -> None:
    await bus.publish("work.a", b"body", msg_id="one", headers={"traceparent": "00-1-2-01"})
    async with consuming(bus, poisonous):
        message = await dead_letter(bus)
    assert message.data == b"body"
    assert message.headers is not None
    assert message.headers == {
        "traceparent": "00-1-2-01",
        "Dead-Letter-Subject": "work.a",
        "Dead-Letter-Stream": "WORK",
        "Dead-Letter-Consumer": "workers",
        "Dead-Letter-Sequence": "1",
        "Dead-Letter-Time": message.headers["Dead-Letter-Time"],
        "Dead-Letter-Msg-Id": "one",
        "Dead-Letter-Deliveries": "1",
        "Dead-Letter-Reason": "the body is no JSON",
        "Nats-Msg-Id": "dead:WORK:workers:1",
    }


async def test_poison_delays_no_other_message(bus: NatsLink) -> None:
    good: list[bytes] = []

    async def handler(delivery: Delivery) -> None:
        if delivery.body == b"bad":
            raise GiveUp("bad")
        good.append(delivery.body)

    for number in range(40):
        body = b"bad" if number % 2 else b"good"
        await bus.publish("work.a", body, msg_id=str(number), headers={})
    begin = time.monotonic()
    async with consuming(bus, handler):
        await until(lambda: len(good) == 20)
        assert time.monotonic() - begin < 1.0


async def test_an_error_is_tried_again_later_each_time_and_buried_in_the_end(bus: NatsLink) -> None:
    times: list[float] = []

    async def handler(_: Delivery) -> None:
        times.append(time.monotonic())
        raise KeyError("word")

    await bus.publish("work.a", b"body", msg_id="one", headers={})
    async with consuming(bus, handler, max_deliveries=3):
        message = await dead_letter(bus)
    assert message.headers is not None
    assert message.headers["Dead-Letter-Deliveries"] == "3"
    assert message.headers["Dead-Letter-Reason"] == "KeyError: 'word'"
    assert len(times) == 3
    assert times[2] - times[1] > times[1] - times[0] > 0.3


async def test_a_body_too_large_for_its_dead_letter_is_left_in_the_stream(bus: NatsLink) -> None:
    overhead = len(b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n")
    await bus.publish("work.a", b"x" * (bus.max_payload - overhead), msg_id="one", headers={})
    async with consuming(bus, poisonous):
        message = await dead_letter(bus)
    assert not message.data
    assert message.headers is not None
    assert message.headers["Dead-Letter-Body"].startswith("left out")
    assert message.headers["Dead-Letter-Sequence"] == "1"


async def test_odd_headers_and_an_odd_reason_do_not_keep_a_message_from_its_grave(bus: NatsLink) -> None:
    async def handler(_: Delivery) -> None:
        raise GiveUp("a\x00\x1b[31m\ud800\r\nb" + "x" * 2000)

    await bus.publish(
        "work.a", b"body", msg_id="one", headers={"odd!name": "1", "Nats-Expected-Stream": "WORK", "Kept": "yes"}
    )
    async with consuming(bus, handler):
        message = await dead_letter(bus)
    assert message.headers is not None
    assert message.headers["Dead-Letter-Reason"].startswith("a [31m bxxx")
    assert len(message.headers["Dead-Letter-Reason"]) == 500
    assert "odd!name" not in message.headers
    assert "Nats-Expected-Stream" not in message.headers
    assert message.headers["Kept"] == "yes"


async def test_what_cannot_be_buried_is_not_terminated(bus: NatsLink, caplog: pytest.LogCaptureFixture) -> None:
    await bus.jetstream.delete_stream("DEAD")
    await bus.publish("work.a", b"body", msg_id="one", headers={})
    async with consuming(bus, poisonous):
        await until(lambda: "cannot be moved to the dead letters" in caplog.text)
        await a_stream(bus, "DEAD", subjects=["dlq.>"])
        message = await dead_letter(bus)
    assert message.data == b"body"


def noticed(delivery: Delivery, stream: str, reason: str) -> Notice:
    return Notice("dlq.notices", reason.encode(), f"notice:{stream}:{delivery.stream_seq}", {"Of": delivery.subject})


def nowhere(_: Delivery, _stream: str, _reason: str) -> Notice:
    return Notice("no.stream.takes.this", b"", "1", {})


def impossible(_: Delivery, _stream: str, _reason: str) -> Notice:
    raise ValueError("there is nothing to say")


async def test_a_notice_is_given_though_the_process_died_after_the_burial(bus: NatsLink) -> None:
    await bus.publish("work.a", b"body", msg_id="one", headers={})
    await bus.publish("dlq.workers", b"body", msg_id="dead:WORK:workers:1", headers={})

    async def lie_there() -> dict[str, int]:
        return (await bus.jetstream.stream_info("DEAD", "dlq.>")).state.subjects or {}

    async def told() -> bool:
        return "dlq.notices" in await lie_there()

    async with consuming(bus, poisonous, notify=noticed):
        await until(told)
    assert await lie_there() == {"dlq.workers": 1, "dlq.notices": 1}


@pytest.mark.parametrize("notify", [nowhere, impossible])
async def test_a_message_is_buried_though_nobody_can_be_told(
    bus: NatsLink, notify: Notify, caplog: pytest.LogCaptureFixture
) -> None:
    await bus.publish("work.a", b"body", msg_id="one", headers={})
    async with consuming(bus, poisonous, notify=notify):
        assert (await dead_letter(bus)).data == b"body"
    assert "nobody is told" in caplog.text


async def test_a_notice_does_not_repeat_what_an_error_says_that_nobody_foresaw(bus: NatsLink) -> None:
    async def handler(delivery: Delivery) -> None:
        raise KeyError(delivery.body.decode())

    await bus.publish("work.a", b"s3cret", msg_id="one", headers={})
    async with consuming(bus, handler, max_deliveries=1, notify=noticed):
        await dead_letter(bus)
    notice = await bus.jetstream.get_last_msg("DEAD", "dlq.notices")
    assert notice.data == b"KeyError at each of 1 deliveries: the log and the dead letter say more"
