"""What people can say to a run while it runs or pauses."""

from typing import Literal

import pytest

from agent_service.core.waiting import Status
from tests.core.cues import (
    a_paused_run,
    a_planning_run,
    a_run_paused_while_waiting,
    a_waiting_run,
    errs,
    plans,
    queued,
    resume,
    returns,
    signal,
    unavailable,
)
from tests.core.script import NOTHING, asks, escalates, ignores, requests


def test_a_message_is_kept_for_the_model_and_disturbs_nothing() -> None:
    run = a_planning_run()
    run >> signal("message", message="mind the tone") << NOTHING
    assert run.state.messages == ("mind the tone",)
    run >> plans() << requests("fetch", step=1)


def test_the_newest_fifty_messages_are_kept() -> None:
    run = a_waiting_run()
    for n in range(51):
        run = run >> signal("message", message=f"message {n}")
    assert (len(run.state.messages), run.state.messages[-1]) == (50, "message 50")


def test_a_message_can_come_with_any_signal() -> None:
    run = a_paused_run() >> signal("resume", message="the key is mended")
    assert run.state.messages == ("the key is mended",)


@pytest.mark.parametrize("kind", ["resume", "raise_budget", "answer"])
def test_a_paused_run_goes_on_when_a_person_says_so(kind: Literal["resume", "raise_budget", "answer"]) -> None:
    run = a_paused_run()
    run >> signal(kind) << asks("reflect")
    assert run.state.status is Status.RUNNING


def test_what_a_person_says_with_a_resume_may_finish_the_run_where_a_plan_was_asked_for() -> None:
    a_planning_run() >> unavailable("pause") >> resume() << asks("plan")
    a_planning_run() >> unavailable("pause") >> signal("resume", message="that is enough") << asks("reflect")


def test_a_paused_run_stays_paused_when_it_is_only_told_something() -> None:
    run = a_paused_run()
    run >> signal("message", message="not yet") << NOTHING
    assert run.state.status is Status.PAUSED


@pytest.mark.parametrize("kind", ["approve", "reject"])
def test_a_ruling_on_what_nobody_asked_is_refused(kind: Literal["approve", "reject"]) -> None:
    for run in (queued(), a_planning_run(), a_waiting_run(), a_paused_run()):
        run >> signal(kind) << ignores("nothing waits for an approval")


def test_a_resume_is_noted_and_changes_nothing_while_the_run_is_not_paused() -> None:
    for run in (queued(), a_planning_run(), a_waiting_run()):
        status = run.state.status
        run >> signal("resume") << NOTHING
        assert run.state.status is status


# What happens while a run is paused


def test_a_result_is_kept_and_reflected_on_when_the_run_goes_on() -> None:
    run = a_run_paused_while_waiting()
    run >> returns() << NOTHING
    assert run.state.status is Status.PAUSED
    run >> signal("raise_budget", deadline_at="2026-11-21T20:00:00Z") << asks("reflect")
    assert run.state.last_result is not None


def test_a_retryable_error_waits_for_the_run_to_go_on() -> None:
    run = a_run_paused_while_waiting()
    run >> errs(retryable=True) << NOTHING
    assert run.state.due_at is None
    run >> signal("raise_budget", deadline_at="2026-11-21T20:00:00Z") << NOTHING
    assert run.state.due_at == run.state.retry_at


def test_an_error_for_a_person_escalates_a_paused_run_too() -> None:
    run = a_run_paused_while_waiting("post")
    run >> errs("configuration") << escalates("configuration")
