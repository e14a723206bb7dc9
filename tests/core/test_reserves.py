"""A call that costs something is made in two halves: what it may spend is set aside, then it is made."""

from agent_service.core.waiting import Reserve
from tests.core.cues import (
    a_framing_run,
    frames,
)
from tests.core.model_cues import reserves
from tests.core.script import Script, asks


def standing(run: Script) -> Reserve | None:
    return run.state.reserve


def lost(run: Script) -> tuple[int, int, float | None]:
    spent = run.state.spent
    return spent.lost_calls, spent.lost_tokens, spent.lost_cost_usd


# Setting aside


# No call that could break a limit


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


# A model that is not to be had
