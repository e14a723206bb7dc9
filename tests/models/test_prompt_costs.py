"""Bounded cost of a run's model calls: one call a step, prompts that a cache covers, no unlimited growth.

The figures count tokens and bytes, not seconds, so they are the same on every machine.
"""

from agent_service.core.phases import Phase
from agent_service.models.prompts.prompt import compose
from schemas.values import replace
from tests.models.model_house import framing, question
from tests.models.prompt_cache import canonical, tokens
from tests.models.prompt_costs import STEPS, run, told

LONG = 90


def test_the_rules_and_the_schema_cost_so_many_tokens_before_any_tool() -> None:
    state = framing().state
    for short, most in ((False, 2500), (True, 1300)):
        brief = replace(state.brief, short_rules=short, skills=())
        prompt = compose(question(replace(state, brief=brief), Phase.FRAME))
        assert tokens(prompt.system[0]) + tokens(canonical(prompt.schema)) <= most


async def test_a_fused_run_asks_once_a_step_from_the_cache_and_costs_a_third_of_separate_and_uncached() -> None:
    thoughts, final = await run(steps=STEPS, fused=True, settings={"cache": "5m"})
    assert final.reason == "All services are listed."
    assert len(thoughts) / STEPS <= 1.1 + 1 / STEPS
    for usage in (thought.usage for thought in thoughts if thought.step >= 3):
        assert (usage.cache_read_tokens + usage.cache_write_tokens) / usage.input_tokens >= 0.9
        assert usage.cache_read_tokens / usage.input_tokens >= 0.8
    dear, _ = await run(steps=STEPS, fused=False, settings={"cache": "off"})
    assert told(thoughts, STEPS)["cost_usd"] <= told(dear, STEPS)["cost_usd"] / 3


async def test_a_compaction_costs_the_cache_next_to_nothing_and_the_prompts_of_a_long_run_stay_bounded() -> None:
    """All calls have one schema: a compaction reads the cache of the turn before, and all but the tail stays cached."""
    thoughts, _ = await run(steps=LONG, fused=True, settings={})
    figures = told(thoughts, LONG)
    assert figures["calls_per_step"] <= 1.1 + 1 / LONG
    assert figures["cacheable_share"] >= 0.85
    assert 0 < sum(thought.phase is Phase.COMPACT for thought in thoughts) <= LONG / 15
    prompts = [t.usage.input_tokens for t in thoughts if t.phase is Phase.REFLECT]
    assert len(prompts) == LONG
    assert max(prompts[LONG // 2 :]) <= 1.02 * max(prompts[: LONG // 2])
