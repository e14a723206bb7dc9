"""What is set aside for a call: all that it may spend, and, near the end of a budget, less rather than nothing."""

from dataclasses import replace

import pytest

from agent_service.core.state import Limits, Spent
from agent_service.core.waiting import Reserve
from agent_service.models.call import LEAST_REPLY, estimated
from agent_service.models.prices import Prices
from agent_service.models.prompts.prompt import compose
from agent_service.models.settings import ModelSettings, PriceSettings
from agent_service.ports import Question
from tests.models.model_house import reflecting

SETTINGS = ModelSettings(provider="anthropic", max_tokens=8000)
LISTED = Prices("anthropic", None)


UNSPENT = Spent()


def limited(spent: Spent = UNSPENT, **limits: float) -> Question:
    asked = reflecting()
    brief = asked.state.brief
    granted: Limits = replace(brief.limits, **limits)  # type: ignore[arg-type] # a limit of its own type
    state = replace(asked.state, brief=replace(brief, limits=granted), spent=spent)
    return replace(asked, state=state)


def reserve(question: Question, prices: Prices = LISTED) -> Reserve:
    return estimated(question, compose(question), SETTINGS, prices).reserve


def test_without_limits_the_whole_reply_is_set_aside() -> None:
    assert reserve(limited()).reply_tokens == 8000


def test_a_reserve_is_the_prompt_and_the_reply() -> None:
    found = reserve(limited())
    assert found.tokens > found.reply_tokens
    assert found.cost_usd is not None
    assert found.cost_usd > 8000 * 10 / 1_000_000


def test_the_reply_shrinks_to_what_the_tokens_allow() -> None:
    found = reserve(limited(Spent(input_tokens=1000), max_tokens=10_000))
    assert LEAST_REPLY < found.reply_tokens < 8000
    assert found.tokens + 1000 == 10_000


def test_the_reply_shrinks_to_what_the_money_allows() -> None:
    whole = reserve(limited())
    assert whole.cost_usd is not None
    found = reserve(limited(max_cost_usd=whole.cost_usd - 0.03))
    assert LEAST_REPLY < found.reply_tokens < 8000
    assert found.cost_usd == pytest.approx(whole.cost_usd - 0.03, abs=0.0001)
    assert (found.cost_usd or 1) <= whole.cost_usd - 0.03


def test_what_crashes_may_have_cost_counts_too() -> None:
    found = reserve(limited(Spent(lost_tokens=1000), max_tokens=10_000))
    assert found.tokens + 1000 == 10_000


def test_a_reply_is_never_too_short_to_hold_a_decision() -> None:
    assert reserve(limited(max_tokens=10)).reply_tokens == LEAST_REPLY
    assert reserve(limited(max_cost_usd=0.000001)).reply_tokens == LEAST_REPLY


def test_a_model_that_costs_nothing_is_not_cut_by_a_limit_in_usd() -> None:
    free = Prices(None, PriceSettings(input=0, output=0))
    assert reserve(limited(max_cost_usd=0.000001), free).reply_tokens == 8000
