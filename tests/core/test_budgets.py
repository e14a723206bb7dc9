"""What a run may spend: a limit that is reached ends it, or pauses it when it was asked to."""

from typing import Any

import pytest

from agent_service.core.waiting import Status
from tests.core.cues import (
    PROOF,
    a_framing_run,
    a_reflecting_run,
    frames,
    goes_on,
    plans,
    queued,
    reflects,
    returns,
    signal,
)
from tests.core.script import Script, asks, completes, pauses, requests

# Steps and attempts


# The deadline, counted from acceptance


def test_a_goal_that_is_met_at_the_deadline_is_met() -> None:
    run = a_reflecting_run().wait(hours=1)
    run >> reflects("done", PROOF) << completes()


# Tokens and cost


def test_a_cost_that_is_unknown_once_is_unknown_for_good_and_never_0() -> None:
    run = a_framing_run() >> frames(cost=None) >> plans() >> returns()
    assert run.state.spent.cost_usd is None
    run >> reflects("done", PROOF) << completes()
    assert run.sent("agent.completed")["usage"]["cost_usd"] is None


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


# Raising


def test_raising_never_lowers_and_leaves_alone_what_is_not_limited() -> None:
    run = queued(max_steps=5, max_reframes=3, max_cost_usd=1.0)
    before = run.state.brief.limits
    run >> signal(
        "raise_budget", max_loops=2, max_reframes=0, max_tokens=5, max_cost_usd=0.1, deadline_at="2026-11-21T12:30:00Z"
    )
    assert run.state.brief.limits == before
