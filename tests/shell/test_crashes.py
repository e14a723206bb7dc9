"""A crash at every point that the agent passes: the run goes on, and nothing that was finished is done again."""

from collections.abc import Sequence

import pytest

from agent_service.core.waiting import Reserve, Status
from agent_service.journal import Entry, flaw_in_chain, rehearse
from schemas import subjects
from tests.core.rules.reading import Story
from tests.core.rules.reserves import what_was_set_aside_and_not_answered_is_lost_once
from tests.core.rules.spending import every_paid_call_is_counted
from tests.core.script import Moment
from tests.shell.world import World

RESERVE = Reserve(tokens=700, cost_usd=0.25)
MINDS = pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])


def a_world(reserve: Reserve | None, *, opens: bool = False) -> World:
    """A run was asked for; `opens`: its framing brings the first plan along."""
    world = World(reserve=reserve)
    world.mind.opens = opens
    world.start()
    return world


async def points_of_a_whole_run(reserve: Reserve | None, *, opens: bool = False) -> list[str]:
    world = a_world(reserve, opens=opens)
    world.faults.strike_at(None)
    await world.until_quiet()
    assert (await world.state()).status is Status.DONE
    return world.faults.names


def story_of(entries: Sequence[Entry]) -> Story:
    """The journal as a story that the rules of the core can read."""
    story: Story = []
    for entry, transition in rehearse(entries):
        before = story[-1].transition.state if story else None
        story.append(Moment(before=before, event=entry.decoded(), transition=transition))
    return story


async def check_the_end(world: World) -> None:
    state = await world.state()
    assert state.status is Status.DONE
    assert set(world.gateway.executed.values()) == {1}
    assert len(world.gateway.executed) == 2
    assert len(world.bus.events(subjects.COMPLETED)) == 1
    assert flaw_in_chain(await world.store.entries(state.run_id)) is None
    world.faulty.write_told()
    assert await world.store.untold(100) == []


async def check_what_was_spent(world: World) -> None:
    """What is spent is what the journal's replies cost, what is lost is what crashes interrupted, and that is all."""
    state, lost = await world.state(), world.interrupted
    story = story_of(await world.store.entries(state.run_id))
    every_paid_call_is_counted(story)
    what_was_set_aside_and_not_answered_is_lost_once(story)
    assert state.spent.lost_calls == lost
    assert world.mind.unreserved == []
    if world.mind.reserve is not None:
        assert state.spent.lost_tokens == lost * world.mind.reserve.tokens
        assert sum(world.mind.calls.values()) <= state.spent.calls + lost


async def test_the_sweep_passes_every_kind_of_point() -> None:
    kinds = {name.rsplit(" agent", 1)[0] for name in await points_of_a_whole_run(RESERVE)}
    entries = ("RunStarted", "CallReserved", "ModelReplied", "ToolReturned")
    expected = {"before accept", "after accept", "before told", "before ack"}
    expected |= {f"{side} commit of {kind}" for side in ("before", "after") for kind in entries}
    assert expected | {"during frame", "during plan", "during reflect"} <= kinds


@MINDS
@pytest.mark.parametrize("opens", [False, True], ids=["plans apart", "opens with a plan"])
async def test_a_crash_at_any_point_loses_no_run_and_repeats_no_finished_step(
    reserve: Reserve | None, opens: bool
) -> None:
    for point in range(1, len(await points_of_a_whole_run(reserve, opens=opens)) + 1):
        world = a_world(reserve, opens=opens)
        world.faults.strike_at(point)
        await world.until_quiet()
        assert world.crashes == 1, f"point {point} was not reached"
        await check_the_end(world)
        await check_what_was_spent(world)


@MINDS
async def test_a_crash_repeats_at_most_the_one_model_call_that_had_not_finished(reserve: Reserve | None) -> None:
    for point, name in enumerate(await points_of_a_whole_run(reserve), start=1):
        world = a_world(reserve)
        world.faults.strike_at(point)
        await world.until_quiet()
        repeated = sum(count - 1 for count in world.mind.calls.values())
        assert repeated <= 1, f"crash at {name}"
        assert repeated <= (name.startswith("during") or name == "before commit of ModelReplied")
        state = await world.state()
        assert state.spent.calls == len(world.mind.calls)
        assert state.spent.tokens == 15 * state.spent.calls


@MINDS
@pytest.mark.parametrize("gap", [1, 2, 3, 5, 8, 13])
async def test_crashes_in_every_life_only_delay_the_run(gap: int, reserve: Reserve | None) -> None:
    world = a_world(reserve)
    for _ in range(60):
        world.faults.strike_at(gap)
        await world.until_quiet()
        if world.bus.events(subjects.COMPLETED) and not world.bus.unacknowledged:
            break
    await check_the_end(world)
    await check_what_was_spent(world)


@MINDS
async def test_a_repeated_delivery_of_everything_changes_nothing(reserve: Reserve | None) -> None:
    world = a_world(reserve)
    await world.until_quiet()
    before = await world.state()
    world.bus.unacknowledged.extend(world.bus.published.values())
    await world.until_quiet()
    assert await world.state() == before
    await check_the_end(world)
