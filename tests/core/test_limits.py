"""What a caller may ask a run to spend and what the operator grants; what a call may take, by those before it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agent_service.core.brief import Limits
from agent_service.core.events import ModelReplied, ModelUsage
from agent_service.core.limits import LimitPolicy, LimitRefused, grant
from agent_service.core.model.measures import least_reply, likely_prompt, lost_prompt, measured, most_prompt
from agent_service.core.state import RunState
from schemas.events import Constraints
from tests.core.cues import a_framing_run, framing, limits
from tests.core.script import NOON

POLICY = LimitPolicy(defaults=limits(max_steps=10, max_reframes=2), wall_clock_s=600.0, cap_steps=20)


def granted(policy: LimitPolicy = POLICY, context: dict[str, Any] | None = None, **constraints: Any) -> Limits:
    return grant(policy, Constraints(**constraints), context=context or {}, at=NOON)


def refused(policy: LimitPolicy = POLICY, context: dict[str, Any] | None = None, **constraints: Any) -> str:
    with pytest.raises(LimitRefused) as refusal:
        granted(policy, context, **constraints)
    return refusal.value.field


def test_who_asks_for_nothing_gets_the_defaults_and_a_deadline_from_acceptance_on() -> None:
    assert granted() == replace(POLICY.defaults, deadline_at=NOON + timedelta(minutes=10))


def test_max_steps_may_come_with_the_context_and_the_constraints_win() -> None:
    assert granted(context={"max_steps": 6}).max_steps == 6
    assert granted(context={"max_steps": 6}, max_steps=4).max_steps == 4


@pytest.mark.parametrize("number", ["6", 0, -1, 2.5, True, [6]])
def test_max_steps_of_the_context_must_be_a_whole_number(number: object) -> None:
    assert refused(context={"max_steps": number}) == "context.max_steps"


def test_a_context_may_be_as_large_as_the_operator_says_and_no_larger() -> None:
    policy = replace(POLICY, cap_context_bytes=len('{"a":"é"}'.encode()))
    granted(policy, context={"a": "é"})
    assert refused(policy, context={"a": "éé"}) == "context"


def test_every_number_is_granted_as_asked() -> None:
    deadline = NOON + timedelta(days=2)
    limits = granted(max_reframes=0, max_tokens=5, max_cost_usd=0.5, deadline_at=deadline)
    assert (limits.max_reframes, limits.max_tokens, limits.max_cost_usd, limits.deadline_at) == (0, 5, 0.5, deadline)


def test_the_hard_caps_may_be_reached_and_not_passed() -> None:
    policy = replace(POLICY, cap_tokens=1000, cap_cost_usd=2.0)
    assert granted(policy, max_loops=20, max_tokens=1000, max_cost_usd=2.0).max_steps == 20
    assert refused(policy, max_loops=21) == "constraints.max_loops"
    assert refused(policy, max_tokens=1001) == "constraints.max_tokens"
    assert refused(policy, max_cost_usd=2.1) == "constraints.max_cost_usd"
    assert refused(policy, max_reframes=11) == "constraints.max_reframes"


def test_a_deadline_must_be_in_the_future_and_not_too_far() -> None:
    assert refused(deadline_at=NOON) == "constraints.deadline_at"
    assert refused(deadline_at=NOON - timedelta(seconds=1)) == "constraints.deadline_at"
    assert refused(deadline_at=NOON + timedelta(days=31)) == "constraints.deadline_at"


def test_a_refusal_names_the_field_that_the_caller_used() -> None:
    assert refused(max_steps=21) == "constraints.max_steps"
    assert refused(context={"max_steps": 21}) == "context.max_steps"


def test_a_hard_cap_holds_for_who_asks_for_nothing() -> None:
    limits = granted(replace(POLICY, cap_tokens=1000, cap_cost_usd=2.0))
    assert (limits.max_tokens, limits.max_cost_usd) == (1000, 2.0)


# Measures


def after(*calls: tuple[int, int, int], model: str = "claude", cost_usd: float | None = 0.01) -> RunState:
    """A run whose calls had so many bytes, tokens in and tokens out."""
    state = a_framing_run().state
    for size, tokens, said in calls:
        usage = ModelUsage(input_tokens=tokens, output_tokens=said, cost_usd=cost_usd)
        reply = ModelReplied(
            at=state.updated_at, call=1, model=model, usage=usage, decision=framing(), prompt_bytes=size
        )
        state = measured(state, reply)
    return state


def test_an_unknown_prompt_is_taken_at_two_bytes_a_token() -> None:
    assert most_prompt(after(), "claude", 10_000) == 5000


def test_of_a_longer_prompt_only_what_is_new_is_taken_at_its_bytes() -> None:
    assert most_prompt(after((10_000, 2500, 100)), "claude", 12_000) == 2500 + 1000


def test_a_model_that_answers_under_a_more_precise_name_is_known() -> None:
    assert most_prompt(after((10_000, 2500, 100), model="claude-20261021"), "claude", 10_000) == 2750
    assert most_prompt(after((10_000, 2500, 100), model="gpt"), "claude", 10_000) == 5000


def test_a_prompt_is_likely_to_be_as_dense_as_the_longest() -> None:
    assert likely_prompt(after(), 8000) == 2000
    assert likely_prompt(after((9000, 3000, 100)), 6000) == 2000


def test_a_lost_prompt_counts_as_a_quarter_more_than_it_is_likely_to_be_and_at_most_as_what_was_set_aside() -> None:
    assert lost_prompt(after(), "claude", 8000) == 2500
    assert lost_prompt(after((10_000, 2500, 100)), "claude", 10_000) == 2750
    assert lost_prompt(after((10_000, 2500, 100)), "claude", 12_000) == 3500


def test_a_reply_needs_room_for_half_more_than_the_longest() -> None:
    assert least_reply(after()) == 3000
    assert least_reply(after((9000, 3000, 100))) == 1000
    assert least_reply(after((9000, 3000, 2000), (9000, 3000, 100))) == 3000
