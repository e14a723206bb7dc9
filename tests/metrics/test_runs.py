"""Events of runs are counted once, by kind, and never by run.

The figures of all courses are a golden file of tests/projections.
"""

from asyncio import CancelledError
from collections import defaultdict
from collections.abc import Callable

import pytest

from agent_service.metrics import IncomingMetrics
from agent_service.views.spans import spans_since_rest
from groundwork.service.errors import GiveUp, TryAgain
from groundwork.telemetry.metrics import MOST_SERIES, Instruments
from schemas import subjects
from tests.core.cues import approves, cancel, due, rejects, signal
from tests.core.script import Cue, Script
from tests.core.stories import story as random_story
from tests.metrics.readings import measured, readings
from tests.projections.journals import entries_of, priced_example
from tests.projections.people import a_run_that_asks, a_run_that_needs_approval, answers

WAITED = "agentic_person_wait_duration_seconds"


def test_what_a_person_is_asked_waits_until_it_is_decided() -> None:
    rows: tuple[tuple[Callable[[], Script], str, dict[str, Cue]], ...] = (
        (a_run_that_needs_approval, "approval", {"approved": approves(), "rejected": rejects(), "expired": due}),
        (a_run_that_needs_approval, "approval", {"void": signal("message", message="wait")}),
        (a_run_that_asks, "question", {"answered": answers("in the hall"), "expired": due, "void": cancel()}),
    )
    for asked, kind, outcome, then in ((asked, kind, *end) for asked, kind, ends in rows for end in ends.items()):
        seen = measured(asked().wait(seconds=90) >> then)
        assert seen[f'agentic_run_paused_total{{agentic_run_reason="{kind}"}}'] == 1
        labels = f'{{agentic_asks="{kind}",agentic_person_outcome="{outcome}"}}'
        assert seen[f"{WAITED}_count{labels}"] == 1
        assert outcome == "expired" or seen[f"{WAITED}_sum{labels}"] == 90


def test_every_journal_is_measured_whole() -> None:
    for story in map(random_story, range(40)):
        seen = measured(story)
        counted = defaultdict[str, float](float)
        for series, value in seen.items():
            counted[series.partition("{")[0]] += value
        assert counted["agentic_journal_entries_total"] == len(entries_of(story))
        assert counted["agentic_run_completed_total"] == story.state.final + story.state.reopened
        assert len(seen) < MOST_SERIES
        assert not [series for series in seen if story.state.run_id in series]


def test_a_message_is_measured_by_its_subject_and_is_a_turn_again_where_it_is_delivered_again() -> None:
    internal = ((error, "internal") for error in (KeyError(), CancelledError()))
    for error, kind in ((None, ""), (TryAgain(""), "try_again"), (GiveUp(), "refused"), *internal):
        instruments = Instruments()
        IncomingMetrics(instruments).handled(subjects.TOOL_RESULT, 0.5, error)
        failed = f'error_type="{kind}",' if kind else ""
        again = f'agentic_retries_total{{agentic_retry_scope="turn",error_type="{kind}"}}'
        assert {series: value for series, value in readings(instruments).items() if "_sum" not in series} == {
            f'messaging_process_duration_seconds_count{{{failed}messaging_destination_name="agentic.tool_result"}}': 1,
            **({again: 1} if isinstance(error, TryAgain | KeyError) else {}),
        }


@pytest.mark.parametrize(("opted", "newer"), [("", False), ("http", False), ("http, gen_ai_latest_experimental", True)])
def test_names_of_the_genai_conventions_are_the_newer_ones_where_they_are_asked_for(
    opted: str, newer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", opted)
    told = {name.partition("{")[0] for name in measured(priced_example())}
    spans = spans_since_rest(entries_of(priced_example()))
    for name, is_newer in {
        "gen_ai_client_operation_duration_seconds_count": False,
        "gen_ai_client_token_usage_count": False,
        "gen_ai_client_inference_duration_seconds_count": True,
        "gen_ai_client_inference_operation_output_tokens_count": True,
    }.items():
        assert (name in told) is (newer is is_newer), name
    assert any("gen_ai.usage.cache_write.input_tokens" in span.attributes for span in spans) is newer
