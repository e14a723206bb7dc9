"""The pull loop, against a real server: who gets what when, and what happens when either side dies."""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import nats.errors
import pytest
from nats.js.api import ConsumerInfo

from groundwork.nats.consuming.pull_loop import SILENCE_SECONDS, PullLoop
from groundwork.nats.consuming.settling import DeadLetters, Delivery, Settling
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from tests.kit.bus import a_consumer, a_stream
from tests.kit.waiting import until

Handler = Callable[[Delivery], Awaitable[None]]


@contextlib.asynccontextmanager
async def consuming(
    link: NatsLink,
    handler: Handler,
    *,
    slots: int = 10,
    in_progress_s: float = 10.0,
    grace_s: float = 5.0,
    sole: bool = True,
) -> AsyncIterator[PullLoop]:
    settling = Settling(link, "WORK", "workers", handler, DeadLetters("work.dead"))
    loop = PullLoop(settling, slots=slots, in_progress_s=in_progress_s, grace_s=grace_s, sole=sole)
    running = asyncio.create_task(loop.run())
    try:
        yield loop
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def publish(link: NatsLink, *bodies: str) -> None:
    await asyncio.gather(
        *(link.publish(f"work.{body}", body.encode(), msg_id=body, headers={"Name": body}) for body in bodies)
    )


async def unacknowledged(link: NatsLink) -> int:
    return (await link.jetstream.consumer_info("WORK", "workers")).num_ack_pending or 0


async def until_all_acknowledged(link: NatsLink) -> None:
    async def none_left() -> bool:
        with contextlib.suppress(nats.errors.Error):  # while the server is away
            info: ConsumerInfo = await link.jetstream.consumer_info("WORK", "workers")
            return info.num_ack_pending == 0 and info.num_pending == 0
        return False

    await until(none_left)


