"""The reserve of a call: all that it may spend and, near the end of a budget, less rather than nothing."""

from dataclasses import replace
from typing import Any

import pytest

from agent_service.core.brief import Spent
from agent_service.core.limits import FIRST_REPLY
from agent_service.core.waiting import CallReserve
from agent_service.models.anthropic_model import Claude
from agent_service.models.settings import ModelSettings
from tests.models.model_house import reflecting

MODEL = "claude-sonnet-5-5"
SETTINGS = ModelSettings(provider="anthropic", model=MODEL, max_tokens=8000)


def reserve(*, spent: int = 0, known: int = 0, **limits: float) -> CallReserve:
    """Reserve of a run that spent that many tokens and whose provider has counted a prompt of `known` bytes, four a
    token."""
    asked = reflecting()
    granted = replace(asked.state.brief.limits, **limits)  # type: ignore[arg-type] # a limit of its own type
    measured: dict[str, Any] = (
        {"measured": {f"{MODEL}-20261021": (known, known // 4)}, "longest_reply": 200} if known else {}
    )
    brief = replace(asked.state.brief, limits=granted)
    question = replace(asked, state=replace(asked.state, brief=brief, spent=Spent(input_tokens=spent), **measured))
    reserved = Claude(None, SETTINGS, "anthropic").prepare(question).reserved
    assert reserved is not None
    return reserved.reserve


def prompt_of(found: CallReserve) -> int:
    return found.tokens - found.reply_tokens


BYTES = 2 * prompt_of(reserve())
"""The first prompt of a run reserves the most tokens that its bytes can have."""


def test_the_reply_shrinks_to_what_the_money_allows_and_is_never_too_short_to_hold_a_decision() -> None:
    whole = reserve()
    assert whole.reply_tokens == 8000
    assert whole.cost_usd is not None
    assert whole.cost_usd > 8000 * 10 / 1_000_000
    found = reserve(max_cost_usd=whole.cost_usd - 0.03)
    assert FIRST_REPLY < found.reply_tokens < 8000
    assert found.cost_usd == pytest.approx(whole.cost_usd - 0.03, abs=0.0001)
    assert (found.cost_usd or 1) <= whole.cost_usd - 0.03
    assert reserve(max_tokens=10).reply_tokens == FIRST_REPLY
    assert reserve(max_cost_usd=0.000001).reply_tokens == FIRST_REPLY


def test_the_last_call_that_fits_is_made() -> None:
    """It gets half of what its bytes alone would need, once the run's own calls are known."""
    left = BYTES // 4 + 1500
    found = reserve(known=BYTES, spent=1000, max_tokens=1000 + left)
    assert found.tokens <= left
    assert found.reply_tokens >= 1000
