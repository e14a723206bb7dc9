"""Runs take turns on a real bus too: a hundred requests of one do not keep another's from being looked at."""

import asyncio
from typing import Any

import pytest

from ductile_gateway.bus.outgoing import NatsBus
from ductile_gateway.calls.call import Past
from ductile_gateway.ports import unrecorded
from groundwork.nats.link import NatsLink
from tests.gateway.on_nats import a_bus, consuming, results, send
from tests.gateway.parts import FakeRunner, MemoryLedger, World, a_request
from tests.kit.waiting import until

SINGLE = "run_single"
WIDTH = 2


class OneByOne(FakeRunner):
    """Each call ends when one more `may_end`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = asyncio.Semaphore(0)

    async def run(self, call: Any, begin: Any = unrecorded) -> Any:
        await begin()
        self.executed.append(call)
        await self.may_end.acquire()
        return self.verdict


class Asked(MemoryLedger):
    """Knows which runs it was asked about: right after that a call is in line."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: set[str] = set()

    async def find(self, key: str) -> Past:
        self.runs.add(key.partition(":")[0])
        return await super().find(key)


@pytest.mark.parametrize("room", [4, 200], ids=["most of them given back to the bus", "all of them in hand"])
async def test_a_single_step_runs_as_soon_as_one_of_the_calls_in_flight_has_ended(link: NatsLink, room: int) -> None:
    await a_bus(link)
    ledger, runner = Asked(), OneByOne()
    world = World(bus=NatsBus(link), runner=runner, ledger=ledger)
    relay = world.relay(width=WIDTH, room=room)
    for number in range(1, 101):
        await send(link, a_request(of=(f"task-{number}", 1)))
    async with consuming(link, relay, slots=WIDTH + room + 4):
        await until(lambda: len(runner.executed) == WIDTH)
        await send(link, a_request(run_id=SINGLE))
        await until(lambda: SINGLE in ledger.runs)
        runner.may_end.release()
        await until(lambda: len(runner.executed) == WIDTH + 1)
        assert runner.executed[-1].asked.request.run_id == SINGLE
        for _ in range(100):
            runner.may_end.release()
        await until(lambda: _answered(link, 101), within_s=60)


async def _answered(link: NatsLink, number: int) -> bool:
    return len(await results(link)) == number
