"""What a run may spend: a limit that is reached ends it, or pauses it when it was asked to."""

from typing import Any

import pytest

from agent_service.core.waiting import Status
from tests.core.cues import (
    DEADLINE,
    PROOF,
    a_framing_run,
    a_planning_run,
    a_reflecting_run,
    a_retrying_run,
    a_waiting_run,
    due,
    frames,
    goes_on,
    plans,
    queued,
    reflects,
    resume,
    returns,
    signal,
    too_early,
)
from tests.core.script import NOTHING, Cue, Script, abandons, asks, completes, escalates, pauses, requests

# Steps and attempts


def test_no_plan_is_asked_for_when_no_step_is_left() -> None:
    run = a_reflecting_run(max_steps=1, fused=False)
    run >> reflects("continue") << escalates("budget_steps")


# The deadline, counted from acceptance


def test_the_deadline_passes_while_the_run_is_queued() -> None:
    run = queued()
    assert run.state.due_at == DEADLINE
    run >> due << escalates("budget_time")


def test_a_result_at_the_deadline_is_followed_by_no_question() -> None:
    run = a_waiting_run().wait(hours=1)
    run >> returns() << escalates("budget_time")
    assert run.state.completed[-1].status == "ok"


def test_a_goal_that_is_met_at_the_deadline_is_met() -> None:
    run = a_reflecting_run().wait(hours=1)
    run >> reflects("done", PROOF) << completes()


def test_just_before_the_deadline_everything_goes_on() -> None:
    run = a_planning_run().wait(minutes=59, seconds=59)
    run >> plans() << requests("fetch", step=1)


# Tokens and cost


def test_a_spent_token_budget_allows_no_further_call() -> None:
    run = a_framing_run(max_tokens=200)
    run >> frames(tokens=200) << escalates("budget_tokens")
    assert run.state.reason == "200 of 200 tokens are spent"


def test_one_token_left_allows_a_call() -> None:
    run = a_framing_run(max_tokens=200)
    run >> frames(tokens=199) << asks("plan")


def test_a_cost_that_is_unknown_once_is_unknown_for_good_and_never_0() -> None:
    run = a_framing_run() >> frames(cost=None) >> plans() >> returns()
    assert run.state.spent.cost_usd is None
    run >> reflects("done", PROOF) << completes()
    assert run.sent("agent.completed")["usage"]["cost_usd"] is None


def test_a_plan_that_is_paid_for_is_carried_out_though_it_spent_the_last_token() -> None:
    run = a_framing_run(max_tokens=200) >> frames(tokens=100)
    run >> plans() << requests("fetch", step=1)
    run >> returns() << escalates("budget_tokens")


# Pausing instead

SPENT: list[tuple[str, dict[str, Any]]] = [
    ("max_steps", {"max_steps": 2}),
    ("max_tokens", {"max_tokens": 1000}),
    ("max_cost_usd", {"max_cost_usd": 5.0}),
]


def a_run_out_of(limit: str) -> Script:
    """Paused because `limit` is reached."""
    match limit:
        case "max_steps":
            return a_reflecting_run(max_steps=1, on_budget="pause") >> goes_on()
        case "max_tokens":
            return a_framing_run(max_tokens=200, on_budget="pause") >> frames(tokens=200)
        case _:
            return a_framing_run(max_cost_usd=0.5, on_budget="pause") >> frames(cost=0.5)


@pytest.mark.parametrize("limit", ["max_steps", "max_tokens", "max_cost_usd"])
def test_a_reached_limit_pauses_a_run_that_was_asked_to_pause(limit: str) -> None:
    run = a_run_out_of(limit)
    ending_class = {"max_steps": "budget_steps", "max_tokens": "budget_tokens", "max_cost_usd": "budget_cost"}[limit]
    assert run.outcomes == (pauses(ending_class),)
    assert run.state.status is Status.PAUSED
    assert run.state.reason.endswith("raise the budget to go on")


