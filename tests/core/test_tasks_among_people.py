"""Tasks that wait for people: approvals among them, pauses and reopenings in their middle, writes in doubt."""

from typing import Any

import pytest

from agent_service.core.waiting import Status
from tests.core.cues import signal
from tests.core.people_cues import answer, approves
from tests.core.script import Script, asks, asks_people
from tests.core.task_cues import (
    a_gathering_run,
    a_task,
    asked,
    comes,
    fails,
    told,
)


def a_write_after_strangers(*more: dict[str, Any], **limits: Any) -> Script:
    """A page that strangers wrote was looked at, and the mail that depends on it waits for a person."""
    tasks = (a_task("page", "browse"), a_task("mail", "post", ("page",), to="them"), *more)
    return a_gathering_run(*tasks, **limits) >> comes("page")


# Approvals


def test_a_write_that_needs_approval_waits_for_it_and_then_goes_on() -> None:
    run = a_write_after_strangers()
    run << asks_people("approval")
    assert run.state.status is Status.PAUSED
    run = run >> approves()
    assert asked(run) == ["post mail:1"]
    run = run >> comes("mail")
    assert asked(run) == ["fetch again:2"]
    run >> comes("again") << asks("reflect")


def test_two_writes_with_the_same_arguments_are_approved_each() -> None:
    run = a_write_after_strangers(a_task("copy", "post", ("page",), to="them"))
    run = run >> approves()
    assert len(asked(run)) == 1
    run >> comes("mail") << asks_people("approval")


def test_the_time_in_which_a_person_is_waited_for_costs_the_gathering_nothing() -> None:
    run = a_write_after_strangers().wait(minutes=30)
    run = run >> approves()
    run = run >> comes("mail") >> comes("again") << asks("reflect")
    assert run.state.completed[0].status == "ok"


def test_a_message_instead_of_a_ruling_sends_no_write() -> None:
    run = a_write_after_strangers() >> signal("message", message="wait, not to them")
    assert "post mail:1" not in asked(run)


# Pauses


# Writes in doubt, and reopening


def a_lost_write(*more: dict[str, Any]) -> Script:
    """What came of the write is not known; another task was out beside it."""
    run = a_gathering_run(a_task("a"), a_task("w", "post"), a_task("z", after=("a", "w")), *more)
    return run >> fails("w", "in_doubt")


@pytest.mark.parametrize(("outcome", "of_z"), [("ran", "ok"), ("did_not_run", "dependency")])
def test_the_word_of_a_person_settles_the_task_and_the_rest_goes_on(outcome: str, of_z: str) -> None:
    run = a_lost_write() >> comes("a", round=1, tool="knowledge")
    run = run >> answer("looked", outcome=outcome)
    if of_z == "ok":
        assert asked(run) == ["knowledge z:1"]
        run = run >> comes("z")
    assert asked(run) == ["fetch again:2"]
    assert [(task, what) for task, _, what in told(run)][-1] == ("z", of_z)


def test_a_run_that_is_reopened_twice_asks_for_no_task_twice() -> None:
    run = a_lost_write(a_task("x", "post", n=2)) >> comes("a", round=1, tool="knowledge")
    run = run >> answer("it is there", outcome="ran")
    assert "post x:1" not in asked(run)
    sent = [name for moment in run.story for name in moment.published("agentic.tool_request")]
    names = [(one.get("task"), one.get("round"), one["attempt"]) for one in sent]
    assert len(names) == len(set(names))


# Several writes under way, of which one is in doubt


# Words among the tasks
