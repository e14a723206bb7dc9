"""What may be spent on models in a day: no call goes beyond it, who waits loses nothing, and a restart knows it."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from agent_service.core.brief import Limits
from agent_service.core.limits import LimitPolicy
from agent_service.core.waiting import ModelRetry, Status
from agent_service.run.lines import line_of
from agent_service.store.sqlite import SqliteStore
from tests.kit.runs import NOON
from tests.shell.world import RESERVE, Mind, World

pytestmark = pytest.mark.attack(59)

THREE_CALLS = 0.2525
"""As each costs 0.001, and may cost 0.25."""
AN_HOUR = LimitPolicy(defaults=Limits(deadline_at=NOON), wall_clock_s=3600)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    async with SqliteStore.open(tmp_path) as store:
        yield store


async def a_world(store: SqliteStore, usd_per_day: float = THREE_CALLS) -> World:
    world = World(Mind(RESERVE), store=store, policy=AN_HOUR, usd_per_day=usd_per_day)
    world.start()
    await world.until_quiet()
    return world


async def test_a_call_that_might_go_beyond_it_waits_for_the_next_day_and_loses_no_time(store: SqliteStore) -> None:
    world = await a_world(store)
    before = await world.state()
    assert world.mind.calls.total() == 3
    assert isinstance(before.waiting, ModelRetry)
    assert before.waiting.retry_at == NOON.replace(hour=0, microsecond=0) + timedelta(days=1)
    assert "0.0030 of 0.2525 USD of today are spent or set aside (agent.limits.usd_per_day)" in before.summary
    waits_for = line_of(before).waits_for
    assert waits_for
    assert (waits_for.kind, waits_for.since, before.status) == ("budget", before.updated_at, Status.RUNNING)
    world.clock.advance(11.9 * 3600)
    await world.fire_timers()
    assert await world.state() == before
    world.clock.advance(0.2 * 3600)
    await world.fire_timers()
    await world.until_quiet()
    after = await world.state()
    assert (after.status, len(world.gateway.executed)) == (Status.DONE, 2)
    assert after.brief.limits.deadline_at > before.brief.limits.deadline_at + timedelta(hours=12)


async def test_a_restart_knows_what_was_spent_and_goes_on_at_once_with_more_money(store: SqliteStore) -> None:
    world = await a_world(store)
    for usd_per_day, status, calls in ((THREE_CALLS, Status.RUNNING, 3), (10.0, Status.DONE, 4)):
        world.usd_per_day = usd_per_day
        world.build_anew()
        await world.resume()
        await world.fire_timers()
        assert world.spending.spent_usd == pytest.approx(0.003)
        await world.let_go()
        await world.until_quiet()
        assert ((await world.state()).status, world.mind.calls.total()) == (status, calls)


@pytest.mark.parametrize("gap", [2, 3, 5, 8, 13])
async def test_what_crashes_lost_counts_too(store: SqliteStore, gap: int) -> None:
    world = World(Mind(RESERVE), store=store, policy=AN_HOUR, usd_per_day=5.0)
    world.start()
    for _ in range(40):
        world.faults.strike_at(gap)
        await world.until_quiet()
    state, paid = await world.state(), store.taken.spent(world.spending.today)
    spent = (state.spent.cost_usd or 0.0) + (state.spent.lost_cost_usd or 0.0)
    assert sum(usd for usd, _ in paid.values()) == pytest.approx(spent)
    assert spent <= 5.0


async def test_one_caller_s_money_is_no_other_s(store: SqliteStore) -> None:
    world = World(Mind(RESERVE), store=store, usd_of_callers={"bus": THREE_CALLS})
    world.start()
    await world.until_quiet()
    assert "are spent or set aside by bus (usd_per_day of its quota)" in (await world.state()).summary
    assert "spent by bus" not in world.spending.reached_by("token ci")
