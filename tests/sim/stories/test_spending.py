"""Daily budget for models: no call exceeds it, waiting runs lose nothing, and a restart keeps the count."""

from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from schemas import subjects
from tests.sim.course import appends
from tests.sim.courses import COURSES
from tests.sim.world import World

pytestmark = pytest.mark.attack(59)

LONG = replace(COURSES["plain run"], chooses=appends(5))
MOST_USD = 0.024
HALF_A_DAY = 43_200.0


def that_waits(**agent: Any) -> World:
    world = World(replace(LONG, agent=agent))
    world.start()
    world.passes(8)
    assert world.status()["waiting_for"]["kind"] == "budget"
    assert world.status()["usage"]["cost_usd"] <= MOST_USD
    return world


def test_a_call_that_might_go_beyond_it_waits_for_the_next_day_and_loses_no_time() -> None:
    with closing(that_waits(limits={"usd_per_day": MOST_USD})) as world:
        before = world.status()
        assert before["waiting_for"]["until"] == "2026-06-02T00:00:00Z"
        assert f"of {MOST_USD:.4f} USD of today are spent or set aside (agent.limits.usd_per_day)" in before["summary"]
        world.scheduler.skew = HALF_A_DAY - 60
        world.passes(5)
        assert world.status() == before
        world.scheduler.skew = HALF_A_DAY
        world.until(lambda: world.record.of(subjects.COMPLETED))
        then, after = (datetime.fromisoformat(told["budget"]["deadline_at"]) for told in (before, world.status()))
        assert after - then > timedelta(hours=11)


def test_a_restart_knows_what_was_spent_and_goes_on_at_once_with_more_money() -> None:
    with closing(that_waits(limits={"usd_per_day": MOST_USD})) as world:
        paid = len(world.record.paid)
        for usd, completed in ((MOST_USD, 0), (10.0, 1)):
            world.services.course = replace(LONG, agent={"limits": {"usd_per_day": usd}})
            world.services.processes["agent"].kill()
            world.services.start("agent")
            world.passes(10)
            assert len(world.record.of(subjects.COMPLETED)) == completed
            assert completed or len(world.record.paid) == paid


def test_calls_that_deaths_lost_count_too() -> None:
    with closing(World(replace(LONG, agent={"limits": {"usd_per_day": 0.1}}))) as world:
        world.boundary.dies = lambda _: world.boundary.effects[-1].startswith("agent: POST")
        world.start()
        world.passes(10)
        told = world.status()
        assert told["waiting_for"]["kind"] == "budget"
        assert (told["usage"]["lost_calls"], told["usage"]["lost_cost_usd"] <= 0.1) == (len(world.record.deaths), True)


def test_one_caller_s_money_is_no_other_s() -> None:
    with closing(that_waits(bus_quota={"usd_per_day": MOST_USD})) as world:
        assert "are spent or set aside by bus (usd_per_day of its quota)" in world.status()["summary"]
