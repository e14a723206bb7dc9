"""What happens to runs is counted once, by what it is, and never by which run it is."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from agent_service.metrics.runs import AgentMetrics
from agent_service.run.moments import retell
from groundwork.telemetry.metrics import MOST_SERIES
from tests.core.cues import (
    PROOF,
    a_framing_run,
    a_waiting_run,
    cancel,
    due,
    errs,
    frames,
    plans,
    reflects,
    reserves,
    returns,
    signal,
    unavailable,
)
from tests.core.script import Cue, Script
from tests.core.stories import STORIES
from tests.metrics.readings import measured
from tests.projections.journals import entries_of, priced_example
from tests.projections.people import a_run_in_doubt, a_run_that_asks, a_run_that_needs_approval, answers, rules

SEEN, ENDED = "agentic_run_duration_seconds", "agentic_run_completed_total"


def ended(seen: dict[str, float]) -> dict[str, float]:
    return {series: value for series, value in seen.items() if series.startswith(ENDED)}


def test_a_run_that_is_done_lasted_from_its_acceptance_to_its_end() -> None:
    story = a_framing_run().wait(seconds=2) >> frames() >> plans()
    seen = measured(story.wait(seconds=40) >> returns() >> reflects("done", PROOF))
    assert ended(seen) == {f'{ENDED}{{agentic_run_state="done"}}': 1}
    assert seen[f'{SEEN}_sum{{agentic_run_state="done"}}'] == 42


WAITED = "agentic_person_wait_duration_seconds"


@pytest.mark.parametrize(
    ("asked", "then", "kind", "outcome"),
    [
        (a_run_that_needs_approval, rules("approve"), "approval", "approved"),
        (a_run_that_needs_approval, rules("reject"), "approval", "rejected"),
        (a_run_that_needs_approval, due, "approval", "expired"),
        (a_run_that_needs_approval, signal("message", message="wait"), "approval", "void"),
        (a_run_that_asks, answers("in the hall"), "question", "answered"),
        (a_run_that_asks, due, "question", "expired"),
        (a_run_that_asks, cancel(), "question", "void"),
    ],
)
def test_what_a_person_is_asked_waits_until_it_is_decided(
    asked: Callable[[], Script], then: Cue, kind: str, outcome: str
) -> None:
    seen = measured(asked().wait(seconds=90) >> then)
    assert seen[f'agentic_run_paused_total{{agentic_run_reason="{kind}"}}'] == 1
    labels = f'{{agentic_asks="{kind}",agentic_person_outcome="{outcome}"}}'
    assert seen[f"{WAITED}_count{labels}"] == 1
    assert outcome == "expired" or seen[f"{WAITED}_sum{labels}"] == 90


def test_a_run_that_an_answer_opens_again_is_counted_by_what_it_had_ended_of_and_at_each_end() -> None:
    seen = measured(a_run_in_doubt() >> answers("it is there", "ran") >> reflects("done", PROOF))
    assert seen['agentic_run_reopened_total{agentic_run_reason="in_doubt"}'] == 1
    assert sum(ended(seen).values()) == 2


def attempts(seen: dict[str, float]) -> dict[str, float]:
    name = "agentic_tool_duration_seconds_count{"
    return {series.removeprefix(name): value for series, value in seen.items() if series.startswith(name)}


def test_every_attempt_of_a_step_is_measured_and_its_retries_are_counted() -> None:
    story = a_waiting_run() >> errs("transient", retryable=True) >> due
    story = story.wait(seconds=3) >> returns() >> reflects("done", PROOF)
    seen = measured(story)
    assert sum(attempts(seen).values()) == 2
    assert seen['agentic_retries_total{agentic_retry_scope="tool",error_type="transient"}'] == 1
    assert seen['agentic_tool_duration_seconds_sum{agentic_tool_outcome="ok",gen_ai_tool_name="fetch"}'] == 3


def test_a_model_call_took_from_when_it_was_made_and_its_phase_from_when_it_was_a_framing_run() -> None:
    story = a_framing_run().wait(seconds=1) >> reserves()
    story = story.wait(seconds=2) >> unavailable("try_again")
    story = story >> due >> reserves()
    seen = measured(story.wait(seconds=4) >> frames())
    assert seen['agentic_retries_total{agentic_retry_scope="llm",error_type="overloaded"}'] == 1
    calls = "gen_ai_client_operation_duration_seconds_sum"
    assert sorted(value for series, value in seen.items() if series.startswith(calls)) == [2, 4]
    assert seen['agentic_phase_duration_seconds_sum{agentic_phase="frame"}'] > 7


def test_tokens_and_cost_are_those_of_the_journal() -> None:
    story = priced_example()
    spent, seen = story.state.spent, measured(story)
    tokens = 'agentic_llm_tokens_total{{gen_ai_request_model="claude-sonnet-4-5",gen_ai_token_type="{}"}}'
    assert seen[tokens.format("input")] == spent.input_tokens
    assert seen[tokens.format("output")] == spent.output_tokens
    assert seen[tokens.format("cache_read")] == spent.cache_read_tokens
    cost = sum(value for series, value in seen.items() if series.startswith("agentic_llm_cost_total"))
    assert cost == pytest.approx(spent.cost_usd)


def test_a_call_without_a_price_is_said_to_be_missing_in_the_cost() -> None:
    seen = measured(a_framing_run() >> frames(cost=None))
    assert seen['agentic_llm_unpriced_total{gen_ai_request_model="scripted"}'] == 1


def test_what_cannot_be_measured_is_told_and_harms_no_run(caplog: pytest.LogCaptureFixture) -> None:
    moment = next(iter(retell(entries_of(a_framing_run()))))
    AgentMetrics("anthropic").runs.committed(replace(moment, after=None))  # type: ignore[arg-type]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(STORIES)
def test_every_journal_is_measured_whole(story: Script) -> None:
    seen, entries = measured(story), entries_of(story)
    assert sum(value for name, value in seen.items() if name.startswith("agentic_journal_entries_total")) == len(
        entries
    )
    assert sum(ended(seen).values()) == story.state.final + story.state.reopened
    assert len(seen) < MOST_SERIES
    assert not [series for series in seen if story.state.run_id in series]
