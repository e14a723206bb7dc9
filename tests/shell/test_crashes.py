"""A crash at every point that the agent passes, on every course: the run goes on, nothing is done or asked twice, no
answer is lost, and what is spent is counted."""

from itertools import product

import pytest

from agent_service.core.waiting import Reserve, Status
from schemas import subjects
from tests.shell.courses import (
    COURSES,
    GATHERING,
    RESERVE,
    Course,
    Parents,
    begun,
    check,
    check_that_all_is_told,
    check_what_was_spent,
    stop_the_family,
)
from tests.shell.world import World

LONG = 120
"""So many points repeat each other."""
MINDS = pytest.mark.parametrize("reserve", [None, RESERVE], ids=["free", "paid"])
FREE_OR_PAID = [(name, None) for name in COURSES] + [(name, RESERVE) for name in COURSES if name not in GATHERING]


async def points_of(course: Course, reserve: Reserve | None = None) -> list[str]:
    """The points that the agent passes when nothing befalls it."""
    world = begun(course, reserve)
    world.faults.strike_at(None)
    await world.until_ended()
    await check(world, course)
    return world.faults.names


def strikes(points: list[str]) -> list[tuple[int, str]]:
    """Every point with its number; on a long course each name, and every fifth of the rest."""
    numbered = list(enumerate(points, start=1))
    if len(points) < LONG:
        return numbered
    return [(number, at) for number, at in numbered if number % 5 == 0 or at not in points[: number - 1]]


async def test_the_sweep_passes_every_kind_of_point() -> None:
    kinds = {name.rsplit(" agent", 1)[0] for name in await points_of(COURSES["two steps"], RESERVE)}
    entries = ("RunStarted", "CallReserved", "ModelReplied", "ToolReturned")
    expected = {"before accept", "after accept", "before told", "before ack"}
    expected |= {f"{side} commit of {kind}" for side in ("before", "after") for kind in entries}
    assert expected | {"during frame", "during plan", "during reflect"} <= kinds
    assert "during verify" in await points_of(COURSES["a doubted claim"])


@pytest.mark.parametrize(
    ("name", "reserve"), FREE_OR_PAID, ids=[f"{n}-{'paid' if r else 'free'}" for n, r in FREE_OR_PAID]
)
async def test_a_crash_at_any_point_loses_nothing_and_repeats_nothing(name: str, reserve: Reserve | None) -> None:
    course = COURSES[name]
    for point, at in strikes(await points_of(course, reserve)):
        world = begun(course, reserve)
        world.faults.strike_at(point)
        await world.until_ended()
        assert world.crashes == 1, f"point {point} was not reached"
        await check(world, course)
        if course.runs == 1:
            await check_what_was_spent(world)
        repeated = sum(count - 1 for count in world.mind.calls.values())
        assert repeated <= (at.startswith("during") or at == "before commit of ModelReplied"), at


@pytest.mark.parametrize("name", COURSES)
async def test_a_second_crash_soon_after_the_first_only_delays_it(name: str) -> None:
    course = COURSES[name]
    points = len(await points_of(course))
    for point, again in product(range(1, points + 1, 29 if points > LONG else 7), (1, 3)):
        world = begun(course)
        world.faults.strike_at(point)
        world.next_strike = again
        await world.until_ended()
        await check(world, course)


@MINDS
async def test_crashes_in_every_life_only_delay_the_run(reserve: Reserve | None) -> None:
    for gap in (1, 2, 3, 5, 8, 13):
        world = begun(COURSES["two steps"], reserve)
        for _ in range(60):
            world.faults.strike_at(gap)
            await world.until_quiet()
            if world.bus.events(subjects.COMPLETED) and not world.bus.unacknowledged:
                break
        await check(world, COURSES["two steps"])
        await check_what_was_spent(world)


@pytest.mark.parametrize("name", COURSES)
async def test_everything_delivered_again_changes_nothing(name: str) -> None:
    world = begun(COURSES[name], RESERVE)
    await world.until_ended()
    before = await world.family()
    too_late = {subjects.START} if name == "pause" else {}  # its deadline has passed by then
    world.bus.unacknowledged.extend(one for one in world.bus.published.values() if one.subject not in too_late)
    await world.until_quiet()
    assert await world.family() == before
    await check(world, COURSES[name])


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_cancel_takes_the_whole_family_along_wherever_the_process_dies(depth: int) -> None:
    def stopped() -> World:
        world = begun(COURSES["a family"])
        assert isinstance(world.mind, Parents)
        world.mind.reflects = {depth: lambda: stop_the_family(world)}
        return world

    world = stopped()
    world.faults.strike_at(None)
    await world.until_quiet()
    for point in range(1, world.faults.passed + 1, 3):
        world = stopped()
        world.faults.strike_at(point)
        await world.until_quiet()
        family = await world.family()
        assert family[0].status is Status.CANCELLED
        assert all(state.final for state in family)
        await check_that_all_is_told(world)


async def test_results_that_come_in_any_order_lead_to_one_reflection() -> None:
    course = COURSES["three reads at once"]
    world = begun(course)
    await world.until_quiet()
    world.bus.unacknowledged.reverse()
    await world.until_ended()
    await check(world, course)
