"""Who sent a message is in the journal: the bus, beside what the message says of itself."""

import json
from typing import Any

from agent_service.core.events import CancelRequested, SignalReceived, WakeAccepted
from agent_service.run.arrival import Arrival
from schemas import subjects
from schemas.envelope import RETRIED_BY
from tests.shell.world import World


async def send(world: World, subject: str, **payload: Any) -> None:
    await world.intake.receive(Arrival(subject=subject, body=json.dumps(payload).encode(), place=subject))


async def test_messages_are_from_the_bus_and_what_they_say_is_quoted() -> None:
    world = World()
    await send(world, subjects.START, goal="append once", by="shop")
    (line,) = await world.store.runs(limit=2)
    about = {"run_id": line.run_id, "by": "ann"}
    await send(world, subjects.SIGNAL, **about, signal_id="s", kind="message", message="hurry")
    await send(world, subjects.CANCEL, run_id=line.run_id)
    events = [entry.decoded() for entry in await world.store.entries(line.run_id)]
    known = [event.by for event in events if isinstance(event, WakeAccepted | SignalReceived | CancelRequested)]
    assert known == ['bus, says "shop"', 'bus, says "ann"', "bus"]


async def test_who_sent_a_dead_letter_again_is_told() -> None:
    world = World()
    body, headers = b'{"goal": "append once"}', {RETRIED_BY: "ann@desk"}
    await world.intake.receive(Arrival(subject=subjects.START, body=body, place="1-1", headers=headers))
    (line,) = await world.store.runs(limit=2)
    (entry,) = await world.store.entries(line.run_id)
    event = entry.decoded()
    assert isinstance(event, WakeAccepted)
    assert event.by == 'bus, sent again by "ann@desk"'
