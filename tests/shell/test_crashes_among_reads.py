"""A crash at every point while several reads are under way: each is asked for, finished and told of once."""

from dataclasses import replace

import pytest

from agent_service.core.waiting import Reserve, Status
from agent_service.journal import flaw_in_chain
from schemas import subjects
from schemas.catalog import ToolCommand, ToolOffer
from tests.shell.world import POLICY, World

READ = ToolOffer(name="read", output="trusted", route="reader", commands=(ToolCommand(name="handle", tier="read"),))
READS = 3
SEVERAL = replace(POLICY, defaults=replace(POLICY.defaults, parallel_reads=READS))
RESERVE = Reserve(tokens=700, cost_usd=0.25)
MINDS = pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])


def a_world(reserve: Reserve | None) -> World:
    """A run was asked for whose mind reads three pages at once, twice; the second of them fails at first."""
    world = World(reserve=reserve, policy=SEVERAL, tools=(READ,))
    world.mind.side_by_side, world.mind.steps = READS, 2 * READS
    world.gateway.failing = {(2, 1)}
    world.start("read")
    return world


async def points_of_a_whole_run(reserve: Reserve | None) -> list[str]:
    world = a_world(reserve)
    world.faults.strike_at(None)
    await world.until_ended()
    await check_the_end(world)
    return world.faults.names


async def check_the_end(world: World) -> None:
    state = await world.state()
    assert state.status is Status.DONE
    assert sorted(record.step for record in state.completed) == list(range(1, 2 * READS + 1))
    assert state.spent.calls == 4
    assert set(world.gateway.executed.values()) == {1}
    assert len(world.gateway.executed) == 2 * READS + 1
    assert len(world.bus.events(subjects.COMPLETED)) == 1
    assert flaw_in_chain(await world.store.entries(state.run_id)) is None
    world.faulty.write_told()
    assert await world.store.untold(100) == []


@MINDS
async def test_a_crash_at_any_point_loses_no_read_and_repeats_none(reserve: Reserve | None) -> None:
    for point in range(1, len(await points_of_a_whole_run(reserve)) + 1):
        world = a_world(reserve)
        world.faults.strike_at(point)
        await world.until_ended()
        assert world.crashes == 1, f"point {point} was not reached"
        await check_the_end(world)


@MINDS
async def test_a_repeated_delivery_of_everything_changes_nothing(reserve: Reserve | None) -> None:
    world = a_world(reserve)
    await world.until_ended()
    before = await world.state()
    world.bus.unacknowledged.extend(world.bus.published.values())
    await world.until_quiet()
    assert await world.state() == before
    await check_the_end(world)


async def test_all_that_is_due_of_several_reads_is_sent_at_once() -> None:
    world = a_world(None)
    world.gateway.failing = {(step, 1) for step in range(1, READS + 1)}
    await world.until_quiet()
    world.clock.advance(seconds=60)
    await world.fire_timers()
    assert len(world.bus.unacknowledged) == READS


async def test_results_that_come_in_any_order_lead_to_one_reflection() -> None:
    world = a_world(None)
    await world.until_quiet()
    world.bus.unacknowledged.reverse()
    await world.until_ended()
    await check_the_end(world)
