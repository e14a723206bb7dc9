"""Members of a role, on real servers: who lives, who is gone, and what becomes of one that was taken for dead."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from groundwork.nats.embedded import EmbeddedNats
from groundwork.nats.leases.lease import Lease, Owner, Role, Taken
from groundwork.nats.leases.members import Members, joined, refuse_members
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from groundwork.nats.topology import KeyValueSpec, Topology, create_missing
from groundwork.service.errors import Misconfigured, TryAgain, causes
from tests.kit.cluster import Cluster, Way
from tests.kit.cut_wire import wire
from tests.kit.waiting import until

ROLE = Role(bucket="leases", key="agent", command="agentic serve")
TTL_S = 1.0


@pytest.fixture
async def server(link: NatsLink, some_server: EmbeddedNats) -> EmbeddedNats:
    await create_missing(link, _topology(1))
    return some_server


def _topology(replicas: int) -> Topology:
    settings = {"storage": "file", "max_bytes": 1 << 20, "num_replicas": replicas}
    return Topology(buckets=(KeyValueSpec("leases", settings),))


def owner(name: str, ttl_s: float = TTL_S) -> Owner:
    return Owner(holder=name, host="here", pid=1, store=f"/{name}", since="2026-11-22T10:00:00Z", ttl_s=ttl_s)


@asynccontextmanager
async def member(urls: tuple[str, ...], name: str, ttl_s: float = TTL_S) -> AsyncIterator[Members]:
    link = await connect(NatsSettings(urls=urls))
    try:
        async with joining(link, owner(name, ttl_s)) as (members, _):
            yield members
    finally:
        await link.close(within_s=0.1)


@asynccontextmanager
async def joining(link: NatsLink, who: Owner) -> AsyncIterator[tuple[Members, Lease]]:
    """Once more, where a busy cluster did not answer."""
    async with AsyncExitStack() as stack:
        while True:
            try:
                met = await stack.enter_async_context(joined(link, ROLE, who))
                break
            except (TryAgain, BaseExceptionGroup) as error:
                if not all(isinstance(cause, TryAgain) for cause in causes(error)):
                    raise
        yield met


@asynccontextmanager
async def connected_at(first: str, second: str) -> AsyncIterator[NatsLink]:
    """To the first of two servers, and knows the second."""
    link = await connect(NatsSettings(urls=(first, second)))
    try:
        while str(link.client.connected_url and link.client.connected_url.port) not in first:
            await link.go_elsewhere()
            await until(lambda: link.connected)
        yield link
    finally:
        await link.close(within_s=0.1)


async def _stay(url: str) -> None:
    async with member((url,), "b"):
        await asyncio.Event().wait()


@asynccontextmanager
async def town(server: EmbeddedNats, *names: str) -> AsyncIterator[list[Members]]:
    """Members that have met."""
    async with AsyncExitStack() as stack:
        all_of_them = [await stack.enter_async_context(member((server.url,), name)) for name in names]
        await until(lambda: all(one.live == frozenset(names) for one in all_of_them))
        yield all_of_them


async def test_one_that_is_cut_off_is_gone_after_its_ttl_and_is_told_so_when_it_comes_back(
    server: EmbeddedNats,
) -> None:
    way, gone = Way(), list[str]()
    address, _, real = server.url.rpartition(":")
    async with member((server.url,), "a") as a, wire(int(real), way.rule) as port:
        a.gone.append(gone.append)
        other = asyncio.create_task(_stay(f"{address}:{port}"))
        await until(lambda: "b" in a.live)
        way.cut()
        await until(lambda: gone == ["b"], within_s=4 * TTL_S)
        way.mend()
        with pytest.raises(BaseExceptionGroup) as ended:
            await other
        assert ended.value.subgroup(Taken)
        assert a.live == {"a"}


async def test_what_is_left_is_the_heirs_and_all_name_the_same(server: EmbeddedNats) -> None:
    runs = [f"run_{number}" for number in range(300)]
    async with town(server, "a", "b", "c") as members:
        heirs = [[one.heir(run) for run in runs] for one in members]
        assert heirs[0] == heirs[1] == heirs[2]
        assert all(60 < heirs[0].count(name) < 140 for name in "abc")
        assert [one.mine("gone", runs[0]) for one in members].count(True) == 1
        assert [one.mine("a", runs[0]) for one in members] == [True, False, False]


async def test_nobody_is_taken_for_dead_while_the_bus_has_no_leader(cluster: Cluster, cluster_link: NatsLink) -> None:
    await create_missing(cluster_link, _topology(3))
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


async def test_a_member_whose_server_is_cut_off_goes_to_another_and_stays_a_member(cut_cluster: Cluster) -> None:
    async with cut_cluster.linked() as link:
        await create_missing(link, _topology(3))
    gone: list[str] = []
    lonely, other = await cut_cluster.others("KV_leases")
    async with (
        connected_at(lonely.url, other.url) as link,
        joining(link, owner("a", 10.0)) as (a, lease),
        member((other.url,), "b", ttl_s=10.0) as b,
    ):
        await until(lambda: a.live == b.live == {"a", "b"})
        b.gone.append(gone.append)
        cut_cluster.cut_off(lonely)
        await until(lambda: lease.age_s > 4.0, within_s=10)  # its server takes its renewals no more
        await until(lambda: lease.age_s < 2.0, within_s=20)  # another one does
        assert (gone, a.trouble) == ([], "")


async def test_who_wants_the_whole_role_is_refused_beside_members(link: NatsLink, server: EmbeddedNats) -> None:
    async with member((server.url,), "a"):
        with pytest.raises(Misconfigured, match="store is shared"):
            await refuse_members(link, ROLE)
    await refuse_members(link, ROLE)
