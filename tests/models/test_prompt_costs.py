"""What a run's model calls cost is bounded: one call a step, a prompt that a cache covers, and no growth without end.

The figures count tokens and bytes, not seconds: they are the same on every machine.
"""

import asyncio
import itertools

import pytest

from agent_service.core.phases import Phase
from agent_service.core.waiting import Status
from tests.models.loop_of_thought import Course, run
from tests.models.prompt_costs import told

STEPS, LONG = 10, 200


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


async def test_a_decision_says_no_more_than_it_has_to() -> None:
    """A quarter less than when each reply had an outline and a risk, and a place for all that it did not say."""
    assert told(await run(steps=STEPS, fused=True, settings={}), STEPS)["reply_tokens_per_decision"] <= 150


async def test_a_run_is_done_with_a_budget_that_has_little_more_than_what_it_takes() -> None:
    """Of its last call only the reply is not known before: room for a long one is all that is asked for."""
    free = await run(steps=STEPS, fused=True, settings={})
    taken = sum(t.usage.input_tokens + t.usage.output_tokens for t in free.thoughts)
    tight = await run(steps=STEPS, fused=True, settings={}, max_tokens=taken + 1500)
    assert tight.final.status is Status.DONE
    assert "more model call" in tight.thoughts[-1].request["messages"][0]["content"][-1]["text"]


async def test_what_a_run_is_told_of_its_last_calls_is_true() -> None:
    free = await run(steps=STEPS, fused=True, settings={})
    taken = sum(t.usage.input_tokens + t.usage.output_tokens for t in free.thoughts)
    short = await run(steps=STEPS, fused=True, settings={}, max_tokens=taken * 3 // 4)
    assert short.final.ending_class == "budget_tokens"
    *_, last_but_one, last = (t.request["messages"][0]["content"][-1]["text"] for t in short.thoughts)
    assert "about one more model call after this one" in last_but_one
    assert "No model call fits into the budget after this one" in last


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


def test_the_journal_of_a_long_run_grows_by_the_same_with_each_step(long_run: Course) -> None:
    half = len(long_run.entries) // 2
    assert sum(long_run.entries[half:]) <= 1.05 * sum(long_run.entries[:half])


def test_the_state_of_a_long_run_grows_by_a_record_with_each_step(long_run: Course) -> None:
    states = long_run.states
    peaks = [max(states[start : start + 40]) for start in range(0, LONG, 40)]
    growth = [(after - before) / 40 for before, after in itertools.pairwise(peaks[1:])]
    assert max(growth) <= 1024
