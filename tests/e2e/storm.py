"""What befalls a fleet on a cluster: each fault begins, lasts a while and is over, and everybody lives again.

The times are longer than what they try: a member's lease (4 s), ack_wait (5 s), an election (4 to 9 s).
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nats.js.api import StreamConfig

from groundwork.nats.link import NatsLink
from schemas import subjects
from tests.kit.cluster import Cluster
from tests.kit.fleet import Fleet, Member

AWAY_S = 8.0
ELECTION_S = 12.0
WITHOUT_QUORUM_S = 5.0
FULL_S = 5.0
WHOLE_WITHIN_S = 30.0
LULL_S = (3.0, 5.0)
"""Least and most: what one fault has delayed goes on before the next comes."""


@dataclass(frozen=True, slots=True)
class Struck:
    """One fault. Wall-clock times, in seconds."""

    fault: str
    at: float
    over: float
    whole_s: float = 0.0
    """After how many seconds more all copies of all streams were whole again."""
    behind: tuple[str, ...] = ()
    """Those that were not within WHOLE_WITHIN_S."""


@dataclass(slots=True)
class Storm:
    fleet: Fleet
    chance: random.Random
    struck: list[Struck] = field(default_factory=list)

    @property
    def cluster(self) -> Cluster:
        return self.fleet.cluster

    @property
    def stream(self) -> str:
        """Without which no run goes on."""
        return subjects.STREAM_RUNS if self.fleet.options.store == "jetstream" else subjects.STREAM

    async def strike(self, faults: Sequence[str], times: int) -> None:
        """Each so many times, in any order, with lulls between them."""
        order = list(itertools.chain.from_iterable(itertools.repeat(faults, times)))
        self.chance.shuffle(order)
        for fault in order:
            await asyncio.sleep(self.chance.uniform(*LULL_S))
            began = time.time()
            await FAULTS[fault](self)
            over = time.time()
            behind = await self.cluster.whole(within_s=WHOLE_WITHIN_S)
            self.struck.append(Struck(fault, began, over, time.time() - over, tuple(behind)))

    def any_agent(self) -> Member:
        return self.chance.choice(self.fleet.agents)

    def any_gateway(self) -> Member:
        return self.chance.choice(self.fleet.gateways)

    async def killed(self, member: Member) -> None:
        """Away for so long that the others have what it had."""
        member.kill()
        await asyncio.sleep(AWAY_S)
        member.start()
        await member.ready()

    async def at_once_again(self, member: Member) -> None:
        """As a supervisor starts what has died."""
        member.kill()
        member.start()
        await member.ready()

    async def stopped(self, member: Member) -> None:
        """It sleeps until the others have what it had, and then goes on as if nothing had been."""
        member.stop()
        await asyncio.sleep(AWAY_S)
        member.go_on()
        await member.ready()

    async def parted(self, member: Member) -> None:
        """It lives, and hears nothing of the bus."""
        member.way.cut()
        await asyncio.sleep(AWAY_S)
        member.way.mend()
        await member.ready()

    async def rolled(self, members: Sequence[Member]) -> None:
        """Ended in good order and started again, one after another: an upgrade, where they ran an earlier version."""
        for member in members:
            await member.end()
            member.code = None
            member.start()
            await member.ready()

    async def leader_killed(self) -> None:
        (await self.cluster.leader(self.stream)).kill()
        await asyncio.sleep(ELECTION_S)
        await self.cluster.heal()

    async def leader_stopped(self) -> None:
        (await self.cluster.leader(self.stream)).stop()
        await asyncio.sleep(ELECTION_S)
        await self.cluster.heal()

    async def leader_parted(self) -> None:
        """From the other nodes: its clients still reach it."""
        self.cluster.cut_off(await self.cluster.leader(self.stream))
        await asyncio.sleep(ELECTION_S)
        await self.cluster.heal()

    async def two_nodes_killed(self) -> None:
        for node in self.chance.sample(self.cluster.nodes, 2):
            node.kill()
        await asyncio.sleep(WITHOUT_QUORUM_S)
        await self.cluster.heal()

    async def all_nodes_killed(self) -> None:
        self.cluster.kill()
        await self.cluster.heal()

    async def nodes_rolled(self) -> None:
        for node in self.cluster.nodes:
            await node.end()
            node.start()
            await self.cluster.ready()

    async def stream_full(self) -> None:
        """A stream that refuses what it has no room for takes nothing more, until it is given room."""
        stream = subjects.STREAM_RUNS if self.stream == subjects.STREAM_RUNS else subjects.STREAM_STARTS
        async with self.cluster.linked() as link:
            info = await link.jetstream.stream_info(stream)
            await _change(link, info.config, max(1, info.state.bytes))
            await asyncio.sleep(FULL_S)
            await _change(link, info.config, info.config.max_bytes or -1)


async def _change(link: NatsLink, config: StreamConfig, max_bytes: int) -> None:
    wanted = json.dumps(config.as_dict() | {"max_bytes": max_bytes}).encode()
    answer = await link.request(f"$JS.API.STREAM.UPDATE.{config.name}", wanted)
    assert "error" not in json.loads(answer), answer


FAULTS: Mapping[str, Callable[[Storm], Awaitable[None]]] = {
    "agent killed": lambda storm: storm.killed(storm.any_agent()),
    "agent killed, started at once": lambda storm: storm.at_once_again(storm.any_agent()),
    "agent stopped": lambda storm: storm.stopped(storm.any_agent()),
    "agent parted from the bus": lambda storm: storm.parted(storm.any_agent()),
    "agents rolled": lambda storm: storm.rolled(storm.fleet.agents),
    "gateway killed": lambda storm: storm.killed(storm.any_gateway()),
    "gateway killed, started at once": lambda storm: storm.at_once_again(storm.any_gateway()),
    "gateway stopped": lambda storm: storm.stopped(storm.any_gateway()),
    "gateway parted from the bus": lambda storm: storm.parted(storm.any_gateway()),
    "gateways rolled": lambda storm: storm.rolled(storm.fleet.gateways),
    "leader killed": Storm.leader_killed,
    "leader stopped": Storm.leader_stopped,
    "leader parted from its followers": Storm.leader_parted,
    "two nodes killed": Storm.two_nodes_killed,
    "all nodes killed": Storm.all_nodes_killed,
    "nodes rolled": Storm.nodes_rolled,
    "stream full": Storm.stream_full,
}
