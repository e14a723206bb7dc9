"""The lease, on a real server: one owner at a time, who is told; who slept or lost the bus cannot act unnoticed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.consuming.pull_loop import PullLoop
from groundwork.nats.consuming.settling import DeadLetters, Delivery, Settling
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.leases.lease import Held, Lease, Owner, Record, Role, Taken, boot_time, hold, look
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import BucketSpec, KeyValueSpec, Topology, create_missing
from tests.kit.bus import a_consumer, a_stream
from tests.kit.waiting import until

ROLE = Role(bucket="leases", key="agent", command="agentic serve")


class Clock:
    """The owner's clock, which can be set ahead: so much time has passed that the owner was not there."""

    def __init__(self) -> None:
        self.slept = 0.0

    def __call__(self) -> float:
        return boot_time() + self.slept


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await create_missing(link, Topology(buckets=(KeyValueSpec("leases", {"storage": "file", "max_bytes": 1 << 20}),)))
    return link


def owner(name: str, *, ttl_s: float = 1.0, pid: int = 1) -> Owner:
    return Owner(holder=name, host="here", pid=pid, store=f"/{name}", since="2026-11-22T10:00:00Z", ttl_s=ttl_s)


def lease(link: NatsLink, name: str, *, ttl_s: float = 1.0, pid: int = 1, clock: Clock | None = None) -> Lease:
    return Lease(link, ROLE, owner(name, ttl_s=ttl_s, pid=pid), clock=clock or boot_time)


async def record(link: NatsLink) -> Record:
    found = await look(link, ROLE)
    assert found is not None
    return found


@contextlib.asynccontextmanager
async def another_link(server: EmbeddedNats) -> AsyncIterator[NatsLink]:
    link = await connect(NatsSettings(urls=(server.url,)))
    try:
        yield link
    finally:
        await link.close()


async def test_of_two_that_come_at_once_one_has_the_lease_and_the_other_is_told_who_and_what_to_do(
    bus: NatsLink,
) -> None:
    ends = await asyncio.gather(*(_kept(lease(bus, name)) for name in ("one", "two")), return_exceptions=True)
    (winner,) = [end for end in ends if isinstance(end, Lease)]
    (refusal,) = [end for end in ends if isinstance(end, Held)]
    assert (await record(bus)).owner.holder in str(refusal).replace("/", "")
    for told in ("process 1 on here", "since 2026-11-22T10:00:00Z", "renewed 0.", "expires 1 s", "serve --take-over"):
        assert told in str(refusal)
    await winner.held()


async def _kept(wanted: Lease) -> Lease:
    """Have it, and renew it while the other waits."""
    await wanted.acquire()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wanted.keep(), 0.6)
    return wanted


async def test_a_lease_that_nobody_renews_is_the_newcomers_after_its_time_and_not_before(bus: NatsLink) -> None:
    dead = lease(bus, "one", ttl_s=0.6)
    await dead.acquire()
    began = boot_time()
    before = await lease(bus, "two").acquire()
    assert boot_time() - began > 0.5
    assert (before.owner.holder if before else "", (await record(bus)).owner.epoch) == ("one", 2)
    with pytest.raises(Taken, match="process 1 on here with the store /two"):
        await dead.held()


async def test_who_is_taken_over_learns_it_within_one_renewal_and_by_whom(
    bus: NatsLink, nats_server: EmbeddedNats
) -> None:
    async with another_link(nats_server) as other:
        with pytest.raises(ExceptionGroup) as ended:
            await _taken_over(lease(bus, "one"), bus, by=lease(other, "two"))
    (taken,) = ended.value.exceptions
    assert isinstance(taken, Taken)
    assert "process 1 on here with the store /two" in str(taken)


async def _taken_over(first: Lease, link: NatsLink, *, by: Lease) -> None:
    async with hold(first, link), asyncio.timeout(5):
        await by.acquire(take_over=True)
        await asyncio.Event().wait()


