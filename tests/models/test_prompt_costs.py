"""What a run's model calls cost is bounded: one call a step, a prompt that a cache covers, and no growth without end.

The figures count tokens and bytes, not seconds: they are the same on every machine.
"""

import asyncio

import pytest

from agent_service.core.phases import Phase
from tests.models.prompt_costs import LONG, STEPS, Course, run, told


async def test_a_fused_run_asks_the_model_little_more_than_once_a_step() -> None:
    course = await run(steps=STEPS, fused=True, settings={})
    assert course.final is not None
    assert course.final.outcome == "All services are listed."
    assert len(course.thoughts) / STEPS <= 1.1 + 1 / STEPS


async def test_from_the_third_step_on_nearly_all_of_a_prompt_can_come_from_the_cache() -> None:
    course = await run(steps=STEPS, fused=True, settings={"cache": "5m"})
    for thought in course.thoughts:
        if thought.step >= 3:
            usage = thought.usage
            assert (usage.cache_read_tokens + usage.cache_write_tokens) / usage.input_tokens >= 0.9
            assert usage.cache_read_tokens / usage.input_tokens >= 0.8


async def test_fused_and_cached_costs_a_third_of_separate_and_uncached_at_most() -> None:
    cheap = told(await run(steps=STEPS, fused=True, settings={"cache": "5m"}), STEPS)
    dear = told(await run(steps=STEPS, fused=False, settings={"cache": "off"}), STEPS)
    assert cheap["cost_usd"] <= dear["cost_usd"] / 3


@pytest.fixture(scope="module")
def long_run() -> Course:
    return asyncio.run(run(steps=LONG, fused=True, settings={}))


def test_a_compaction_costs_the_cache_next_to_nothing(long_run: Course) -> None:
    """One schema for all calls: a compaction reads what the turn before it left, and all but the tail can be kept."""
    figures = told(long_run, LONG)
    assert any(thought.phase is Phase.COMPACT for thought in long_run.thoughts)
    assert figures["calls_per_step"] <= 1.1 + 1 / LONG
    assert figures["cacheable_share"] >= 0.85
    assert figures["repeated_share"] >= 0.85


def test_the_prompts_of_a_long_run_stay_bounded(long_run: Course) -> None:
    prompts = [t.usage.input_tokens for t in long_run.thoughts if t.phase is Phase.REFLECT]
    assert len(prompts) == LONG
    assert max(prompts[LONG // 2 :]) <= 1.02 * max(prompts[: LONG // 2])
    assert sum(t.phase is Phase.COMPACT for t in long_run.thoughts) <= LONG / 15
