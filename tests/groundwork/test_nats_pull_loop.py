"""The pull loop with a real server: slots, redelivery, and a crash on either side."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from nats.aio.msg import Msg

from agent_service.workbench.embedded_nats import EmbeddedNats
from groundwork.nats import pull_loop
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Delivery
from groundwork.nats.pull_loop import ACK, NAK
from tests.kit.bus import a_consumer, a_stream, heard
from tests.kit.consumer import Seen, consuming, left, publish
from tests.kit.waiting import until

AT_ONCE_S = 5.0
"""Far below ack_wait, which is 30 s, and enough for a busy machine."""

PULLS = "$JS.API.CONSUMER.MSG.NEXT.WORK.workers"
GIVEN_BACK = "$JS.ACK.WORK.workers.1.1.1.0.0"
"""Acknowledgement subject of the first delivery of the first message."""


@pytest.fixture
async def seen(link: NatsLink, request: pytest.FixtureRequest) -> Seen:
    """Consumer with the ack_wait, in seconds, of the test parameter."""
    await a_stream(link)
    await a_consumer(link, filter_subject="work.>", ack_wait=getattr(request, "param", 30.0))
    return Seen()


def with_ack_wait(seconds: float) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("seen", [seconds], indirect=True, ids=[""])


async def test_never_more_messages_are_in_hand_than_there_are_slots(link: NatsLink, seen: Seen) -> None:
    now, most = 0, 0

    async def handler(delivery: Delivery) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001 * (delivery.seq % 5))
        now -= 1
        await seen(delivery)

    await publish(link, *map(str, range(300)))
    async with consuming(link, handler, slots=7) as loop:
        await until(lambda: len(seen.finished) == 300)
        await until(lambda: loop.in_hand == 0)
    assert most == 7


@with_ack_wait(2.0)
async def test_a_long_handler_keeps_its_message(link: NatsLink, seen: Seen) -> None:
    seen.gate.clear()
    await publish(link, "long")
    async with consuming(link, seen):
        asyncio.get_running_loop().call_later(4.5, seen.gate.set)
        await until(lambda: seen.finished == ["long"])
        await left(link)
    assert seen.given == [("long", 1)]


async def test_a_message_delivered_again_while_it_is_in_hand_is_handled_once(link: NatsLink, seen: Seen) -> None:
    seen.gates["a"] = asyncio.Event()

    info = partial(link.client.jetstream().consumer_info, "WORK", "workers")
    async with consuming(link, seen):
        await publish(link, "a")
        await until(lambda: seen.bodies == ["a"])
        await link.send(GIVEN_BACK, NAK)
        await until(info, lambda of_consumer: of_consumer.num_redelivered)
        await publish(link, "b")  # its acknowledgement comes behind the second delivery
        await until(lambda: seen.finished == ["b"])
        seen.gates["a"].set()
        await left(link)
    assert seen.bodies == ["a", "b"]


@with_ack_wait(1.0)  # what was on its way when the server died comes again only after this time
async def test_every_message_is_handled_while_the_server_is_killed_again_and_again(
    nats_server: EmbeddedNats, link: NatsLink, seen: Seen
) -> None:
    names = [str(number) for number in range(600)]
    async with consuming(link, seen, slots=20):
        for part in range(3):
            publishing = asyncio.create_task(publish(link, *names[part * 200 : part * 200 + 200]))
            await until(lambda part=part: len(seen.finished) > part * 100)  # type: ignore[misc]  # a bound default
            nats_server.kill()
            await nats_server.start()
            await publishing
        await left(link)
    assert set(seen.finished) == set(names)


@pytest.mark.parametrize(("alone", "most"), [(True, 100), (False, 8)])
async def test_only_a_process_that_is_alone_asks_for_as_many_messages_as_it_has_slots(
    link: NatsLink, seen: Seen, alone: bool, most: int
) -> None:
    asked = await heard(link, PULLS)
    link.exclusive = alone
    async with consuming(link, seen, slots=100):
        await publish(link, *map(str, range(150)))
        await until(lambda: len(seen.finished) == 150)
    assert max(json.loads(message.data)["batch"] for message in asked) == most


async def test_messages_beyond_the_slots_are_given_back(link: NatsLink, seen: Seen) -> None:
    async with consuming(link, seen, slots=5, grace_s=0.1) as loop:
        await publish(link, "before")
        await until(lambda: seen.finished == ["before"])
        seen.gate.clear()
        asked = await heard(link, PULLS)
        await link.client.force_reconnect()
        await until(lambda: asked)  # anew, but the server still knows the first pull
        await publish(link, *map(str, range(30)))
        await left(link, in_hand=lambda number: number > 5)
        assert (loop.in_hand, len(seen.deliveries)) == (5, 6)
    seen.gate.set()
    async with consuming(link, seen, slots=5):
        await left(link)
    # One may come twice: the server reads pulls and acknowledgements each in its order, and two gave it back.
    assert set(seen.finished) == {"before", *map(str, range(30))}


async def test_a_new_leader_of_the_consumer_is_asked_at_once(link: NatsLink, seen: Seen) -> None:
    async with consuming(link, seen):
        await publish(link, "a")
        await until(lambda: seen.finished == ["a"])
        asked = await heard(link, PULLS)
        await link.send("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.WORK.workers", b"{}")
        await until(lambda: asked, within_s=AT_ONCE_S)


async def test_a_consumer_deleted_and_made_again_is_served_again_and_said_to_be_well_before_a_message_comes(
    link: NatsLink, seen: Seen
) -> None:
    async with consuming(link, seen) as loop:
        await publish(link, "a")
        await until(lambda: seen.finished == ["a"])
        await link.client.jetstream().delete_consumer("WORK", "workers")
        await until(lambda: "agentic setup" in loop.trouble)
        await a_consumer(link, deliver_policy="new")
        await until(lambda: not loop.trouble, within_s=2 * AT_ONCE_S)
        await publish(link, "b")
        await until(lambda: "b" in seen.finished)


async def test_a_pull_whose_end_does_not_come_is_sent_again(
    link: NatsLink, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EXPIRES_S", "EXPIRES_ALONE_S", "LATE_S"):
        monkeypatch.setattr(pull_loop, name, 0.1)
    send, lost = link.send, list[str]()

    async def send_but_once(subject: str, body: bytes, **how: Any) -> bool:
        if "MSG.NEXT" not in subject or lost:
            return await send(subject, body, **how)
        lost.append(subject)
        return True

    monkeypatch.setattr(link, "send", send_but_once)
    async with consuming(link, seen):
        await publish(link, "a")
        await until(lambda: seen.finished == ["a"], within_s=AT_ONCE_S)
    assert lost


async def taken_and_dropped(link: NatsLink, number: int) -> list[Msg]:
    """Messages delivered to a process that says nothing more of them."""
    taken = await heard(link, inbox := link.client.new_inbox())
    request = json.dumps({"batch": number, "expires": 30_000_000_000}).encode()
    await link.send(PULLS, request, reply=inbox)
    await until(lambda: len(taken) == number)
    return taken


async def test_where_several_share_the_consumer_what_another_has_in_hand_is_left_to_it(
    link: NatsLink, seen: Seen
) -> None:
    others = Seen()
    seen.gate.clear()
    async with consuming(link, seen):
        await publish(link, *"abcdefghij")  # as many as it takes
        await until(lambda: len(seen.deliveries) == 10)
        async with consuming(link, others):
            await publish(link, *"kl")
            await until(lambda: len(others.deliveries) >= 2)
            seen.gate.set()
    assert others.given == [("k", 1), ("l", 1)]


async def test_who_is_alone_gets_at_once_what_a_dead_process_had_in_hand_but_not_what_it_had_acknowledged(
    link: NatsLink, seen: Seen
) -> None:
    link.exclusive = True
    for body in "abcd":
        await publish(link, body)
    messages = await taken_and_dropped(link, 4)
    for message in messages[1:3]:
        await link.send(message.reply, ACK)
    await left(link, in_hand=lambda number: number == 2)
    async with consuming(link, seen):
        await until(lambda: sorted(seen.given) == [("a", 2), ("d", 2)], within_s=AT_ONCE_S)
        await publish(link, "e")
        await until(lambda: len(seen.deliveries) == 3)
    assert seen.given[-1] == ("e", 1)
