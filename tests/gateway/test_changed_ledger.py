"""What other hands have changed in the gateway's ledger is not told to a run, not carried out, and lets no content
pass in the place of another: nobody knows then what became of the call, which is what the run is told."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from ductile_gateway.calls.call import Intent, ProducedArtifact, Receipt, ToolOutcome
from ductile_gateway.store import FILE, open_store
from ductile_gateway.store.ledger import SqliteLedger
from ductile_gateway.store.seals import Seals, seal_once
from groundwork.service.key_ring import KeyRing
from tests.gateway.parts import NOON, RUN, FakeRunner, MemoryArtifacts, World, a_request, asked_for, outcomes

CHANGED_ANSWERS = {
    "what the tool said": "UPDATE calls SET answer = CAST(replace(answer, 'done', 'paid') AS BLOB)",
    "another's": "UPDATE calls SET answer = (SELECT answer FROM calls WHERE step = 2) WHERE step = 1",
    "no seal": "UPDATE calls SET seal = NULL",
    "a forged seal": "UPDATE calls SET seal = 'k1.' || seal",
    "back to an intent": "UPDATE calls SET answer = NULL",
}
CHANGED_INTENTS = {
    "its arguments": "UPDATE calls SET request = CAST(replace(request, 'example.org', 'example.com') AS BLOB)",
    "a write that may be repeated": "UPDATE calls SET may_repeat = 1 - may_repeat",
    "its route": "UPDATE calls SET route = 'shell'",
    "what was asked": "UPDATE calls SET digest = '0'",
}


async def change(world: World, statement: str) -> None:
    def by_hand(connection: sqlite3.Connection) -> Any:
        assert connection.execute(statement).rowcount > 0

    await world.ledger.file.write(by_hand)


@pytest.mark.attack
@pytest.mark.parametrize("command", ["handle", "save"])
@pytest.mark.parametrize("what", CHANGED_ANSWERS)
async def test_a_changed_answer_is_never_told(what: str, command: str) -> None:
    world = World()
    for step in (1, 2):
        await world.relay().take(asked_for(a_request(command, step=step)))
    said = [body for _, _, body, _ in world.bus.messages]
    await change(world, CHANGED_ANSWERS[what])
    await world.relay().take(asked_for(a_request(command)))
    assert outcomes(world)[2:] == ["transient" if command == "handle" else "in_doubt"]
    assert "changed by other hands" in world.bus.results[-1].error.message
    assert world.bus.messages[-1][2] not in said
    assert len(world.runner.executed) == 2


@pytest.mark.attack
async def test_a_changed_answer_is_not_said_again_at_the_next_start() -> None:
    world = World()
    for step in (1, 2):
        await world.relay().take(asked_for(a_request(step=step)))
    await change(
        world, "UPDATE calls SET published = 0, answer = CAST(replace(answer, 'done', 'paid') AS BLOB) WHERE step = 1"
    )
    await world.relay().say_again()
    assert [result.step for result in world.bus.results] == [1, 2, 2]


@pytest.mark.attack
@pytest.mark.parametrize("what", CHANGED_INTENTS)
async def test_a_changed_intent_is_neither_resumed_nor_carried_out(what: str) -> None:
    world = World(runner=FakeRunner(remembers=False))
    asked = asked_for(a_request("save", {"url": "http://example.org"}))
    await world.ledger.intend(Intent(asked=asked, may_repeat=False, deadline_at=NOON), Receipt(NOON))
    await change(world, CHANGED_INTENTS[what])
    relay = world.relay()
    await relay.recover()
    await relay.take(asked)
    assert outcomes(world) == ["in_doubt"]
    assert (world.runner.executed, world.runner.resumed) == ([], [])


@pytest.mark.attack
async def test_an_artifact_is_not_read_by_a_digest_that_was_written_for_it() -> None:
    page = ProducedArtifact("critique.md", "text/markdown", b"the page")
    world = World(runner=FakeRunner(ToolOutcome("ok", text="done", artifacts=(page,))), artifacts=MemoryArtifacts())
    await world.relay().take(asked_for())
    await world.artifacts.put(RUN, "critique.md", b"another", "text/markdown")
    other = ProducedArtifact("critique.md", "text/markdown", b"another")
    await change(world, f"UPDATE artifacts SET sha256 = '{other.sha256}'")  # noqa: S608 - of a digest
    await world.relay().take(asked_for(a_request("read", {"document": "artifacts/critique.md"}, step=2)))
    assert outcomes(world) == ["ok", "artifact_changed"]


async def test_what_an_earlier_version_wrote_is_sealed_once_and_later_gaps_are_not(tmp_path: Path) -> None:
    keys = tmp_path / "gateway.keys"
    ring = KeyRing.open(keys)
    folder = tmp_path / "gateway"
    asked = asked_for()
    async with open_store(folder) as file:
        await SqliteLedger(file).intend(Intent(asked=asked, may_repeat=True, deadline_at=NOON))
        assert await seal_once(file, keys, ring) == 1
        assert isinstance(await SqliteLedger(file, Seals(ring)).find(asked.key), Intent)
    with contextlib.closing(sqlite3.connect(folder / FILE)) as connection, connection:
        connection.execute("UPDATE calls SET seal = NULL")
    async with open_store(folder) as file:
        assert await seal_once(file, keys, ring) == 0
        assert not isinstance(await SqliteLedger(file, Seals(ring)).find(asked.key), Intent)
