"""Whatever the moment at which the gateway dies: the call runs as often as it may, and the agent hears one result.

Every point in memory, with every kind of runner; then some with a real NATS server and a real ledger file.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ductile_gateway.bus.outgoing import NatsArtifacts, NatsBus
from ductile_gateway.calls.call import ProducedArtifact, ToolOutcome
from ductile_gateway.calls.relay import Relay
from ductile_gateway.store.ledger import SqliteLedger
from groundwork.nats.artifact_bucket import ArtifactBucket
from groundwork.nats.link import NatsLink
from schemas import keys, subjects
from tests.gateway.on_nats import a_bus, all_acknowledged, consuming, results, send
from tests.gateway.parts import RUN, FakeRunner, World, a_request, asked_for, dying, opened
from tests.kit.crashes import Mortal, Points
from tests.kit.waiting import until

PAGE = ProducedArtifact("page.html", "text/html", b"<h1>Example</h1>")
FETCHED = ToolOutcome("ok", text="Fetched", artifacts=(PAGE,))
METHODS = ("intend", "run", "name_artifacts", "put", "answer", "publish", "forget", "published")
POINTS = [f"{when} {method}" for method in METHODS for when in ("before", "after")]


def mortal_relay(world: World, death: Points, *, forgetful: bool) -> Relay:
    """A relay over the world, until its death."""
    mortal = World(
        ledger=Mortal(world.ledger, death, forgetful=forgetful),
        runner=Mortal(world.runner, death),
        artifacts=Mortal(world.artifacts, death),
        bus=Mortal(world.bus, death),
    )
    return mortal.relay()


@pytest.mark.parametrize("remembers", [True, False], ids=["runner remembers", "runner forgets"])
@pytest.mark.parametrize("forgetful", [True, False], ids=["later is lost", "later is kept"])
@pytest.mark.parametrize("command", ["handle", "save"])
@pytest.mark.parametrize("point", POINTS)
async def test_after_a_crash_anywhere_the_call_is_answered_once_and_a_write_never_ran_twice(
    point: str, command: str, forgetful: bool, remembers: bool
) -> None:
    world, death = World(runner=FakeRunner(FETCHED, remembers=remembers)), dying(point)
    asked = asked_for(a_request(command))
    with contextlib.suppress(asyncio.CancelledError):
        await mortal_relay(world, death, forgetful=forgetful).take(asked)
    assert death.died.is_set()
    alive = world.relay()
    await asyncio.gather(alive.recover(), alive.say_again(), alive.take(asked))
    answers = {result.status if result.error is None else result.error.error_class for result in world.bus.results}
    assert len(answers) == 1
    assert {key for _, key, _, _ in world.bus.messages} == {keys.result(RUN, 1, 1)}
    runs = len(world.runner.executed)
    if command == "save":
        assert runs <= 1
        assert answers <= {"ok", "in_doubt"}
    if remembers:
        assert (runs, answers) == (1, {"ok"})
    if answers == {"ok"}:
        assert runs >= 1
        assert world.artifacts.kept == {(RUN, "fetch-01.html"): (PAGE.content, "text/html")}
    assert world.runner.left == {}
    assert await world.ledger.open_intents() == []


@contextlib.asynccontextmanager
async def a_world(link: NatsLink, folder: Path, runner: FakeRunner) -> AsyncIterator[World]:
    async with opened(folder, SqliteLedger) as ledger:
        artifacts = NatsArtifacts(ArtifactBucket(link, subjects.ARTIFACT_BUCKET))
        yield World(ledger=ledger, runner=runner, artifacts=artifacts, bus=NatsBus(link))


@pytest.mark.parametrize("point", ["after intend", "before put", "after answer", "after publish", "before published"])
async def test_on_a_real_bus_a_crash_anywhere_costs_neither_the_call_nor_its_result(
    point: str, link: NatsLink, tmp_path: Path
) -> None:
    await a_bus(link)
    runner, death = FakeRunner(FETCHED), dying(point)
    await send(link, a_request("save"))
    async with (
        a_world(link, tmp_path, runner) as world,
        consuming(link, mortal_relay(world, death, forgetful=True)),
    ):
        await asyncio.wait_for(death.died.wait(), 10)
    async with a_world(link, tmp_path, runner) as world, consuming(link, world.relay()):
        await until(lambda: all_acknowledged(link))
    (result,) = await results(link)
    assert (result.status, len(runner.executed)) == ("ok", 1)
    assert await ArtifactBucket(link, subjects.ARTIFACT_BUCKET).get(f"{RUN}/fetch-01.html") == PAGE.content
