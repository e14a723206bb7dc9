"""Stopping everything: nothing begins until somebody lets it go on; then nothing is lost, done twice or too late."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from agent_service.background import Background
from agent_service.core.brief import Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.waiting import Reserve
from schemas import subjects
from schemas.status import Halt
from tests.kit.crashes import Crash
from tests.kit.runs import NOON
from tests.shell.courses import COURSES, RESERVE, check
from tests.shell.world import World

MINDS = pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])
AN_HOUR = LimitPolicy(defaults=Limits(deadline_at=NOON), wall_clock_s=3600)


def requests(world: World) -> list[dict[str, Any]]:
    return world.bus.events(subjects.tool_request("append"))


async def with_a_tool_at_work(reserve: Reserve | None = None, policy: LimitPolicy = AN_HOUR) -> World:
    """A run whose first step was asked for, and not answered."""
    world = World(reserve=reserve, policy=policy)
    world.start()
    await world.receive(0)
    world.bus.unacknowledged.pop(0)
    assert len(requests(world)) == 1
    return world


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
    await world.until_quiet()
    await check(world, COURSES["two steps"])


@MINDS
async def test_a_crash_at_any_point_of_stopping_and_going_on_loses_nothing_and_repeats_nothing(
    reserve: Reserve | None,
) -> None:
    point = 0
    while True:
        point += 1
        world = await with_a_tool_at_work(reserve)
        world.faults.strike_at(point)
        for act in (world.stop_all, world.until_quiet, world.go_on):
            await until_done(world, act)
        if not world.crashes:
            break
        world.faults.strike_at(None)
        await world.until_quiet()
        await check(world, COURSES["two steps"])
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
    assert len(requests(world)) == 1


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
