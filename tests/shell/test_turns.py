"""Turns beyond the straight way: cancels in the middle, outages, two processes, a bus that is away."""

import asyncio
import json
from datetime import timedelta

import pytest

from agent_service.background import Background
from agent_service.core.limits import LimitRefused
from agent_service.core.waiting import Status
from agent_service.errors import ModelError, WakeConflict
from agent_service.run.arrival import Arrival, Unreadable
from agent_service.run.recovery import Starter
from schemas import subjects
from schemas.events import AgenticStart, Constraints
from tests.kit.waiting import until
from tests.shell.world import World


def _arrival(world: World, number: int) -> Arrival:
    delivery = world.bus.unacknowledged[number]
    return Arrival(subject=delivery.subject, body=delivery.body, place=str(delivery.place))


async def test_a_model_outage_is_waited_for_in_the_store_and_charges_no_attempt() -> None:
    world = World()
    world.mind.outage = ModelError("try_again", "overloaded", "529", retry_after_s=30)
    world.start()
    await world.until_quiet()
    assert (await world.state()).asking is not None
    await world.fire_timers()
    assert sum(world.mind.calls.values()) == 1
    world.mind.outage = None
    world.clock.advance(31)
    await world.fire_timers()
    await world.until_quiet()
    state = await world.state()
    assert state.status is Status.DONE
    assert state.attempts == 2


async def test_a_reply_that_the_store_refuses_for_now_is_kept_and_not_paid_again() -> None:
    world = World()
    world.faulty.refusals = 3
    world.start()
    await world.until_quiet()
    assert (await world.state()).status is Status.DONE
    assert set(world.mind.calls.values()) == {1}
    assert world.faulty.refusals == 0


async def test_a_start_that_cannot_begin_for_want_of_tools_is_accepted_and_holds_up_no_other_message() -> None:
    world = World()
    world.offer.away = True
    world.start()
    await world.intake.receive(_arrival(world, 0))
    assert (await world.state()).status is Status.QUEUED
    world.offer.away = False
    async with asyncio.TaskGroup() as group:
        starter = Starter(world.intake, world.store, Background(group), world.brake, slots=1)
        running = group.create_task(starter.run())
        await until(lambda: bool(world.bus.events(f"{subjects.TOOL_REQUEST}.append")))
        running.cancel()


async def test_the_bus_is_told_again_what_it_forgot() -> None:
    world = World()
    world.start()
    delivery = world.bus.unacknowledged[0]
    await world.receive(0)
    world.bus.unacknowledged.remove(delivery)
    request = next(key for key in world.bus.published if key.endswith(":step:1:request"))
    forgotten = world.bus.published.pop(request)
    world.bus.unacknowledged.remove(forgotten)
    async with asyncio.TaskGroup() as group:
        await world.recovery(Background(group)).say_again(world.clock.now(), world.clock.now())
    assert world.bus.published[request].body == forgotten.body
    await world.until_quiet()
    assert (await world.state()).status is Status.DONE


@pytest.mark.parametrize(
    ("subject", "body", "reason"),
    [
        (subjects.START, b"not json", "not a valid agentic.start"),
        (subjects.START, b'{"type":"agentic.start","payload":{"goal":"  "}}', "must not be blank"),
        (subjects.START, b'{"type":"agentic.cancel","payload":{"goal":"x"}}', "came on subject agentic.start"),
        (
            subjects.START,
            b'{"type":"agentic.start","payload":{"goal":"x","constraints":{"max_steps":21}}}',
            "at most 20",
        ),
        (subjects.START, b'{"type":"agentic.start","payload":{"goal":"x","context":{"max_steps":0}}}', "whole number"),
        ("agentic.unknown", b"{}", "carries nothing"),
        (subjects.TOOL_RESULT, b'{"type":"agentic.tool_result","payload":{"run_id":"a b"}}', "run_id"),
    ],
)
async def test_a_message_that_cannot_be_taken_up_says_why_and_stores_nothing(
    subject: str, body: bytes, reason: str
) -> None:
    world = World()
    with pytest.raises(Unreadable, match=reason):
        await world.intake.receive(Arrival(subject=subject, body=body, place="1"))
    assert list(await world.store.runs(limit=10)) == []


async def test_a_wake_id_for_another_goal_is_a_conflict_and_for_the_same_goal_the_same_run() -> None:
    world = World()
    first, _ = await world.intake.wake("w", AgenticStart(goal="a"), known=False, by="test")
    again, todo = await world.intake.wake("w", AgenticStart(goal="a"), known=False, by="test")
    assert (again, todo) == (first, None)
    with pytest.raises(WakeConflict, match=first):
        await world.intake.wake("w", AgenticStart(goal="b"), known=True, by="test")


async def test_a_wake_that_is_repeated_after_its_deadline_still_names_its_run() -> None:
    world = World()
    deadline = world.clock.now() + timedelta(seconds=10)
    start = AgenticStart(goal="a", constraints=Constraints(deadline_at=deadline))
    first, _ = await world.intake.wake("w", start, known=False, by="test")
    world.clock.advance(11)
    assert await world.intake.wake("w", start, known=True, by="test") == (first, None)
    with pytest.raises(LimitRefused, match="has passed"):
        await world.intake.wake("other", start, known=False, by="test")


async def test_a_cloudevent_that_comes_again_with_its_source_and_id_is_the_same_run() -> None:
    world = World()
    event = {"specversion": "1.0", "id": "7", "source": "/shop", "type": subjects.START}
    structured = json.dumps(event | {"data": {"goal": "append"}}).encode()
    headers = {f"ce-{name}": value for name, value in event.items()}
    await world.intake.receive(Arrival(subject=subjects.START, body=structured, place="1"))
    await world.intake.receive(Arrival(subject=subjects.START, body=b'{"goal": "append"}', place="2", headers=headers))
    assert len(await world.store.runs(limit=10)) == 1


@pytest.mark.parametrize("argument", [float("nan"), "\ud800", "a\0b", "x" * 200_000])
async def test_a_plan_that_cannot_be_stored_is_told_to_the_model_and_never_sent(argument: object) -> None:
    world = World()
    world.mind.argument = argument
    world.start()
    await world.until_quiet()
    state = await world.state()
    assert (state.status, state.ending_class) == (Status.ESCALATED, "invalid_decision")
    assert world.gateway.executed == {}


async def test_whoever_breaks_over_what_was_committed_breaks_no_run() -> None:
    world = World(on_commit=lambda moment: 1 / (moment.entry.seq % 2))
    world.start()
    await world.until_quiet()
    assert (await world.state()).status is Status.DONE


async def test_what_the_bus_does_not_take_is_kept_and_said_later() -> None:
    world = World()
    world.bus.away = True
    run_id, accepted = await world.intake.wake("w", AgenticStart(goal="append"), known=False, by="test")
    await world.intake.follow(accepted)
    assert world.bus.published == {}
    world.bus.away = False
    await world.try_again()
    assert [event["run_id"] for event in world.bus.events(subjects.START)] == [run_id]
    assert world.turns.undone.left == {}
    await world.until_quiet()
    assert (await world.state()).status is Status.DONE
