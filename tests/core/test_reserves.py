"""A call that costs something is made in two halves: what it may spend is set aside, then it is made."""

from typing import Any

import pytest

from agent_service.core.state import Spent
from agent_service.core.waiting import Reserve, Status
from tests.core.cues import (
    DEADLINE,
    a_framing_run,
    a_planning_run,
    a_reflecting_run,
    cancel,
    due,
    frames,
    plans,
    resume,
    signal,
    unavailable,
)
from tests.core.model_cues import reserves
from tests.core.script import NOTHING, Script, abandons, asks, escalates, pauses, requests


def standing(run: Script) -> Reserve | None:
    return run.state.reserve


def lost(run: Script) -> tuple[int, int, float | None]:
    spent = run.state.spent
    return spent.lost_calls, spent.lost_tokens, spent.lost_cost_usd


# Setting aside


def test_what_is_set_aside_stands_and_the_same_call_is_made() -> None:
    run = a_framing_run()
    run >> reserves(900, 0.09) << asks("frame")
    assert standing(run) == Reserve(tokens=900, cost_usd=0.09)
    assert run.state.asking is not None
    assert (run.state.asking.call, run.state.calls) == (1, 1)
    assert run.state.spent == Spent()


def test_a_reply_settles_what_was_set_aside_with_what_it_cost() -> None:
    run = a_framing_run() >> reserves(900, 0.09)
    run >> frames(tokens=120, cost=0.02) << asks("plan")
    assert standing(run) is None
    assert (run.state.spent.tokens, run.state.spent.cost_usd) == (120, 0.02)
    assert lost(run) == (0, 0, 0.0)


# No call that could break a limit

BROKEN: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("budget_tokens", {"max_tokens": 499}, {"max_tokens": 500}),
    ("budget_cost", {"max_cost_usd": 0.0499}, {"max_cost_usd": 0.051}),
]


@pytest.mark.parametrize(("ending_class", "limit", "larger"), BROKEN)
def test_a_call_that_could_break_a_limit_is_not_made(
    ending_class: str, limit: dict[str, Any], larger: dict[str, Any]
) -> None:
    run = a_framing_run(**limit) >> reserves(100, 0.01) >> frames(tokens=100, cost=0.01)
    run >> reserves(400, 0.04) << (abandons(), escalates(ending_class))
    assert run.state.spent.calls == 1
    assert lost(run) == (0, 0, 0.0)
    within = a_framing_run(**larger) >> reserves(100, 0.01) >> frames(tokens=100, cost=0.01)
    within >> reserves(400, 0.04) << asks("plan")


def test_the_reason_says_what_is_spent_and_what_the_call_may_need() -> None:
    run = a_framing_run(max_tokens=450) >> reserves(400) >> frames(tokens=100) >> reserves(400)
    assert run.state.reason == "100 of 450 tokens are spent, and the next model call may need 400"
    run = a_framing_run(max_cost_usd=0.05) >> reserves(400) >> frames(cost=0.02) >> reserves(400, 0.04)
    assert run.state.reason == "0.0200 of 0.0500 USD are spent, and the next model call may cost 0.0400"


@pytest.mark.parametrize(("ending_class", "limit", "larger"), BROKEN)
def test_a_raised_limit_lets_the_call_be_made_that_could_have_broken_it(
    ending_class: str, limit: dict[str, Any], larger: dict[str, Any]
) -> None:
    run = a_framing_run(on_budget="pause", **limit) >> frames(tokens=100, cost=0.01)
    run >> reserves(400, 0.04) << (abandons(), pauses(ending_class))
    assert standing(run) is None
    run >> resume() << asks("plan")
    run >> reserves(400, 0.04) << (abandons(), pauses(ending_class))
    run >> signal("raise_budget", **larger) << asks("plan")
    run >> reserves(400, 0.04) << asks("plan")
    run >> plans() << requests("fetch", step=1)
    assert lost(run) == (0, 0, 0.0)


def test_an_unknown_price_stops_a_run_with_a_cost_limit_before_any_money_is_spent() -> None:
    run = a_framing_run(max_cost_usd=100.0)
    run >> reserves(400, None) << (abandons(), escalates("budget_cost"))
    assert run.state.spent == Spent()
    assert "the model's price is not known" in run.state.reason


# Lost calls


def test_a_reserve_that_is_found_standing_is_lost_once() -> None:
    run = a_framing_run() >> reserves(400, 0.04)
    run >> reserves(300, 0.03) << asks("frame")
    assert lost(run) == (1, 400, 0.04)
    assert standing(run) == Reserve(tokens=300, cost_usd=0.03)
    run >> frames(tokens=100, cost=0.01) << asks("plan")
    assert lost(run) == (1, 400, 0.04)
    assert (run.state.spent.calls, run.state.spent.tokens) == (1, 100)


def test_a_lost_call_counts_as_what_it_probably_cost() -> None:
    run = a_framing_run() >> reserves(400, 0.04, if_lost=(150, 0.01)) >> reserves(400, 0.04, if_lost=(150, None))
    assert lost(run) == (1, 150, 0.01)
    run >> reserves() << asks("frame")
    assert lost(run) == (2, 300, None)


def test_a_call_that_the_deadline_interrupts_is_lost_whether_the_run_ends_or_pauses() -> None:
    run = a_reflecting_run() >> reserves(400, 0.04)
    run >> due << (abandons(), escalates("budget_time"))
    assert lost(run) == (1, 400, 0.04)
    run = a_reflecting_run(on_budget="pause") >> reserves(400, 0.04)
    run >> due << (abandons(), pauses("budget_time"))
    assert (standing(run), lost(run)) == (None, (1, 400, 0.04))
    run >> signal("raise_budget", deadline_at=DEADLINE.replace(hour=20)) << asks("reflect")
    run >> reserves() << asks("reflect")
    assert lost(run) == (1, 400, 0.04)


def test_lost_tokens_are_shown_with_the_budget_and_not_as_usage() -> None:
    run = a_reflecting_run() >> reserves(400, 0.04) >> reserves(400, 0.04) >> cancel()
    budget = run.sent("agent.progress")["budget"]
    assert (budget["tokens"], budget["lost_tokens"], budget["lost_cost_usd"]) == (200, 800, 0.08)
    assert run.sent("agent.cancelled")["usage"]["tokens"] == 200


# A model that is not to be had


def test_an_outage_releases_what_was_set_aside_and_charges_nothing() -> None:
    run = a_planning_run() >> reserves()
    run >> unavailable("try_again") << NOTHING
    assert standing(run) is None
    run >> due << asks("plan")
    run >> reserves() << asks("plan")
    run >> plans() << requests("fetch", step=1)
    assert lost(run) == (0, 0, 0.0)


def test_a_reserve_ends_the_wait_for_a_model_that_was_not_to_be_had() -> None:
    """Another process may have asked meanwhile: the call is made now, and not a second time when the wait is over."""
    run = a_planning_run() >> unavailable("try_again", retry_after_s=30)
    run >> reserves() << asks("plan")
    assert run.state.due_at == DEADLINE
    assert run.state.status is Status.RUNNING
