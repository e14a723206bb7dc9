"""Model calls that cost something, in the whole agent: cancels, crashes and outages between and in their two halves."""

import asyncio

from agent_service.core.events import CancelRequested
from agent_service.core.state import RunState
from agent_service.core.waiting import Reserve, Status
from agent_service.errors import ModelError
from tests.kit.runs import run_id
from tests.shell.world import World

RESERVE = Reserve(tokens=700, cost_usd=0.25)


async def kinds_of(world: World, number: int = 1) -> list[str]:
    return [entry.kind for entry in await world.store.entries(run_id(number))]


# Crashes


async def test_crashes_without_end_can_not_spend_more_than_the_limit() -> None:
    world = World(reserve=RESERVE)
    world.faults.strike_each("during frame", 1000)
    world.start(max_tokens=2000)
    await world.until_quiet()
    state = await world.state()
    assert (state.status, state.ending_class) == (Status.ESCALATED, "budget_tokens")
    assert state.spent.lost_tokens == 1400
    assert sum(world.mind.calls.values()) == 2


# Outages


async def test_an_outage_charges_nothing_and_the_call_is_set_aside_for_again() -> None:
    world = World(reserve=RESERVE)
    world.mind.outage = ModelError("try_again", "overloaded", "529", retry_after_s=30)
    world.start()
    await world.until_quiet()
    world.mind.outage = None
    world.clock.advance(31)
    await world.fire_timers()
    await world.until_quiet()
    state = await world.state()
    assert (state.status, state.spent.calls, state.spent.lost_calls) == (Status.DONE, 4, 0)
    assert (await kinds_of(world))[2:7] == [
        "CallReserved",
        "ModelUnavailable",
        "TimerFired",
        "CallReserved",
        "ModelReplied",
    ]


async def state_of(world: World, number: int) -> RunState:
    run = await world.store.load(run_id(number))
    assert run is not None
    return run.state


async def until(fact: asyncio.Event) -> None:
    await asyncio.wait_for(fact.wait(), 5)


async def until_set_aside(world: World, number: int) -> None:
    async with asyncio.timeout(5):
        kinds = await kinds_of(world, number)
        while kinds[-1] != "CallReserved":
            await asyncio.sleep(0)
            kinds = await kinds_of(world, number)


async def test_a_cancel_between_the_halves_of_a_call_keeps_it_from_being_made() -> None:
    world = World(reserve=RESERVE, slots=1)
    world.mind.may_answer.clear()
    world.start(name="a")
    world.start(name="b")
    turns = [asyncio.ensure_future(world.receive(number)) for number in (0, 1)]
    await until(world.mind.asked)
    [(thinking, _)] = world.mind.calls
    waiting = next(number for number in (1, 2) if run_id(number) != thinking)
    await until_set_aside(world, waiting)
    await world.turns.take(run_id(waiting), CancelRequested(at=world.clock.now(), reason="enough"))
    world.mind.may_answer.set()
    await asyncio.wait_for(asyncio.gather(*turns), 5)
    state = await state_of(world, waiting)
    assert state.status is Status.CANCELLED
    assert (run_id(waiting), 1) not in world.mind.calls
    assert (state.spent.calls, state.spent.lost_calls) == (0, 1)