async def test_an_owner_that_slept_publishes_nothing_once_another_has_the_lease(
    bus: NatsLink, nats_server: EmbeddedNats
) -> None:
    await a_stream(bus)
    clock = Clock()
    sleeper = lease(bus, "one", ttl_s=60, clock=clock)
    await sleeper.acquire()
    bus.guard_by(sleeper.held)
    async with another_link(nats_server) as other:
        await lease(other, "two").acquire(take_over=True)
    clock.slept = 60
    with pytest.raises(Taken):
        await bus.publish("work.a", b"", msg_id="a", headers={})
    assert not await bus.tell("work.b", b"", msg_id="b", headers={})
    assert (await bus.jetstream.stream_info("WORK")).state.messages == 0


async def test_an_owner_that_slept_stores_no_artifact_once_another_has_the_lease(
    bus: NatsLink, nats_server: EmbeddedNats
) -> None:
    await create_missing(bus, Topology(buckets=(BucketSpec("files", {"max_bytes": 1 << 20}),)))
    clock, files = Clock(), ArtifactBucket(bus, "files")
    sleeper = lease(bus, "one", ttl_s=60, clock=clock)
    await sleeper.acquire()
    bus.guard_by(sleeper.held)
    async with another_link(nats_server) as other:
        await lease(other, "two").acquire(take_over=True)
    clock.slept = 60
    with pytest.raises(Taken):
        await files.put("run/a.txt", b"late", "text/plain")
    assert await files.list() == []


async def test_an_owner_that_slept_and_had_no_successor_goes_on_and_keeps_its_epoch(bus: NatsLink) -> None:
    await a_stream(bus)
    clock = Clock()
    sleeper = lease(bus, "one", ttl_s=0.5, clock=clock)
    await sleeper.acquire()
    bus.guard_by(sleeper.held)
    clock.slept = 60
    await bus.publish("work.a", b"", msg_id="a", headers={})
    assert (sleeper.epoch, (await record(bus)).owner.epoch) == (1, 1)


async def test_a_message_in_the_hands_of_a_fenced_process_is_not_acknowledged_by_it(
    bus: NatsLink, nats_server: EmbeddedNats
) -> None:
    await a_stream(bus)
    await a_consumer(bus)
    clock, in_hand, go = Clock(), asyncio.Event(), asyncio.Event()

    async def handler(_: Delivery) -> None:
        in_hand.set()
        await go.wait()

    sleeper = lease(bus, "one", ttl_s=60, clock=clock)
    await sleeper.acquire()
    bus.guard_by(sleeper.held)
    await bus.publish("work.a", b"", msg_id="a", headers={})
    loop = PullLoop(Settling(bus, "WORK", "workers", handler, DeadLetters("work.dead")), slots=1, in_progress_s=10)
    async with another_link(nats_server) as other:
        running = asyncio.create_task(loop.run())
        await in_hand.wait()
        await lease(other, "two").acquire(take_over=True)
        clock.slept = 60
        go.set()
        await until(lambda: loop.in_hand == 0)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await bus.jetstream.account_info()  # whatever was sent before has arrived by now
        assert (await other.jetstream.consumer_info("WORK", "workers")).num_ack_pending == 1


async def test_a_bus_that_lost_its_newest_records_does_not_cost_the_owner_its_lease(bus: NatsLink) -> None:
    clock = Clock()
    kept = lease(bus, "two", ttl_s=60, clock=clock)
    await lease(bus, "one").acquire()
    old = await record(bus)
    await kept.acquire(take_over=True)
    mine = await record(bus)
    await bus.swap(
        ROLE.subject,
        b'{"holder":"one","host":"here","pid":1,"store":"/one","since":"","ttl_s":1,"epoch":1}',
        after=mine.seq,
    )
    clock.slept = 60
    await kept.held()
    assert ((await record(bus)).owner.holder, old.owner.epoch) == ("two", 1)
