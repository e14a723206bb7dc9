"""What a call of Claude's is said to have cost: by the API's count of tokens and the price list, or our own."""

from itertools import pairwise
from typing import Any

import pytest

from agent_service.core.events import ModelUsage
from agent_service.core.state import replace
from tests.models.fake_anthropic import serve
from tests.models.model_house import OPENING, TURN, framing, reflecting

SONNET = {"input": 2.0, "output": 10.0, "read": 0.1, "write_5m": 2.5, "write_1h": 4.0}
"""USD per million tokens, by the vendor's page of November 2026."""
OWN = {"input": 7, "output": 11, "cache_read": 1, "cache_write": 3}
M = 1_000_000


async def used(usage: dict[str, Any], *, model: str = "claude-sonnet-5-5", **settings: Any) -> ModelUsage:
    """What is made of the usage that the API reports."""
    async with serve(**settings) as claude:
        claude.fake.message(usage=usage, model=model)
        return (await claude.model.prepare(framing()).make()).usage


def reported(plain: int = 0, output: int = 0, read: int = 0, write_5m: int = 0, write_1h: int = 0) -> dict[str, Any]:
    return {
        "input_tokens": plain,
        "output_tokens": output,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write_5m + write_1h,
        "cache_creation": {"ephemeral_5m_input_tokens": write_5m, "ephemeral_1h_input_tokens": write_1h},
    }


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (reported(plain=M), SONNET["input"]),
        (reported(output=M), SONNET["output"]),
        (reported(read=M), SONNET["read"]),
        (reported(write_5m=M), SONNET["write_5m"]),
        (reported(write_1h=M), SONNET["write_1h"]),
        (reported(1000, 100, 5000, 300, 200), (2000 + 1000 + 500 + 750 + 800) / M),
        ({"input_tokens": M, "output_tokens": 0}, SONNET["input"]),
    ],
    ids=["plain", "output", "read", "written for 5m", "written for 1h", "all of them", "no cache reported"],
)
async def test_each_kind_of_token_has_its_price(usage: dict[str, Any], cost: float) -> None:
    assert (await used(usage)).cost_usd == pytest.approx(cost)


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (OWN, 0.7 + 0.11 + 0.5 + 0.15),
        ({"input": 7, "output": 11}, 0.7 + 0.11 + 3.5 + 0.35),
        ({"input": 0, "output": 0}, 0),
    ],
    ids=["all given", "the cache as the input", "free"],
)
async def test_a_price_of_ones_own_goes_before_the_list(price: dict[str, float], cost: float) -> None:
    usage = await used(reported(100_000, 10_000, 500_000, 30_000, 20_000), price=price)
    assert usage.cost_usd == pytest.approx(cost)


async def test_a_call_whose_price_nobody_knows_is_estimated_in_tokens_alone() -> None:
    async with serve(model="claude-unheard-of-9") as claude:
        estimate = claude.model.prepare(framing()).estimate
    assert estimate is not None
    assert estimate.reserve.cost_usd is None
    assert estimate.reserve.tokens > 8000


async def test_a_run_pays_for_what_is_new_in_each_turn() -> None:
    """Ten turns, as the API would charge them: the beginning of each prompt is read, not paid for in full."""
    async with serve() as claude:
        claude.fake.policy = TURN
        turns = [(await claude.model.prepare(reflecting(steps)).make()).usage for steps in range(1, 11)]
    assert turns[0].cache_read_tokens == 0
    for before, now in pairwise(turns):
        assert now.cache_read_tokens == before.cache_read_tokens + before.cache_write_tokens
        assert now.cache_write_tokens < 300
    assert sum(usage.cost_usd or 0 for usage in turns[1:]) < 0.4 * (turns[0].cost_usd or 0) * 9


async def test_the_second_run_reads_rules_and_tools_that_the_first_has_written() -> None:
    async with serve() as claude:
        claude.fake.policy = OPENING
        first, second = [(await claude.model.prepare(framing(number)).make()).usage for number in (1, 2)]
        other = framing(3)
        brief = replace(other.state.brief, goal="Something else.")
        third = (await claude.model.prepare(replace(other, state=replace(other.state, brief=brief))).make()).usage
    assert first.cache_read_tokens == 0
    assert second.cache_read_tokens == first.cache_write_tokens
    assert 0 < third.cache_read_tokens < second.cache_read_tokens
