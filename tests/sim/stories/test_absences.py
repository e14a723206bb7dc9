"""Absences of services, bus and Ductile, and machines that sleep: what came meanwhile counts before what timed out."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from agent_service.run import recovery
from schemas import keys, subjects
from tests.sim.course import WRITER, Course, in_turn, line
from tests.sim.courses import COURSES
from tests.sim.model_policy import DONE, act, wait
from tests.sim.servers.ductile import Plugin
from tests.sim.world import World, begun

WRITES = act("append.handle", n=1)
SLOW = replace(
    COURSES["plain run"],
    chooses=in_turn(WRITES, DONE),
    plugins={"append": Plugin("write", line, takes_s=5)},
    agent={"limits": {"queue_wait_s": 1}},
    constraints={"deadline_at": "2026-06-03T12:00:00Z"},
)
ENDS_SOON = {"deadline_at": "2026-06-01T12:05:00Z"}
QUESTION = replace(COURSES["question"], reacts=lambda _: None, endings=2)


def says(world: World, kind: str, **more: Any) -> None:
    signal = {"run_id": world.first, "signal_id": "s", "kind": kind, **more}
    world.say(subjects.SIGNAL, signal, keys.dedupe_key(subjects.SIGNAL, world.first, signal_id="s"))


def are_away(world: World, seconds: float, *names: str) -> None:
    for name in names:
        world.services.processes[name].kill()
        world.record.deaths.append(name)
    world.passes(seconds)


def come_back(world: World, *names: str) -> None:
    for name in names:
        world.services.start(name)


@pytest.mark.parametrize("away", [("agent",), ("agent", "gateway"), ("agent", "agent-1")])
def test_a_write_that_ended_while_the_agent_was_away_is_no_timeout_however_long_that_was(away: Sequence[str]) -> None:
    with closing(begun(replace(SLOW, agents=sum(name.startswith("agent") for name in away)))) as world:
        world.until(lambda: world.record.ran)
        are_away(world, 1000, *away)
        come_back(world, *away)
        world.until(lambda: world.record.of(subjects.COMPLETED))


@pytest.mark.parametrize("later", ["gateway", "ductile"])
def test_an_agent_that_is_back_waits_for_what_the_gateway_will_know(later: str) -> None:
    with closing(begun(SLOW)) as world:
        world.until(lambda: world.record.ran)
        world.ductile.server.up = False
        are_away(world, 1000, "agent", "gateway")
        world.ductile.server.up = later == "gateway"
        come_back(world, *{"agent", "gateway"} - {later})
        world.passes(60)
        world.ductile.server.up = True
        come_back(world, *{"gateway"} & {later})
        world.until(lambda: world.record.of(subjects.COMPLETED))


def test_a_write_that_ended_while_the_bus_was_away_is_no_timeout() -> None:
    with closing(begun(SLOW)) as world:
        world.until(lambda: world.record.ran)
        world.bus.restart(away_s=300)
        world.until(lambda: world.record.of(subjects.COMPLETED), within_s=400)


def test_what_is_due_meanwhile_is_not_held_up_by_what_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "DUE_AT_ONCE", 1)
    sleeper = Course(name="sleeper", chooses=in_turn(wait(200), DONE))
    both = replace(
        SLOW,
        name="both",
        beside=(SLOW, sleeper),
        chooses=lambda view: (SLOW if view.goal in SLOW.goals else sleeper).chooses(view),
    )
    with closing(begun(both)) as world:
        world.until(lambda: world.record.ran)
        world.passes(1)
        world.bus.restart(away_s=300)
        answered = world.model.answered
        world.until(lambda: world.model.answered > answered, within_s=290)


@pytest.mark.parametrize("slept_s", [60, 2500])
def test_a_machine_that_sleeps_while_a_write_runs_puts_it_in_no_doubt(slept_s: float) -> None:
    with closing(begun(SLOW)) as world:
        world.until(lambda: world.record.ran)
        world.passes(1)
        world.scheduler.skew += slept_s
        world.until(lambda: world.record.of(subjects.COMPLETED))


def test_a_request_to_an_executor_on_a_bus_without_a_gateway_times_out_at_its_time() -> None:
    reader = {"name": "read", "route": "read", "timeout_s": 1, "commands": [{"name": "handle", "tier": "read"}]}
    declared = {"tools": {"declared": [reader]}, "limits": {"queue_wait_s": 1, "max_attempts": 1}}
    with closing(begun(replace(SLOW, gateways=0, agent=declared, chooses=in_turn(act("read.handle"), DONE)))) as world:
        world.until(lambda: world.record.of(subjects.ESCALATED), within_s=120)


def sleeps(world: World) -> None:
    world.until(lambda: world.record.ran)
    world.passes(3)


def retries_its_call(world: World) -> None:
    world.model.server.up = False
    world.passes(4)


STANDS = [
    (replace(SLOW, chooses=in_turn(WRITES, wait(100), act("append.handle", n=2), DONE), plugins=WRITER), sleeps),
    (SLOW, retries_its_call),
    (replace(SLOW, gateways=0), lambda world: world.passes(3)),
]


@pytest.mark.parametrize(("course", "comes_to_stand"), STANDS, ids=["sleeping", "thinking", "queued"])
@pytest.mark.parametrize("said", ["cancel", "raise_budget"])
def test_what_people_said_while_the_agent_was_away_counts_before_the_deadline_that_passed(
    course: Course, comes_to_stand: Any, said: str
) -> None:
    with closing(begun(replace(course, constraints=ENDS_SOON))) as world:
        comes_to_stand(world)
        are_away(world, 20, "agent")
        if said == "cancel":
            world.cancel_first()
        else:
            says(world, said, constraints={"deadline_at": "2026-06-01T20:00:00Z"})
        world.passes(400)
        world.model.server.up = True
        come_back(world, "agent", *() if course.gateways else ("gateway",))
        world.until(lambda: world.record.endings, within_s=150)
        (ending,) = world.record.endings
    assert ending.subject == (subjects.CANCELLED if said == "cancel" else subjects.COMPLETED)


def test_a_message_that_waits_on_the_bus_answers_a_question_before_it_expires_at_the_start() -> None:
    with closing(begun(replace(QUESTION, agent={"limits": {"answer_s": 6}}))) as world:
        world.until(lambda: world.record.of(subjects.WAITING))
        are_away(world, 1, "agent")
        says(world, "message", message="take a")
        world.passes(10)
        come_back(world, "agent")
        world.until(lambda: world.record.of(subjects.COMPLETED))


def test_an_answer_that_was_given_in_time_reopens_a_run_when_it_is_read_late() -> None:
    with closing(begun(replace(QUESTION, agent={"limits": {"answer_s": 6, "reopen_days": 1}}))) as world:
        world.until(lambda: world.record.of(subjects.ESCALATED))
        are_away(world, 1, "agent")
        says(world, "answer", message="take a")
        world.days_pass()
        come_back(world, "agent")
        world.until(lambda: world.record.of(subjects.COMPLETED))
