"""Artifacts on their way through the relay: made by one call, named in its result, given to another."""

import asyncio

import pytest

from ductile_gateway.calls.call import ProducedArtifact, ToolOutcome
from groundwork.service.errors import TryAgain
from tests.gateway.parts import RUN, FakeRunner, World, a_request, asked_for, outcomes
from tests.kit.waiting import until

PAGE = ProducedArtifact("page.html", "text/html", b"<h1>Example</h1>")
CRITIQUE = ProducedArtifact("critique.md", "text/markdown", b"# Good")


async def test_artifacts_are_stored_before_the_answer_and_named_in_it() -> None:
    world = World(runner=FakeRunner(ToolOutcome("ok", text="Fetched", artifacts=(PAGE, CRITIQUE))))
    await world.relay().take(asked_for())
    assert world.artifacts.kept == {
        (RUN, "fetch-01.html"): (PAGE.content, "text/html"),
        (RUN, "critique.md"): (CRITIQUE.content, "text/markdown"),
    }
    (result,) = world.bus.results
    assert result.result is not None
    assert (result.result.artifact_path, result.result.excerpt) == ("artifacts/fetch-01.html", "<h1>Example</h1>")


async def test_a_tool_gets_the_content_of_an_artifact_in_place_of_its_path() -> None:
    world = World()
    world.artifacts.kept[RUN, "fetch-01.html"] = "<h1>é</h1>".encode(), "text/html"
    await world.relay().take(asked_for(a_request("read", {"document": "artifacts/fetch-01.html", "n": 1})))
    (call,) = world.runner.executed
    document = {"path": "artifacts/fetch-01.html", "content_type": "text/html", "text": "<h1>é</h1>"}
    assert call.payload == {"document": document, "n": 1}


async def test_while_artifacts_cannot_be_stored_the_outcome_waits_and_the_tool_does_not_run_again() -> None:
    world = World(runner=FakeRunner(ToolOutcome("ok", artifacts=(PAGE,))))
    world.artifacts.down = True
    relay = world.relay()
    for _ in range(2):
        with pytest.raises(TryAgain):
            await relay.take(asked_for(a_request("save")))
    world.artifacts.down = False
    await relay.take(asked_for(a_request("save")))
    assert len(world.runner.executed) == 1
    assert outcomes(world) == ["ok"]


async def test_a_call_is_resumed_with_the_very_arguments_that_it_was_made_with() -> None:
    world, asked = World(), asked_for(a_request("read", {"document": "artifacts/page.md"}))
    world.artifacts.kept[RUN, "page.md"] = b"# A page", "text/markdown"
    world.runner.gate.clear()
    first = asyncio.create_task(world.relay().take(asked))
    await until(lambda: bool(world.runner.executed))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    world.runner.gate.set()
    await world.relay().recover()
    assert world.runner.resumed_with == [call.payload for call in world.runner.executed]
    assert world.runner.resumed_with[0]["document"]["text"] == "# A page"


async def test_an_artifact_of_another_run_cannot_be_had() -> None:
    world = World()
    world.artifacts.kept["run_other", "secret.md"] = b"secret", "text/markdown"
    await world.relay().take(asked_for(a_request("read", {"document": "artifacts/secret.md"})))
    assert outcomes(world) == ["not_found"]