@pytest.mark.parametrize(("limit", "larger"), SPENT)
def test_a_raised_limit_lets_the_run_go_on_where_it_paused(limit: str, larger: dict[str, Any]) -> None:
    run = a_run_out_of(limit)
    goes_on = requests("fetch", step=2) if limit == "max_steps" else asks("plan")  # what is planned is kept
    run >> signal("raise_budget", **larger) << goes_on
    assert run.state.status is Status.RUNNING
    assert (run.state.reason, run.state.ending_class) == ("", "")


@pytest.mark.parametrize("limit", ["max_steps", "max_tokens", "max_cost_usd"])
def test_a_resume_without_a_larger_limit_pauses_again_without_a_call(limit: str) -> None:
    run = a_run_out_of(limit) >> resume()
    assert run.state.status is Status.PAUSED
    assert asks("plan") not in run.outcomes


@pytest.mark.parametrize("lets_go_on", [resume(), signal("raise_budget", max_steps=20)])
def test_a_run_that_paused_for_its_tool_attempts_goes_on_when_a_person_lets_it(lets_go_on: Cue) -> None:
    run = a_reflecting_run(max_attempts_of_run=1, on_budget="pause") >> goes_on()
    run << pauses("budget_attempts")
    run >> lets_go_on << requests("fetch", step=2)


def test_the_deadline_pauses_a_run_and_its_tool_is_still_waited_for() -> None:
    run = a_waiting_run(on_budget="pause", queue_wait_s=7200) >> due
    assert run.outcomes == (pauses("budget_time"),)
    run >> signal("raise_budget", deadline_at=DEADLINE.replace(hour=20)) << NOTHING
    run >> returns() << asks("reflect")


def test_a_deadline_that_passed_during_a_pause_is_kept_when_the_run_resumes() -> None:
    run = a_waiting_run(on_budget="pause").wait(hours=1) >> too_early
    run >> resume() << NOTHING
    run >> due << pauses("budget_time")


def test_a_call_that_the_deadline_interrupted_is_made_again_on_resume() -> None:
    run = a_planning_run(on_budget="pause") >> due
    assert run.outcomes == (abandons(), pauses("budget_time"))
    run >> signal("raise_budget", deadline_at=DEADLINE.replace(hour=20)) << asks("plan")


def test_a_retry_that_the_deadline_interrupted_is_sent_on_resume() -> None:
    run = a_retrying_run(on_budget="pause").wait(hours=1) >> too_early
    run >> signal("raise_budget", deadline_at=DEADLINE.replace(hour=20)) << NOTHING
    run >> due << requests("fetch", step=1, attempt=2)


def test_a_reframe_beyond_the_granted_ones_pauses_and_the_run_may_go_on_without_it() -> None:
    run = a_reflecting_run(max_reframes=0, on_budget="pause")
    run >> reflects("reframe") << pauses("budget_reframes")
    run >> resume() << asks("plan")


def test_what_the_model_must_be_told_is_not_lost_by_a_pause() -> None:
    run = a_reflecting_run(max_tokens=400, on_budget="pause") >> reflects("done", tokens=200)
    assert run.outcomes == (pauses("budget_tokens"),)
    run >> signal("raise_budget", max_tokens=4000) << asks("reflect")
    assert "`done` was refused" in run.told()


# Raising


def test_a_budget_can_be_raised_before_it_is_reached() -> None:
    run = a_reflecting_run(max_steps=1) >> signal("raise_budget", max_steps=2)
    assert run.outcomes == ()
    run >> goes_on() << requests("fetch", step=2)


def test_raising_never_lowers_and_leaves_alone_what_is_not_limited() -> None:
    run = queued(max_steps=5, max_reframes=3, max_cost_usd=1.0)
    before = run.state.brief.limits
    run >> signal(
        "raise_budget", max_loops=2, max_reframes=0, max_tokens=5, max_cost_usd=0.1, deadline_at="2026-11-21T12:30:00Z"
    )
    assert run.state.brief.limits == before


def test_a_raise_without_numbers_raises_nothing() -> None:
    run = queued()
    before = run.state.brief
    run >> signal("raise_budget") << NOTHING
    assert run.state.brief is before
