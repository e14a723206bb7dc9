"""The kill switch: nothing begins until it is off again; then nothing is lost, repeated or late."""

from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from schemas import subjects
from schemas.status import Halt
from tests.sim.courses import COURSES
from tests.sim.machines.time import NOON
from tests.sim.servers.streams import head_of
from tests.sim.world import World

SLOW = replace(COURSES["plain run"], plugins={"append": replace(COURSES["plain run"].plugins["append"], takes_s=1.0)})
ON_THE_BUS = f"$KV.{subjects.LEASE_BUCKET}.{subjects.HALT_KEY}"


def with_a_tool_at_work(**more: Any) -> World:
    """A run whose first step is requested and not answered."""
    world = World(replace(SLOW, **more))
    world.start()
    world.until(lambda: world.record.ran)
    return world


def write(world: World, halt: Halt | None) -> None:
    """Sets the kill switch on the bus, as a person does when no agent runs."""
    body = halt.model_dump_json().encode() if halt else b""
    head = head_of({} if halt else {"KV-Operation": "DEL"})
    world.bus.jetstream.put(ON_THE_BUS, body, head)


def check_that_it_ends_well(world: World) -> None:
    world.until(lambda: world.record.of(subjects.COMPLETED))
    world.passes(1)
    world.invariants.at_the_end()
    assert (len(world.record.ran), len(world.record.endings)) == (2, 1)


def test_time_that_stood_still_counts_against_no_run_and_no_tool() -> None:
    def deadlines() -> list[datetime]:
        told = world.status()
        return [datetime.fromisoformat(part["deadline_at"]) for part in (told["budget"], told["pending"])]

    plugin = replace(SLOW.plugins["append"], takes_s=40.0)
    with closing(with_a_tool_at_work(plugins={"append": plugin})) as world:
        before = deadlines()
        world.asks("stop-all")
        world.passes(30)
        world.asks("go-on")
        assert [after - then >= timedelta(seconds=30) for after, then in zip(deadlines(), before, strict=True)] == [
            True
        ] * 2
        check_that_it_ends_well(world)


def test_a_stop_that_a_person_writes_on_the_bus_counts_when_the_agent_starts() -> None:
    with closing(with_a_tool_at_work()) as world:
        world.services.processes["agent"].kill()
        write(world, Halt(since=NOON, by="ben", reason="no agent was there"))
        world.services.start("agent")
        world.passes(5)
        assert "stopped by ben (written on the bus)" in world.status()["stopped"]
        assert len(world.record.requests) == 1


def test_nobody_lets_everything_go_on_by_writing_to_the_bus() -> None:
    with closing(with_a_tool_at_work()) as world:
        world.asks("stop-all", reason="it mails everybody")
        for forged in (None, Halt(since=NOON, until=NOON, over=True)):
            write(world, forged)
            world.passes(5)
            assert "it mails everybody" in world.status()["stopped"]
        assert len(world.record.requests) == 1


def test_what_one_agent_stops_all_of_its_store_stop_until_it_is_let_go_on() -> None:
    with closing(with_a_tool_at_work(agents=2)) as world:
        world.asks("stop-all")
        world.passes(5)
        assert len(world.record.paid) == 1
        world.asks("go-on")
        check_that_it_ends_well(world)