class Seen:
    """A handler that remembers what it was given, and waits at the gate when that is closed."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.finished: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def bodies(self) -> list[str]:
        return [delivery.body.decode() for delivery in self.deliveries]

    async def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        await self.gate.wait()
        self.finished.append(delivery.body.decode())


@pytest.fixture
async def seen(link: NatsLink) -> Seen:
    await a_stream(link)
    await a_consumer(link, filter_subject="work.>")
    return Seen()


async def test_never_more_messages_are_in_hand_than_there_are_slots(link: NatsLink, seen: Seen) -> None:
    now, most = 0, 0

    async def handler(delivery: Delivery) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001 * (delivery.stream_seq % 5))
        now -= 1
        await seen(delivery)

    await publish(link, *map(str, range(300)))
    async with consuming(link, handler, slots=7) as loop:
        await until(lambda: len(seen.finished) == 300)
        await until(lambda: loop.free == 7)
    assert most == 7


async def test_a_slow_handler_delays_no_other(link: NatsLink, seen: Seen) -> None:
    async def handler(delivery: Delivery) -> None:
        if delivery.body == b"slow":
            await asyncio.Event().wait()
        await seen(delivery)

    await publish(link, "slow", *map(str, range(100)))
    begin = time.monotonic()
    async with consuming(link, handler, slots=2, grace_s=0.0):
        await until(lambda: len(seen.finished) == 100)
    assert time.monotonic() - begin < 3.0


async def test_a_handler_that_asks_for_it_gets_its_message_again_after_the_delay(link: NatsLink, seen: Seen) -> None:
    times: list[float] = []

    async def handler(delivery: Delivery) -> None:
        times.append(time.monotonic())
        if delivery.delivered == 1:
            raise TryAgain("not yet", delay_s=0.4)
        await seen(delivery)

    await publish(link, "a")
    async with consuming(link, handler):
        await until(lambda: seen.finished == ["a"])
    assert 0.4 <= times[1] - times[0] < 1.5
    assert seen.deliveries[0].delivered == 2


@pytest.mark.parametrize("sole", [True, False], ids=["told how often", "asks the consumer"])
async def test_a_long_handler_keeps_its_message(link: NatsLink, seen: Seen, *, sole: bool) -> None:
    await link.jetstream.delete_consumer("WORK", "workers")
    await a_consumer(link, ack_wait=1.0)

    async def handler(delivery: Delivery) -> None:
        seen.deliveries.append(delivery)
        await asyncio.sleep(3.0)
        seen.finished.append("long")

    await publish(link, "long")
    async with consuming(link, handler, in_progress_s=0.3 if sole else 60.0, sole=sole):
        await until(lambda: seen.finished == ["long"])
        await until_all_acknowledged(link)
        info: ConsumerInfo = await link.jetstream.consumer_info("WORK", "workers")
        assert info.delivered is not None
        assert info.delivered.consumer_seq == 1
    assert [delivery.delivered for delivery in seen.deliveries] == [1]


async def test_a_handler_that_ends_within_the_grace_keeps_its_message_from_who_shares_the_consumer(
    link: NatsLink, seen: Seen
) -> None:
    await link.jetstream.delete_consumer("WORK", "workers")
    await a_consumer(link, ack_wait=1.0)
    seen.gate.clear()
    others = Seen()
    await publish(link, "a")
    async with contextlib.AsyncExitStack() as stack:
        async with consuming(link, seen, sole=False):
            await until(lambda: seen.bodies == ["a"])
            await stack.enter_async_context(consuming(link, others, sole=False))
            asyncio.get_running_loop().call_later(2.5, seen.gate.set)
        await until_all_acknowledged(link)
    assert (seen.finished, others.bodies) == (["a"], [])


async def test_a_message_delivered_again_while_it_is_in_hand_is_not_handled_twice(link: NatsLink, seen: Seen) -> None:
    await link.jetstream.delete_consumer("WORK", "workers")
    await a_consumer(link, ack_wait=1.0)
    seen.gate.clear()
    await publish(link, "a")

    async def redelivered() -> bool:
        info: ConsumerInfo = await link.jetstream.consumer_info("WORK", "workers")
        return info.num_redelivered == 1

    async with consuming(link, seen, in_progress_s=60.0):  # too rarely for that ack_wait
        await until(redelivered)
        await publish(link, "z")  # its acknowledgement comes behind the second delivery
        await until(lambda: seen.bodies == ["a", "z"])
        seen.gate.set()
        await until_all_acknowledged(link)
    assert seen.bodies == ["a", "z"]


async def test_work_done_while_the_server_was_away_is_acknowledged_when_it_is_back(
    nats_server: EmbeddedNats, link: NatsLink, seen: Seen
) -> None:
    seen.gate.clear()
    await publish(link, "a")
    async with consuming(link, seen):
        await until(lambda: seen.bodies == ["a"])
        nats_server.kill()
        await until(lambda: not link.connected)
        seen.gate.set()
        await until(lambda: seen.finished == ["a"])
        await nats_server.start()
        await until(lambda: link.connected)
        await until_all_acknowledged(link)
    assert seen.bodies == ["a"]


async def test_every_message_is_handled_while_the_server_is_killed_again_and_again(
    nats_server: EmbeddedNats, link: NatsLink, seen: Seen
) -> None:
    await link.jetstream.delete_consumer("WORK", "workers")
    await a_consumer(link, ack_wait=1.0)  # what was on its way when the server died comes again only after this time
    names = [str(number) for number in range(600)]
    async with consuming(link, seen, slots=20, in_progress_s=0.3):
        for part in range(3):
            publishing = asyncio.create_task(publish(link, *names[part * 200 : part * 200 + 200]))
            await until(lambda part=part: len(seen.finished) > part * 100)  # type: ignore[misc]  # a bound default
            nats_server.kill()
            await nats_server.start()
            await publishing
        await until_all_acknowledged(link)
    assert set(seen.finished) == set(names)


@pytest.mark.usefixtures("nats_server")
async def test_messages_beyond_the_slots_wait_and_are_given_back_by_stopping(
    tmp_path: Path, link: NatsLink, seen: Seen
) -> None:
    pid = int((tmp_path / "nats" / "nats-server.pid").read_text())
    async with consuming(link, seen, slots=5, grace_s=0.1) as loop:
        await publish(link, "before")
        await until(lambda: seen.finished == ["before"])
        seen.gate.clear()
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(SILENCE_SECONDS + 0.5)  # the loop asks anew, but the server still knows the first pull
        os.kill(pid, signal.SIGCONT)
        await publish(link, *map(str, range(30)))

        async def more_than_the_slots() -> bool:
            return await unacknowledged(link) > 5

        await until(more_than_the_slots)
        assert (loop.in_hand, len(seen.deliveries)) == (5, 6)
    seen.gate.set()
    async with consuming(link, seen, slots=5):
        await until_all_acknowledged(link)  # long before ack_wait
    # One may come twice: the server reads pulls and acknowledgements each in its order, and two gave it back.
    assert set(seen.finished) == {"before", *map(str, range(30))}


async def test_a_handler_cancelled_by_stopping_gives_its_message_to_another_at_once(link: NatsLink, seen: Seen) -> None:
    await publish(link, "a")
    seen.gate.clear()
    async with consuming(link, seen, grace_s=0.1):
        await until(lambda: seen.bodies == ["a"])
    assert seen.finished == []
    seen.gate.set()
    begin = time.monotonic()
    async with consuming(link, seen):
        await until(lambda: "a" in seen.finished)  # perhaps twice, for two gave it back
    assert time.monotonic() - begin < 2.0


async def test_stopping_in_the_middle_of_the_work_keeps_no_message_back(link: NatsLink, seen: Seen) -> None:
    names = [str(number) for number in range(2000)]
    await publish(link, *names)
    for part in range(1, 20):
        async with consuming(link, seen, slots=100):
            while len(seen.finished) < part * 100:  # noqa: ASYNC110 - to stop amid the messages, not between two of them
                await asyncio.sleep(0)
    async with consuming(link, seen, slots=100):
        await until_all_acknowledged(link)  # long before ack_wait
    assert set(seen.finished) == set(names)


async def test_a_consumer_deleted_and_made_again_is_served_again(link: NatsLink, seen: Seen) -> None:
    async with consuming(link, seen) as loop:
        await publish(link, "a")
        await until(lambda: seen.finished == ["a"])
        await link.jetstream.delete_consumer("WORK", "workers")
        await until(lambda: loop.trouble != "")
        await a_consumer(link)
        await publish(link, "b")
        await until(lambda: "b" in seen.finished)


async def test_a_message_is_handled_though_one_in_hand_had_its_number_before_the_server_lost_it(
    nats_server: EmbeddedNats, link: NatsLink, tmp_path: Path
) -> None:
    store, copy = tmp_path / "nats" / "store", tmp_path / "copy"
    handled: list[str] = []
    may_end = asyncio.Event()

    async def handler(delivery: Delivery) -> None:
        handled.append(delivery.body.decode())
        if delivery.body == b"old":
            await may_end.wait()

    await a_stream(link)
    await a_consumer(link)
    await nats_server.stop()
    shutil.copytree(store, copy)
    await nats_server.start()
    async with consuming(link, handler):
        await publish(link, "old")
        await until(lambda: handled == ["old"])
        nats_server.kill()
        shutil.rmtree(store)
        shutil.copytree(copy, store)
        await nats_server.start()
        await publish(link, "new")
        await until(lambda: handled == ["old", "new"])
        may_end.set()
        await until_all_acknowledged(link)
