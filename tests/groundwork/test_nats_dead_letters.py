"""Dead letters of messages that cannot be handled."""

import contextlib
import time
from functools import partial

import pytest
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError

from groundwork.nats import pull_loop
from groundwork.nats.dead_letters import Notice, Notify
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Delivery
from groundwork.nats.pull_loop import Handler
from groundwork.service.errors import GiveUp
from tests.kit.bus import a_consumer, a_stream
from tests.kit.consumer import consuming
from tests.kit.waiting import until

BURIED = "dlq.workers"
TERMINATED = "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.WORK.>"


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await a_stream(link)
    await a_stream(link, "DEAD", subjects=["dlq.>", TERMINATED])
    await a_consumer(link)
    return link


async def dead_letter(link: NatsLink) -> RawStreamMsg:
    """The first one, as soon as its original is done with."""
    found: list[RawStreamMsg] = []

    async def there() -> bool:
        with contextlib.suppress(NotFoundError):
            found.append(await link.client.jetstream().get_last_msg("DEAD", BURIED))
        return bool(found) and not (await link.client.jetstream().consumer_info("WORK", "workers")).num_ack_pending

    await until(there)
    return found[-1]


def raising(error: Exception) -> Handler:
    async def handler(_: Delivery) -> None:
        raise error

    return handler


poisonous = raising(GiveUp("the body is\nno JSON"))
OVERHEAD = len(b"NATS/1.0\r\nNats-Msg-Id: one\r\n\r\n")


@pytest.mark.parametrize(
    ("size", "headers", "error", "buried"),
    [
        pytest.param(
            4,
            {"traceparent": "00-1-2-01"},
            GiveUp("the body is\nno JSON"),
            {
                "traceparent": "00-1-2-01",
                "Dead-Letter-Subject": "work.a",
                "Dead-Letter-Stream": "WORK",
                "Dead-Letter-Consumer": "workers",
                "Dead-Letter-Sequence": "1",
                "Dead-Letter-Msg-Id": "one",
                "Dead-Letter-Deliveries": "1",
                "Dead-Letter-Reason": "the body is no JSON",
                "Nats-Msg-Id": "dead:WORK:workers:1",
            },
            id="all that is needed to understand and repeat it",
        ),
        pytest.param(
            4,
            {"odd!name": "1", "Nats-Expected-Stream": "WORK", "Kept": "yes"},
            GiveUp("a\x00\x1b[31m\ud800\r\nb" + "x" * 2000),
            {
                "Dead-Letter-Reason": ("a [31m b" + "x" * 2000)[:500],
                "odd!name": None,
                "Nats-Expected-Stream": None,
                "Kept": "yes",
            },
            id="odd headers and an odd reason",
        ),
        pytest.param(-1, {}, GiveUp("no"), {"Dead-Letter-Sequence": "1"}, id="a body too large is left in the stream"),
        pytest.param(
            4,
            {"Large": "x" * 10_000},
            GiveUp("no"),
            {"Large": None, "Dead-Letter-Headers": "left out: they are too large"},
            id="headers too large are left in the stream",
        ),
    ],
)
async def test_poison_is_buried_whole_or_with_where_the_rest_of_it_is(
    bus: NatsLink, size: int, headers: dict[str, str], error: Exception, buried: dict[str, str | None]
) -> None:
    body = b"x" * (size if size > 0 else bus.max_payload - OVERHEAD)
    await bus.publish("work.a", body, msg_id="one", headers=headers)
    async with consuming(bus, raising(error), dead=BURIED):
        message = await dead_letter(bus)
    found = message.headers or {}
    assert {name: found.get(name) for name in buried} == buried
    assert (message.data or b"", "Dead-Letter-Body" in found) == ((body, False) if size > 0 else (b"", True))


async def test_poison_delays_no_other_message(bus: NatsLink) -> None:
    good: list[bytes] = []

    async def handler(delivery: Delivery) -> None:
        if delivery.body == b"bad":
            raise GiveUp("bad")
        good.append(delivery.body)

    for number in range(40):
        await bus.publish("work.a", b"bad" if number % 2 else b"good", msg_id=str(number), headers={})
    async with consuming(bus, handler, slots=4, dead=BURIED):
        await until(lambda: len(good) == 20, within_s=5.0)


async def test_an_error_is_tried_again_later_each_time_and_buried_in_the_end(
    bus: NatsLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_loop, "MOST_TRIES", 3)
    times: list[float] = []

    async def handler(_: Delivery) -> None:
        times.append(time.monotonic())
        raise KeyError("word")

    await bus.publish("work.a", b"body", msg_id="one", headers={})
    async with consuming(bus, handler, BURIED):
        headers = (await dead_letter(bus)).headers or {}
    assert (headers["Dead-Letter-Deliveries"], headers["Dead-Letter-Reason"]) == ("3", "KeyError: 'word'")
    assert len(times) == 3
    assert times[2] - times[1] > times[1] - times[0] > 0.3


async def test_what_cannot_be_buried_is_not_terminated_and_is_tried_once_each_time(
    bus: NatsLink, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_loop, "MOST_TRIES", 2)
    monkeypatch.setattr(pull_loop, "LONGEST_DELAY_S", 0.5)
    monkeypatch.setattr(bus, "publish", partial(bus.publish, within_s=0.5))
    tries: list[int] = []

    async def handler(delivery: Delivery) -> None:
        tries.append(delivery.delivered)
        raise KeyError("word")

    await bus.client.jetstream().delete_stream("DEAD")
    await bus.publish("work.a", b"body", msg_id="one", headers={})
    async with consuming(bus, handler, BURIED):
        await until(lambda: "cannot be moved to the dead letters" in caplog.text)
        await a_stream(bus, "DEAD", subjects=["dlq.>"])
        message = await dead_letter(bus)
    assert (message.data, tries) == (b"body", [1, 2, 3])


def noticed(delivery: Delivery, stream: str, reason: str) -> Notice:
    return "dlq.notices", reason.encode(), f"notice:{stream}:{delivery.seq}", {"Of": delivery.subject}


def impossible(_: Delivery, _stream: str, _reason: str) -> Notice:
    raise ValueError("there is nothing to say")


@pytest.mark.parametrize("notify", [lambda *_: ("no.stream.takes.this", b"", "1", {}), impossible])
async def test_a_message_is_buried_though_nobody_can_be_told(
    bus: NatsLink, notify: Notify, caplog: pytest.LogCaptureFixture
) -> None:
    await bus.publish("work.a", b"body", msg_id="one", headers={})
    async with consuming(bus, poisonous, BURIED, notify):
        assert (await dead_letter(bus)).data == b"body"
    assert "could not be announced" in caplog.text


async def test_a_notice_does_not_repeat_what_an_unforeseen_error_says(
    bus: NatsLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_loop, "MOST_TRIES", 1)
    await bus.publish("work.a", b"body", msg_id="one", headers={})
    async with consuming(bus, raising(KeyError("s3cret")), BURIED, noticed):
        await dead_letter(bus)
    notice = (await bus.client.jetstream().get_last_msg("DEAD", "dlq.notices")).data or b""
    assert (notice.startswith(b"KeyError"), b"s3cret" in notice) == (True, False)
