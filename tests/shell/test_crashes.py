"""A crash at every point that the agent passes: the run goes on, and nothing that was finished is done again."""

import pytest

from agent_service.core.state import Status
from agent_service.journal import flaw_in_chain
from schemas import subjects
from tests.shell.world import World


async def points_of_a_whole_run() -> list[str]:
    world = World()
    world.start()
    world.faults.strike_at(None)
    await world.until_quiet()
    assert (await world.state()).status is Status.DONE
    return world.faults.names


async def check_the_end(world: World) -> None:
    state = await world.state()
    assert state.status is Status.DONE
    assert set(world.gateway.executed.values()) == {1}
    assert len(world.gateway.executed) == 2
    assert len(world.bus.events(subjects.COMPLETED)) == 1
    assert flaw_in_chain(await world.store.entries(state.run_id)) is None
    assert await world.store.unperformed(100) == []


async def test_the_sweep_passes_every_kind_of_point() -> None:
    kinds = {name.rsplit(" agent", 1)[0] for name in await points_of_a_whole_run()}
    expected = {"before accept", "after accept", "before commit", "after commit", "before performed", "before ack"}
    assert expected | {"during frame", "during plan", "during reflect"} <= kinds


async def test_a_crash_at_any_point_loses_no_run_and_repeats_no_finished_step() -> None:
    for point in range(1, len(await points_of_a_whole_run()) + 1):
        world = World()
        world.start()
        world.faults.strike_at(point)
        await world.until_quiet()
        assert world.crashes == 1, f"point {point} was not reached"
        await check_the_end(world)


async def test_a_crash_repeats_at_most_the_one_model_call_that_had_not_finished() -> None:
    for point, name in enumerate(await points_of_a_whole_run(), start=1):
        world = World()
        world.start()
        world.faults.strike_at(point)
        await world.until_quiet()
        repeated = sum(count - 1 for count in world.mind.calls.values())
        assert repeated <= 1, f"crash at {name}"
        state = await world.state()
        assert state.spent.calls == len(world.mind.calls)
        assert state.spent.tokens == 15 * state.spent.calls


@pytest.mark.parametrize("gap", [1, 2, 3, 5, 8, 13])
async def test_crashes_in_every_life_only_delay_the_run(gap: int) -> None:
    world = World()
    world.start()
    for _ in range(60):
        world.faults.strike_at(gap)
        await world.until_quiet()
        if world.bus.events(subjects.COMPLETED) and not world.bus.unacknowledged:
            break
    await check_the_end(world)


async def test_a_repeated_delivery_of_everything_changes_nothing() -> None:
    world = World()
    world.start()
    await world.until_quiet()
    before = await world.state()
    world.bus.unacknowledged.extend(world.bus.published.values())
    await world.until_quiet()
    assert await world.state() == before
    await check_the_end(world)
