"""Whatever the moment at which one of two gateways dies: the other one ends its call, and a write never ran twice."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from ductile_gateway.bus.among_others import AmongOthers
from ductile_gateway.calls.call import Asked
from ductile_gateway.calls.relay import Relay
from ductile_gateway.store.stores import Stores
from groundwork.service.errors import TryAgain
from schemas import keys
from tests.gateway.crashes import POINTS, dying
from tests.gateway.parts import RUN, FakeRunner, MemoryArtifacts, MemoryBus, World, a_request, asked_for
from tests.gateway.test_relay_crashes import FETCHED
from tests.kit.crashes import Mortal
from tests.ledger.crowd import Crowd, Party


class Ductile(FakeRunner):
    """Tools that every gateway finds, whoever has started them."""

    finds_anywhere = True


class Town:
    """Two gateways, one ledger, one bus. With `anywhere` they have their tools in common, else each has its own."""

    def __init__(self, folder: Path, *, anywhere: bool) -> None:
        self.crowd = Crowd(folder)
        self.bus, self.artifacts = MemoryBus(), MemoryArtifacts()
        ductile = Ductile(FETCHED)
        self.runners = {name: ductile if anywhere else FakeRunner(FETCHED) for name in ("a", "b")}

    @property
    def started(self) -> int:
        return sum(len(runner.executed) for runner in {id(one): one for one in self.runners.values()}.values())

    def world(self, name: str, stores: Stores) -> World:
        world = World(ledger=stores.ledger, runner=self.runners[name], artifacts=self.artifacts, bus=self.bus)
        world.ownership = AmongOthers(Party(name, self.crowd.live), nothing)
        return world

    def mortal(self, stores: Stores, point: str) -> Relay:
        world, death = self.world("a", stores), dying(point)
        for port in ("ledger", "runner", "artifacts", "bus"):
            setattr(world, port, Mortal(getattr(world, port), death, forgetful=port == "ledger"))
        return world.relay()


async def nothing() -> None:
    """The lease is held."""


async def insists(relay: Relay, asked: Asked) -> None:
    """The bus, which brings a request until it is answered."""
    while True:
        with contextlib.suppress(TryAgain):
            return await relay.take(asked)
        await asyncio.sleep(0)


@pytest.mark.parametrize("anywhere", [True, False], ids=["tools of a Ductile", "plugins of its own"])
@pytest.mark.parametrize("command", ["handle", "save"])
@pytest.mark.parametrize("point", POINTS)
async def test_the_other_ends_the_call_of_one_that_dies_anywhere(
    point: str, command: str, anywhere: bool, tmp_path: Path
) -> None:
    town, asked = Town(tmp_path, anywhere=anywhere), asked_for(a_request(command))
    async with town.crowd.in_memory("a") as a, town.crowd.in_memory("b") as b:
        with contextlib.suppress(asyncio.CancelledError):
            await town.mortal(a, point).take(asked)
        town.crowd.live.discard("a")
        alive = town.world("b", b).relay()
        await asyncio.gather(alive.recover(), alive.say_again(), insists(alive, asked))
        told = {result.error.error_class if result.error else result.status for result in town.bus.results}
        assert len(told) == 1
        assert {key for _, key, _, _ in town.bus.messages} == {keys.result(RUN, 1, 1)}
        assert await b.ledger.open_intents() == []
    if command == "save":
        assert town.started <= 1
        assert told <= ({"ok"} if anywhere else {"ok", "in_doubt"})
    else:
        assert told == {"ok"}


@pytest.mark.parametrize("anywhere", [True, False], ids=["tools of a Ductile", "plugins of its own"])
async def test_a_request_that_comes_to_both_while_both_live_runs_once(tmp_path: Path, anywhere: bool) -> None:
    town, asked = Town(tmp_path, anywhere=anywhere), asked_for(a_request("save"))
    async with town.crowd.in_memory("a") as a, town.crowd.in_memory("b") as b:
        relays = [town.world(name, stores).relay() for name, stores in (("a", a), ("b", b))]
        await asyncio.gather(*(insists(relay, asked) for relay in relays))
    assert town.started == 1
    assert {result.status for result in town.bus.results} == {"ok"}
