"""What is set aside for a call: all that it may spend, and, near the end of a budget, less rather than nothing."""

from dataclasses import replace

import pytest

from agent_service.core.brief import Limits
from agent_service.core.model.measures import FIRST_REPLY
from agent_service.core.state import Spent
from agent_service.core.waiting import Reserve
from agent_service.models.call import estimated
from agent_service.models.prices import Prices
from agent_service.models.prompts.prompt import compose
from agent_service.models.settings import ModelSettings
from agent_service.run.ports import Question
from tests.models.model_house import reflecting

MODEL = "claude-sonnet-5-5"
SETTINGS = ModelSettings(provider="anthropic", model=MODEL, max_tokens=8000)
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


def test_a_reserve_is_the_prompt_and_the_reply() -> None:
    found = reserve(limited())
    assert found.tokens > found.reply_tokens
    assert found.cost_usd is not None
    assert found.cost_usd > 8000 * 10 / 1_000_000


def test_the_reply_shrinks_to_what_the_money_allows() -> None:
    whole = reserve(limited())
    assert whole.cost_usd is not None
    found = reserve(limited(max_cost_usd=whole.cost_usd - 0.03))
    assert FIRST_REPLY < found.reply_tokens < 8000
    assert found.cost_usd == pytest.approx(whole.cost_usd - 0.03, abs=0.0001)
    assert (found.cost_usd or 1) <= whole.cost_usd - 0.03


def test_a_reply_is_never_too_short_to_hold_a_decision() -> None:
    assert reserve(limited(max_tokens=10)).reply_tokens == FIRST_REPLY
    assert reserve(limited(max_cost_usd=0.000001)).reply_tokens == FIRST_REPLY


def known(question: Question, *, longest_reply: int = 200) -> Question:
    """The same, in a run whose provider has counted this prompt at four bytes a token before."""
    size = estimated_bytes(question)
    state = replace(question.state, measured={f"{MODEL}-20261021": (size, size // 4)}, longest_reply=longest_reply)
    return replace(question, state=state)


def estimated_bytes(question: Question) -> int:
    """Of the first prompt of a run is set aside what its bytes could be at most."""
    found = reserve(question)
    return 2 * (found.tokens - found.reply_tokens)


def test_a_prompt_whose_beginning_was_counted_is_taken_at_that_count() -> None:
    first, later = reserve(limited()), reserve(known(limited()))
    assert later.tokens - later.reply_tokens == pytest.approx((first.tokens - first.reply_tokens) / 2, rel=0.2)


def test_the_last_call_that_fits_is_made() -> None:
    """With half of what the bytes alone would ask for, once the run has shown what its calls take."""
    question = known(limited())
    prompt = estimated_bytes(limited()) // 4
    found = reserve(known(limited(Spent(input_tokens=1000), max_tokens=1000 + prompt + 1500)))
    assert found.tokens + 1000 <= 1000 + prompt + 1500
    assert found.reply_tokens >= 1000
    assert reserve(question).reply_tokens == 8000


def test_a_lost_call_counts_as_its_prompt_and_a_reply_longer_than_any_so_far() -> None:
    found = reserve(known(limited()))
    assert found.if_lost is not None
    assert found.if_lost[0] == found.tokens - found.reply_tokens + 1000
    assert 0 < (found.if_lost[1] or 0) < (found.cost_usd or 0)
