"""Whatever the moment at which the gateway dies: the call runs as often as it may, and the agent hears one result."""

import asyncio
import contextlib

import pytest

from ductile_gateway.calls.call import ProducedArtifact, ToolOutcome
from ductile_gateway.calls.relay import Relay
from schemas import keys
from tests.gateway.parts import RUN, FakeRunner, World, a_request, asked_for, dying
from tests.kit.crashes import Mortal, Points

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
