"""Stopping everything: nothing begins until somebody lets it go on; then nothing is lost, done twice or too late."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from agent_service.background import Background
from agent_service.core.brief import Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.waiting import Reserve, Status
from agent_service.errors import Stopped
from schemas import subjects
from schemas.halt import Halt
from tests.kit.crashes import Crash
from tests.kit.runs import NOON
from tests.shell.test_crashes import check_the_end
from tests.shell.world import World

RESERVE = Reserve(tokens=700, cost_usd=0.25)
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


@MINDS
async def test_what_is_under_way_is_recorded_and_nothing_follows_from_it(reserve: Reserve | None) -> None:
    world = await with_a_tool_at_work(reserve)
    calls = world.mind.calls.total()
    await world.stop_all()
    await world.until_quiet()
    state = await world.state()
    assert [record.step for record in state.completed] == [1]
    assert (state.status, len(requests(world)), world.mind.calls.total()) == (Status.RUNNING, 1, calls)


@MINDS
async def test_it_goes_on_where_it_was(reserve: Reserve | None) -> None:
    world = await with_a_tool_at_work(reserve)
    await world.stop_all()
    await world.until_quiet()
    await world.go_on()
    await world.until_quiet()
    await check_the_end(world)
    assert set(world.mind.calls.values()) == {1}
    assert (await world.state()).spent.lost_calls == 0


async def test_a_plan_that_was_made_meanwhile_asks_its_tool_once_everything_goes_on() -> None:
    world = World()
    world.mind.may_answer.clear()
    world.start()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.receive(0))
        await world.mind.asked.wait()
        await world.stop_all()
        world.mind.may_answer.set()
    assert world.mind.calls.total() == 1
    assert requests(world) == []
    world.bus.unacknowledged.pop(0)
    await world.go_on()
    await world.until_quiet()
    await check_the_end(world)


async def test_nothing_new_is_taken_while_everything_is_stopped() -> None:
    world = World()
    world.start()
    await world.stop_all()
    with pytest.raises(Stopped, match=r"stopped by ann since 2026-.*Z: it mails everybody"):
        await world.receive(0)
    assert await world.family() == []


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
    await check_the_end(world)


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
        await check_the_end(world)
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


async def test_it_is_stopped_still_after_a_restart() -> None:
    world = await with_a_tool_at_work()
    await world.stop_all()
    world.build_anew()
    await world.resume()
    await world.until_quiet()
    assert "stopped by ann" in world.brake.why
    assert len(requests(world)) == 1


async def test_a_second_stop_is_the_first() -> None:
    world = await with_a_tool_at_work()
    await world.stop_all()
    first = world.brake.halt
    world.clock.advance(seconds=60)
    await world.stop_all()
    assert world.brake.halt == first


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


async def test_a_bus_that_is_away_keeps_nobody_from_stopping() -> None:
    world = await with_a_tool_at_work()
    world.board.away = True
    await world.stop_all()
    await world.until_quiet()
    assert len(requests(world)) == 1
    world.board.away = False
    async with asyncio.TaskGroup() as group:
        await world.halting(Background(group)).look()
    assert world.board.halt == world.brake.halt
