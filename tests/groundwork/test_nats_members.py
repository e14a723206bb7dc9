"""The lease and the members of a role, on real servers: one owner at a time; who lives, and who may still act."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.leases.lease import Held, Lease, Owner, Record, Role, Taken, look
from groundwork.nats.leases.members import Members, joined, refuse_members
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import Topology, key_value_bucket, object_bucket, set_up
from groundwork.service.errors import Misconfigured, TryAgain, causes
from groundwork.service.machine import uptime
from tests.kit.bus import a_consumer, a_stream
from tests.kit.cluster import Cluster, Way
from tests.kit.consuming import Seen, consuming
from tests.kit.cut_wire import wire
from tests.kit.waiting import until

ROLE = Role(bucket="leases", key="agent", command="agentic serve")
TTL_S = 1.0


def _topology(replicas: int = 1) -> Topology:
    settings = {"storage": "file", "max_bytes": 1 << 20, "num_replicas": replicas}
    return Topology(
        streams=(
            key_value_bucket("leases", settings),
            object_bucket("files", {"max_bytes": 1 << 20, "num_replicas": replicas}),
        )
    )


@pytest.fixture
async def bus(link: NatsLink) -> NatsLink:
    await set_up(link, _topology())
    return link


def owner(name: str, ttl_s: float = TTL_S) -> Owner:
    return Owner(holder=name, host="here", pid=1, store=f"/{name}", since="2026-11-22T10:00:00Z", ttl_s=ttl_s)


def lease(link: NatsLink, name: str, ttl_s: float = TTL_S) -> Lease:
    return Lease(link, ROLE, owner(name, ttl_s), clock=uptime)


async def record(link: NatsLink) -> Record:
    found = await look(link, ROLE)
    assert found is not None
    return found


async def test_of_two_that_come_at_once_one_has_the_lease_and_the_other_is_told_who_and_what_to_do(
    bus: NatsLink,
) -> None:
    async def kept(name: str) -> Lease:
        """Renewed while the other waits."""
        wanted = lease(bus, name)
        await wanted.acquire()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wanted.keep(), 0.6)
        return wanted

    ends = await asyncio.gather(kept("one"), kept("two"), return_exceptions=True)
    (winner,) = [end for end in ends if isinstance(end, Lease)]
    (refusal,) = [end for end in ends if isinstance(end, Held)]
    assert (await record(bus)).owner.holder in str(refusal).replace("/", "")
    for told in ("process 1 on here", "since 2026-11-22T10:00:00Z", "serve --take-over"):
        assert told in str(refusal)
    await winner.held()


async def test_a_lease_that_is_not_renewed_is_the_newcomers_after_its_time_and_not_before(bus: NatsLink) -> None:
    dead = lease(bus, "one", ttl_s=0.6)
    await dead.acquire()
    began = uptime()
    before = await lease(bus, "two").acquire()
    assert uptime() - began > 0.5
    assert (before.owner.holder if before else "", (await record(bus)).owner.epoch) == ("one", 2)
    with pytest.raises(Taken, match="process 1 on here with the store /two"):
        await dead.held()


@dataclass
class Sleeper:
    """An owner whose machine can sleep: so much time has passed then that it was not there."""

    link: NatsLink
    slept: float = 0.0
    lease: Lease = field(init=False)

    async def begin(self, ttl_s: float = 60) -> None:
        self.lease = Lease(self.link, ROLE, owner("one", ttl_s), clock=lambda: uptime() + self.slept)
        await self.lease.acquire()
        self.link.guard_by(self.lease.held)

    async def remote_commits(self, server: EmbeddedNats) -> None:
        other = await connect(NatsSettings(urls=(server.url,)))
        await lease(other, "two").acquire(take_over=True)
        await other.close()
        self.slept = 60


async def _publishes(link: NatsLink) -> None:
    await link.publish("work.a", b"", msg_id="a", headers={})


async def _stores(link: NatsLink) -> None:
    await ArtifactBucket(link, "files").put("run/a.txt", b"late", "text/plain")


@pytest.mark.parametrize("act", [_publishes, _stores])
async def test_an_owner_that_slept_does_nothing_once_another_has_the_lease(
    bus: NatsLink, some_server: EmbeddedNats, act: Callable[[NatsLink], Awaitable[None]]
) -> None:
    await a_stream(bus)
    sleeper = Sleeper(bus)
    await sleeper.begin()
    await sleeper.remote_commits(some_server)
    with pytest.raises(Taken):
        await act(bus)
    assert not await bus.tell("work.b", b"", msg_id="b", headers={})
    assert (await bus.jetstream.stream_info("WORK")).state.messages == 0
    assert await ArtifactBucket(bus, "files").list() == []


async def test_an_owner_that_slept_and_had_no_successor_goes_on_and_keeps_its_epoch(bus: NatsLink) -> None:
    await a_stream(bus)
    sleeper = Sleeper(bus)
    await sleeper.begin(ttl_s=0.5)
    sleeper.slept = 60
    await _publishes(bus)
    assert (sleeper.lease.epoch, (await record(bus)).owner.epoch) == (1, 1)


async def test_a_message_in_the_hands_of_a_fenced_process_is_not_acknowledged_by_it(
    bus: NatsLink, some_server: EmbeddedNats
) -> None:
    await a_stream(bus)
    await a_consumer(bus)
    sleeper, seen = Sleeper(bus), Seen()
    seen.gate.clear()
    await sleeper.begin()
    await _publishes(bus)
    async with consuming(bus, seen, slots=1) as loop:
        await until(lambda: seen.deliveries)
        await sleeper.remote_commits(some_server)
        seen.gate.set()
        await until(lambda: loop.in_hand == 0)
    await bus.jetstream.account_info()  # whatever was sent before has arrived by now
    assert (await bus.jetstream.consumer_info("WORK", "workers")).num_ack_pending == 1


async def test_a_bus_that_lost_its_newest_records_does_not_cost_the_owner_its_lease(bus: NatsLink) -> None:
    await lease(bus, "nobody").acquire()
    old = (await record(bus)).owner
    slept = 0.0
    kept = Lease(bus, ROLE, owner("two", 60), clock=lambda: uptime() + slept)
    await kept.acquire(take_over=True)
    lost = {"holder": "nobody", "host": "here", "pid": 1, "store": "/nobody", "since": "", "ttl_s": 1, "epoch": 1}
    await bus.swap(ROLE.subject, json.dumps(lost).encode(), after=(await record(bus)).seq)
    slept = 60
    await kept.held()
    assert ((await record(bus)).owner.holder, old.epoch) == ("two", 1)


@asynccontextmanager
async def member(urls: tuple[str, ...], name: str) -> AsyncIterator[Members]:
    """Once more, where a busy cluster did not answer."""
    link = await connect(NatsSettings(urls=urls))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(link.close, within_s=0.1)
        while True:
            try:
                members, _ = await stack.enter_async_context(joined(link, ROLE, owner(name)))
                break
            except (TryAgain, BaseExceptionGroup) as error:
                if not all(isinstance(cause, TryAgain) for cause in causes(error)):
                    raise
        yield members


@pytest.mark.usefixtures("bus")
async def test_one_that_is_cut_off_is_gone_after_its_ttl_and_is_told_so_when_it_comes_back(
    some_server: EmbeddedNats,
) -> None:
    way, gone = Way(), list[str]()
    address, _, real = some_server.url.rpartition(":")

    async def stay(url: str) -> None:
        async with member((url,), "b"):
            await asyncio.Event().wait()

    async with member((some_server.url,), "a") as a, wire(int(real), way.rule) as port:
        a.gone.append(gone.append)
        other = asyncio.create_task(stay(f"{address}:{port}"))
        await until(lambda: "b" in a.live)
        way.cut()
        await until(lambda: gone == ["b"], within_s=4 * TTL_S)
        way.mend()
        with pytest.raises(BaseExceptionGroup) as ended:
            await other
        assert ended.value.subgroup(Taken)
        assert a.live == {"a"}


async def test_what_is_left_is_the_heirs_and_all_name_the_same_and_nobody_wants_the_whole_role(
    bus: NatsLink, some_server: EmbeddedNats
) -> None:
    runs, names = [f"run_{number}" for number in range(300)], frozenset("abc")
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(member((some_server.url,), name)) for name in sorted(names)]
        await until(lambda: all(one.live == names for one in members))
        heirs = [[one.heir(run) for run in runs] for one in members]
        assert heirs[0] == heirs[1] == heirs[2]
        assert all(60 < heirs[0].count(name) < 140 for name in names)
        assert [one.mine("gone", runs[0]) for one in members].count(True) == 1
        assert [one.mine("a", runs[0]) for one in members] == [True, False, False]
        with pytest.raises(Misconfigured, match="store is shared"):
            await refuse_members(bus, ROLE)
    await refuse_members(bus, ROLE)


async def test_no_member_is_taken_for_dead_while_the_bus_has_no_leader(
    cluster: Cluster, cluster_link: NatsLink
) -> None:
    await set_up(cluster_link, _topology(3))
    gone: list[str] = []
    urls = cluster.settings.urls
    async with member(urls, "a") as a, member(urls, "b") as b:
        await until(lambda: a.live == b.live == {"a", "b"})
        a.gone.append(gone.append)
        b.gone.append(gone.append)
        (await cluster.leader("KV_leases")).kill()
        await until(lambda: a.trouble != "", within_s=15)
        await until(lambda: a.trouble == b.trouble == "", within_s=20)
        await asyncio.sleep(2 * TTL_S)
        assert gone == []
