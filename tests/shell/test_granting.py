"""Limits that a caller requests and the operator grants."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agent_service.admission.granting import LimitPolicy, LimitRefused, grant
from agent_service.settings import LimitSettings
from schemas.events import Constraints
from tests.core.cues import limits
from tests.core.script import NOON

POLICY = LimitPolicy(defaults=limits(max_steps=10, max_reframes=2), wall_clock_s=600.0)
CAPPED = replace(LimitSettings(cap_tokens=1000, cap_cost_usd=2.0, max_cost_usd=3.0).policy(), cap_context_bytes=100)
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
        (LimitSettings(max_reframes=15).policy(), {}, {"max_reframes": 12}, {"max_reframes": 12}),
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
    with pytest.raises(LimitRefused) as refusal:
        grant(CAPPED, Constraints(**constraints), context=context, at=NOON)
    assert refusal.value.field == field
