"""What a model is told of its budget: true words, and a note in time."""

from datetime import timedelta
from typing import Any

import pytest

from agent_service.core.phases import Phase
from agent_service.core.state import RunState, Spent, replace
from agent_service.models.prompts.budget import Budget, budget_of, calls_after
from tests.kit.runs import NOON
from tests.models.model_house import reflecting

BYTES, TOKENS, REPLY = 16_000, 4000, 300
"""Of a prompt of the run, and of its longest reply: a call takes 4,300 tokens, and needs 5,000 to be made."""


def a_run(*, step: int = 2, calls: int = 3, spent: int | None = None, cost: float = 0.3, **limits: Any) -> RunState:
    """A run whose calls were all alike."""
    state = reflecting(2).state
    brief = replace(
        state.brief, limits=replace(state.brief.limits, **{"max_steps": 10, "max_attempts_of_run": 40, **limits})
    )
    tokens = calls * (TOKENS + REPLY) if spent is None else spent
    return replace(
        state,
        brief=brief,
        step=step,
        attempts=step,
        spent=Spent(calls=calls, input_tokens=tokens, cost_usd=cost),
        measured={"claude": (BYTES, TOKENS)},
        longest_reply=REPLY,
        dearest_token=cost / calls / (TOKENS + REPLY) if calls else 0.0,
    )


def told(state: RunState, phase: Phase = Phase.REFLECT, minutes: float = 0) -> Budget:
    return budget_of(state, phase, NOON + timedelta(minutes=minutes), prompt_bytes=BYTES)


def test_each_budget_of_the_run_is_told_and_no_other() -> None:
    assert told(a_run()).left == ("8 of 10 steps", "60 minutes")
    assert told(a_run(max_tokens=100_000, max_cost_usd=3.0)).left == (
        "8 of 10 steps",
        "60 minutes",
        "87100 of 100000 tokens",
        "2.7000 of 3.0000 USD",
    )
    assert told(a_run(max_tokens=100_000)).note == ""


SHORT: dict[str, tuple[RunState, float]] = {
    "2 of 10 steps": (a_run(step=8), 0),
    "1 of 3 steps": (a_run(step=2, max_steps=3), 0),
    "12 minutes": (a_run(), 48.1),
    "46 seconds": (a_run(), 59.25),
    "87100 of 450000 tokens; about 19 more model calls after this one": (
        a_run(spent=362_900, max_tokens=450_000, calls=84),
        0,
    ),
    "0.4000 of 2.0000 USD; about 2 more model calls after this one": (a_run(cost=1.6, calls=16, max_cost_usd=2.0), 0),
    "0 of 2 reframes": (replace(a_run(), reframes=2), 0),
    "8 of 40 tool attempts": (replace(a_run(), attempts=32), 0),
    "1 of 5 questions to people": (replace(a_run(), questions=4), 0),
}


@pytest.mark.parametrize("words", SHORT)
def test_from_a_fifth_of_any_budget_on_the_model_is_told_to_come_to_an_end(words: str) -> None:
    state, minutes = SHORT[words]
    note = told(state, minutes=minutes).note
    assert note == f"Little is left ({words}): finish what matters most, or end while you can still say why."


@pytest.mark.parametrize(("left", "calls"), [(4999, 0), (9300, 1), (9299, 0), (13_599, 1), (13_600, 2), (100_000, 22)])
def test_calls_are_counted_by_what_one_takes_and_the_last_needs(left: int, calls: int) -> None:
    assert calls_after(a_run(spent=12_900, max_tokens=12_900 + left), BYTES) == calls


END = "say `done` if every item is met, else `ask` or `escalate`, with what was found and what is open."


def test_the_last_model_call_is_told_to_end_the_run() -> None:
    state = a_run(spent=12_900, max_tokens=20_000)
    assert told(state).note == f"No model call fits into the budget after this one: {END}"


def test_money_is_counted_in_calls_by_the_dearest_that_one_of_them_may_be() -> None:
    state = a_run(cost=0.3, calls=3, max_cost_usd=0.6)
    assert calls_after(state, BYTES) == 1
    assert calls_after(replace(state, dearest_token=2 * state.dearest_token), BYTES) == 0
