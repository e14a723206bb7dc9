"""What a caller may ask a run to spend and what the operator grants; what a call may take, by those before it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agent_service.core.events import ModelReplied, ModelUsage
from agent_service.core.limits import LimitPolicy, LimitRefused, grant
from agent_service.core.model.measures import least_reply, likely_prompt, lost_prompt, measured, most_prompt
from agent_service.core.state import RunState
from schemas.events import Constraints
from tests.core.cues import a_framing_run, framing, limits
from tests.core.script import NOON

POLICY = LimitPolicy(defaults=limits(max_steps=10, max_reframes=2), wall_clock_s=600.0, cap_steps=20)
CAPPED = replace(POLICY, cap_tokens=1000, cap_cost_usd=2.0)
SMALL = replace(POLICY, cap_context_bytes=len('{"a":"é"}'.encode()))
IN_TWO_DAYS = NOON + timedelta(days=2)


@pytest.mark.parametrize(
    ("policy", "context", "constraints", "granted"),
    [
        (POLICY, {}, {}, {"max_steps": 10, "max_reframes": 2, "deadline_at": NOON + timedelta(minutes=10)}),
        (POLICY, {"max_steps": 6}, {}, {"max_steps": 6}),
        (POLICY, {"max_steps": 6}, {"max_steps": 4}, {"max_steps": 4}),
        (POLICY, {}, {"max_reframes": 0, "max_tokens": 5}, {"max_reframes": 0, "max_tokens": 5}),
        (POLICY, {}, {"max_cost_usd": 0.5, "deadline_at": IN_TWO_DAYS}, {"deadline_at": IN_TWO_DAYS}),
        (CAPPED, {}, {"max_loops": 20, "max_tokens": 1000}, {"max_steps": 20, "max_tokens": 1000, "max_cost_usd": 2.0}),
        (CAPPED, {}, {}, {"max_tokens": 1000, "max_cost_usd": 2.0}),
        (SMALL, {"a": "é"}, {}, {}),
    ],
)
def test_what_is_asked_for_is_granted_up_to_the_caps_and_the_defaults_else(
    policy: LimitPolicy, context: dict[str, Any], constraints: dict[str, Any], granted: dict[str, Any]
) -> None:
    limits = grant(policy, Constraints(**constraints), context=context, at=NOON)
    assert {name: getattr(limits, name) for name in granted} == granted


@pytest.mark.parametrize(
    ("field", "context", "constraints"),
    [
        *(("context.max_steps", {"max_steps": number}, {}) for number in ("6", 0, -1, 2.5, True, [6], 21)),
        ("context", {"a": "é" * 1000}, {}),
        ("constraints.max_steps", {}, {"max_steps": 21}),
        ("constraints.max_loops", {}, {"max_loops": 21}),
        ("constraints.max_tokens", {}, {"max_tokens": 1001}),
        ("constraints.max_cost_usd", {}, {"max_cost_usd": 2.1}),
        ("constraints.max_reframes", {}, {"max_reframes": 11}),
        ("constraints.deadline_at", {}, {"deadline_at": NOON}),
        ("constraints.deadline_at", {}, {"deadline_at": NOON - timedelta(seconds=1)}),
        ("constraints.deadline_at", {}, {"deadline_at": NOON + timedelta(days=31)}),
    ],
)
def test_what_is_beyond_is_refused_by_the_field_that_the_caller_used(
    field: str, context: dict[str, Any], constraints: dict[str, Any]
) -> None:
    policy = replace(CAPPED, cap_context_bytes=100)
    with pytest.raises(LimitRefused) as refusal:
        grant(policy, Constraints(**constraints), context=context, at=NOON)
    assert refusal.value.field == field


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
