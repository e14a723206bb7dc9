"""Calls under way are counted over all gateways on a real bus, and what one that is gone had is free again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field

from ductile_gateway.bus.in_flight import A_STRANGER_FOR_S, Absent, NatsRecords, hear
from ductile_gateway.calls.admission import Lanes
from ductile_gateway.calls.shared_places import Share, SharedPlaces
from groundwork.nats.link import NatsLink
from tests.gateway.on_nats import a_bus


@dataclass
class Members:
    live: frozenset[str] = frozenset({"one", "two"})
    me: str = "one"

    def heir(self, key: str) -> str:
        del key
        return self.me

    def mine(self, owner: str, key: str) -> bool:
        del key
        return owner == self.me


@dataclass
class Gateways:
    """Each with lanes of its own for `fetch`, two calls at a time over all."""

    lanes: dict[str, Lanes] = field(default_factory=dict)
    inside: int = 0
    most: int = 0

    @contextlib.asynccontextmanager
    async def opened(self, link: NatsLink, *names: str) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(await self._gateway(link, name)) for name in names]
            yield
            for task in tasks:
                task.cancel()

    async def _gateway(self, link: NatsLink, name: str) -> Coroutine[None, None, None]:
        records, absent = NatsRecords(link), Absent(Members())
        lanes = Lanes(
            {"fetch": 2},
            most=8,
            room=64,
            share=lambda places, widths: SharedPlaces(places, widths, records, me=name, is_gone=absent.is_gone),
        )
        assert lanes.shared is not None
        await hear(link, lanes.shared)
        self.lanes[name] = lanes
        return lanes.shared.run()

    async def call(self, name: str) -> None:
        async with self.lanes[name].enter(f"run_{name}", "fetch"):
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0.001)
            self.inside -= 1


async def test_two_gateways_run_no_more_calls_of_a_tool_than_one_may(link: NatsLink) -> None:
    await a_bus(link)
    gateways = Gateways()
    async with gateways.opened(link, "one", "two"), asyncio.timeout(20):
        await asyncio.gather(*(gateways.call(name) for name in ("one", "two") * 30))
    assert gateways.most == 2


async def test_what_a_gateway_had_that_was_killed_is_given_to_the_others(link: NatsLink) -> None:
    await a_bus(link)
    records, gateways = NatsRecords(link), Gateways()
    await records.swap("fetch", {"dead": Share(has=2, needs=2, turn=2)}, 0)
    async with gateways.opened(link, "one"), asyncio.timeout(2 * A_STRANGER_FOR_S + 5):
        await gateways.call("one")
    assert "dead" not in (await records.look("fetch")).shares


def test_who_is_said_to_be_gone_is_so_at_once_and_a_newcomer_is_not() -> None:
    times = iter([0.0, A_STRANGER_FOR_S - 1, A_STRANGER_FOR_S + 1, 99.0])
    absent = Absent(Members(), clock=lambda: next(times))
    assert [absent.is_gone("three") for _ in range(3)] == [False, False, True]
    absent.gone("four")
    assert (absent.is_gone("four"), absent.is_gone("two")) == (True, False)
