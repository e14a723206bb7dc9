"""The places of a tool hold over several gateways, each gets its part, and a gateway that is gone takes none along."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile_gateway.calls.places import Places
from ductile_gateway.calls.shared_places import Record, Share, SharedPlaces, Shares, dealt
from groundwork.service.errors import TryAgain
from tests.kit.waiting import until

TOOL = "fetch"
NAMES = ("a", "b", "c")
anybodys = st.dictionaries(st.sampled_from(NAMES), st.builds(Share, st.integers(0, 4), st.integers(0, 6)))


@given(anybodys, st.integers(1, 12))
def test_no_more_places_are_dealt_than_there_are_and_none_is_left_that_somebody_needs(
    shares: Shares, width: int
) -> None:
    before = sum(share.has for share in shares.values())
    after = dealt(shares, width)
    has = sum(share.has for share in after.values())
    assert has <= max(width, before)
    assert has >= width or not any(share.lacks for share in after.values())
    assert all(after[name].has >= share.has for name, share in shares.items() if share.has)


class Bus:
    """The records, as all gateways see them; while `down` nobody does."""

    def __init__(self) -> None:
        self.record = Record()
        self.writes = 0
        self.down = False
        self.listening: list[SharedPlaces] = []

    async def look(self, _tool: str) -> Record:
        await self._way()
        return self.record

    async def swap(self, tool: str, shares: Shares, after: int) -> int | None:
        await self._way()
        if after != self.record.seq:
            return None
        self.record, self.writes = Record(dict(shares), after + 1), self.writes + 1
        for one in self.listening:
            asyncio.get_running_loop().call_soon(one.heard, tool)
        await self._way()
        return self.record.seq

    async def _way(self) -> None:
        await asyncio.sleep(0)
        if self.down:
            raise TryAgain("the bus is away", 0.01)


class House:
    """Gateways with calls of one tool. `running`: of all of them."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.bus = Bus()
        self.gone: set[str] = set()
        self.running: list[str] = []
        self.most = 0
        self.done: list[str] = []
        self._places: dict[str, tuple[Places, SharedPlaces]] = {}

    @contextlib.asynccontextmanager
    async def open(self, *names: str, slots: int = 32) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            tasks = []
            for name in names:
                places = Places(slots, {TOOL: 0})
                shared = SharedPlaces(
                    places, {TOOL: self.width}, self.bus, me=name, is_gone=lambda other: other in self.gone
                )
                self._places[name] = places, shared
                self.bus.listening.append(shared)
                tasks.append(group.create_task(shared.run()))
            yield
            for task in tasks:
                task.cancel()

    async def call(self, name: str, until_done: Callable[[], bool] = lambda: True) -> None:
        places, shared = self._places[name]
        await places.come(f"run_{name}", TOOL)
        self.running.append(name)
        self.most = max(self.most, len(self.running))
        await asyncio.sleep(0)
        while not until_done():  # noqa: ASYNC110 - many calls, each with an end of its own
            await asyncio.sleep(0.001)
        self.running.remove(name)
        self.done.append(name)
        shared.before_going(TOOL)
        places.go(f"run_{name}", TOOL)

    def dies(self, name: str) -> None:
        """Nothing more is heard of it."""
        self.gone.add(name)
        _, shared = self._places[name]
        self.bus.listening.remove(shared)
        for survivor in self.bus.listening:
            survivor.heard_all()


@pytest.mark.parametrize("width", [1, 2, 5])
async def test_three_gateways_together_never_run_more_than_may_and_leave_nobody_waiting(width: int) -> None:
    house = House(width)
    async with house.open(*NAMES), asyncio.timeout(20), asyncio.TaskGroup() as calls:
        for number in range(60):
            calls.create_task(house.call(NAMES[number % 3]))
    assert (house.most, len(house.done)) == (width, 60)


async def test_the_places_of_a_gateway_that_died_come_back() -> None:
    house = House(2)
    stuck = asyncio.Event()
    async with house.open("a", "b"), asyncio.timeout(20):
        held = [asyncio.create_task(house.call("a", stuck.is_set)) for _ in range(2)]
        await until(lambda: len(house.running) == 2)
        waiting = asyncio.create_task(house.call("b"))
        await until(lambda: house.bus.record.shares.get("b", Share()).lacks)
        assert not waiting.done()
        house.dies("a")
        await waiting
        stuck.set()
        await asyncio.gather(*held)
