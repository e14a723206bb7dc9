"""What the server takes to be in hand, and is not, is worked on again at once: long before ack_wait, which is 30 s."""

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from groundwork.nats.consuming.settling import ACK, DeadLetters, Delivery
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from tests.kit.bus import a_consumer, a_stream, server_with
from tests.kit.consuming import consume
from tests.kit.waiting import until

SECRET = os.urandom(8).hex()
AT_ONCE_S = 5.0
"""Far less than ack_wait, and enough for a machine that is busy."""


class Worker:
    """A handler that remembers what it was given, and ends once it may."""

    def __init__(self) -> None:
        self.given: list[tuple[str, int]] = []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self, delivery: Delivery) -> None:
        self.given.append((delivery.body.decode(), delivery.delivered))
        await self.may_end.wait()


@contextlib.asynccontextmanager
async def working(link: NatsLink, worker: Worker, *, sole: bool = True) -> AsyncIterator[None]:
    dead = DeadLetters("work.dead")
    running = asyncio.create_task(
        consume(link, "WORK", "workers", slots=10, handler=worker, dead_letter=dead, in_progress_s=10.0, sole=sole)
    )
    try:
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def taken_and_dropped(link: NatsLink, number: int) -> list[Msg]:
    """Messages delivered to somebody of whom nothing more is heard."""
    taken: list[Msg] = []

    async def take(message: Msg) -> None:
        taken.append(message)

    inbox = link.new_inbox()
    await link.subscribe(inbox, take)
    request = json.dumps({"batch": number, "expires": 30_000_000_000}).encode()
    await link.send("$JS.API.CONSUMER.MSG.NEXT.WORK.workers", request, reply=inbox)
    await until(lambda: len(taken) == number)
    return taken


async def publish(link: NatsLink, bodies: str) -> None:
    for body in bodies:
        await link.publish(f"work.{body}", body.encode(), msg_id=body, headers={})


async def in_hand(link: NatsLink) -> int:
    return (await link.jetstream.consumer_info("WORK", "workers")).num_ack_pending or 0


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await a_stream(link)
    await a_consumer(link)
    return link


async def test_what_a_dead_process_had_in_hand_is_worked_on_again_as_its_second_delivery(bus: NatsLink) -> None:
    worker = Worker()
    await publish(bus, "abc")
    await taken_and_dropped(bus, 3)
    async with working(bus, worker):
        await until(lambda: sorted(worker.given) == [("a", 2), ("b", 2), ("c", 2)], within_s=AT_ONCE_S)


async def test_where_several_share_the_consumer_what_another_has_in_hand_is_left_to_it(bus: NatsLink) -> None:
    first, second = Worker(), Worker()
    first.may_end.clear()
    async with working(bus, first, sole=False):
        await publish(bus, "abcdefghij")  # as many as it takes
        await until(lambda: len(first.given) == 10)
        async with working(bus, second, sole=False):
            await publish(bus, "kl")
            await until(lambda: len(second.given) >= 2)
            first.may_end.set()
    assert sorted(second.given) == [("k", 1), ("l", 1)]


async def test_what_was_acknowledged_behind_a_message_in_hand_is_not_worked_on_again(bus: NatsLink) -> None:
    worker = Worker()
    await publish(bus, "abcd")
    messages = await taken_and_dropped(bus, 4)
    for message in messages[1:3]:
        await bus.send(message.reply, ACK)

    async def two_left() -> bool:
        return await in_hand(bus) == 2

    await until(two_left)
    async with working(bus, worker):
        await until(lambda: len(worker.given) == 2, within_s=AT_ONCE_S)
        await publish(bus, "e")
        await until(lambda: len(worker.given) == 3)
    assert sorted(worker.given) == [("a", 2), ("d", 2), ("e", 1)]


async def test_what_the_server_lost_at_its_crash_comes_when_it_is_back_and_what_is_in_hand_does_not(
    tmp_path: Path, nats_server: EmbeddedNats, bus: NatsLink
) -> None:
    (state,) = (tmp_path / "nats").rglob("obs/workers/o.dat")
    worker = Worker()
    worker.may_end.clear()
    async with working(bus, worker):
        await publish(bus, "a")
        await until(lambda: worker.given == [("a", 1)])
        taking = asyncio.create_task(taken_and_dropped(bus, 1))
        await publish(bus, "bcdefgh")
        await taking
        taken = time.time()
        await until(lambda: state.stat().st_mtime > taken)  # or it would not know that it had delivered them
        nats_server.kill()
        await nats_server.start()
        await until(lambda: {body for body, _ in worker.given} == set("abcdefgh"), within_s=AT_ONCE_S)
    assert len(worker.given) == len("abcdefgh")


async def test_without_the_permission_to_ask_what_is_in_hand_the_rest_is_worked_on_and_it_is_told(
    tmp_path: Path, unused_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    worker = Worker()
    denied = {"publish": {"deny": ["$JS.API.CONSUMER.INFO.>"]}}
    users = [{"user": "owner", "password": SECRET}, {"user": "agent", "password": SECRET, "permissions": denied}]
    config = {"authorization": {"users": users}, "jetstream": {"store_dir": str(tmp_path / "store")}}
    async with server_with(tmp_path, unused_port, config) as address:
        owner = await connect(NatsSettings(urls=(f"nats://{address}",), user="owner", password=SECRET))
        agent = await connect(NatsSettings(urls=(f"nats://{address}",), user="agent", password=SECRET))
        try:
            await a_stream(owner)
            await a_consumer(owner)
            await publish(owner, "ab")
            await taken_and_dropped(owner, 1)
            with caplog.at_level(logging.WARNING):
                async with working(agent, worker):
                    await until(lambda: worker.given == [("b", 1)], within_s=AT_ONCE_S)
                    await until(lambda: "only after ack_wait" in caplog.text)
        finally:
            await owner.close()
            await agent.close()
    assert "give this user the permission" in caplog.text.lower()
