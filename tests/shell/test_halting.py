"""Stopping everything: nothing begins until somebody lets it go on; then nothing is lost, done twice or too late.

And stopping this process alone: it takes nothing new, ends what it has in hand, and then itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from agent_service.background import Background
from agent_service.core.brief import Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.waiting import Reserve, Status
from agent_service.kill_switch import Brake, Draining
from schemas import subjects
from schemas.status import Halt
from tests.kit.crashes import Crash
from tests.kit.runs import NOON
from tests.kit.waiting import until
from tests.shell.world import REQUEST, RESERVE, Mind, World

AN_HOUR = LimitPolicy(defaults=Limits(deadline_at=NOON), wall_clock_s=3600)


async def with_a_tool_at_work(reserve: Reserve | None = None) -> World:
    """A run whose first step was asked for, and not answered."""
    world = World(Mind(reserve), policy=AN_HOUR)
    world.start()
    await world.take(subjects.START)
    assert len(world.bus.events(REQUEST)) == 1
    return world


async def check_that_it_ends_well(world: World) -> None:
    await world.until_quiet()
    assert (await world.state()).status is Status.DONE
    assert (len(world.gateway.executed), len(world.bus.events(subjects.COMPLETED))) == (2, 1)
    assert await world.store.untold(10) == []


async def test_time_that_stood_still_counts_against_no_run_and_no_tool() -> None:
    world = await with_a_tool_at_work()
    before = await world.state()
    await world.stop_all()
    world.clock.advance(seconds=3 * 86400)
    await world.fire_timers()
    assert await world.state() == before
    await world.go_on()
    await world.fire_timers()
    after = await world.state()
    days = timedelta(days=3)
    assert after.brief.limits.deadline_at == before.brief.limits.deadline_at + days
    assert after.pending
    assert before.pending
    assert after.pending.deadline_at == before.pending.deadline_at + days
    await check_that_it_ends_well(world)


@pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])
async def test_a_crash_at_any_point_of_stopping_and_going_on_loses_nothing_and_repeats_nothing(
    reserve: Reserve | None,
) -> None:
    point, crashed = 0, True
    while crashed:
        point += 1
        world = await with_a_tool_at_work(reserve)
        world.faults.strike_at(point)
        for act in (world.stop_all, world.until_quiet, world.go_on):
            await until_done(world, act)
        crashed = world.crashes > 0
        world.faults.strike_at(None)
        await check_that_it_ends_well(world)
    assert point > 8


async def until_done(world: World, act: Callable[[], Awaitable[None]]) -> None:
    """Whoever asks for something and hears of a crash asks again."""
    try:
        await act()
    except* Crash:
        world.crashes += 1
        world.build_anew()
        await world.resume()
        await act()


async def test_a_stop_that_a_person_writes_on_the_bus_counts_when_the_agent_starts() -> None:
    world = await with_a_tool_at_work()
    world.board.halt = Halt(since=NOON, by="ben", reason="no agent was there")
    world.build_anew()
    await world.resume()
    await world.until_quiet()
    assert "stopped by ben (written on the bus)" in world.brake.why
    assert len(world.bus.events(REQUEST)) == 1


async def test_nobody_lets_everything_go_on_by_writing_to_the_bus() -> None:
    world = await with_a_tool_at_work()
    await world.stop_all()
    stopped = world.board.halt
    assert stopped
    for forged in (None, Halt(since=NOON, until=NOON, over=True), stopped.model_copy(update={"over": True})):
        world.board.halt = forged
        async with asyncio.TaskGroup() as group:
            await world.halting(Background(group)).look()
        assert (world.brake.halt, world.board.halt) == (stopped, stopped)


async def test_what_another_stops_is_stopped_here_and_goes_on_when_that_one_lets_it() -> None:
    world = await with_a_tool_at_work()
    halt = Halt(number=1, since=NOON, by="ann", reason="it mails everybody")
    async with asyncio.TaskGroup() as group:
        switch = world.halting(Background(group))
        switch.hear(halt)
        calls = world.mind.calls.total()
        await world.until_quiet()
        assert (await world.state()).has_finished(1)
        assert world.mind.calls.total() == calls
        let_go = halt.model_copy(update={"until": NOON, "until_by": "ann"})
        switch.hear(let_go)
        assert "stopped by ann" in world.brake.why
        switch.hear(let_go.model_copy(update={"over": True}))
        switch.hear(halt)  # which comes late, and counts for nothing
    await check_that_it_ends_well(world)


@pytest.mark.parametrize("ends_in_time", [True, False])
async def test_a_process_that_is_drained_ends_with_its_last_model_call_or_gives_it_up(ends_in_time: bool) -> None:
    left, ended, calls = asyncio.Event(), asyncio.Event(), [1]

    async def leave(_: float) -> None:
        await left.wait()

    async with asyncio.TaskGroup() as group:
        draining = Draining(
            brake=Brake(), background=Background(group), leave=leave, thinking=lambda: calls[0], end=ended.set
        )
        draining.begin(9.0 if ends_in_time else 0.1, by="somebody")
        if ends_in_time:
            left.set()
            await asyncio.sleep(0.3)
            assert not ended.is_set()
            calls[0] = 0
        await until(ended.is_set)
