"""The log's line of an entry: the fields by which a machine finds it, and a warning where a person should look."""

import logging
from typing import Any

import pytest

from agent_service.run.moments import retell
from agent_service.telling.log_lines import LogLine, log_line, write
from agent_service.trust.identity import trace_id
from tests.core.cues import (
    RUN_ID,
    a_paused_run,
    a_reflecting_run,
    a_retrying_run,
    a_waiting_run,
    cancel,
    due,
    errs,
    reflects,
    returns,
    unavailable,
)
from tests.core.script import Script
from tests.projections.journals import GOAL, entries_of, worked_example

CARD_105 = ("run_id", "wake_id", "step", "tool", "state_transition", "latency_ms", "error_class")


def lines(script: Script) -> list[LogLine]:
    return [log_line(moment) for moment in retell(entries_of(script))]


def newest(script: Script, *names: str) -> tuple[Any, ...]:
    """Fields of the last line."""
    fields = lines(script)[-1].fields
    return tuple(fields[name] for name in names)


def test_the_lines_of_a_run_tell_its_way_from_state_to_state() -> None:
    assert [(line.message, line.fields["state_transition"]) for line in lines(worked_example())] == [
        ("accepted", "none->queued"),
        ("started", "queued->for_model"),
        ("framed", "for_model->for_model"),
        ("planned; step 1 sent", "for_model->for_tool"),
        ("step 1 ok", "for_tool->for_model"),
        ("reflected, planned; step 2 sent", "for_model->for_tool"),
        ("step 2 ok", "for_tool->for_model"),
        ("reflected; done", "for_model->done"),
    ]


def test_every_line_has_every_field_and_those_of_a_run_share_its_trace() -> None:
    for line in lines(worked_example()):
        assert {*CARD_105, "attempt", "trace_id", "entry", "event", "tokens", "cost_usd"} <= line.fields.keys()
        assert (line.fields["run_id"], line.fields["trace_id"]) == (RUN_ID, trace_id(RUN_ID))


def test_a_result_names_the_attempt_that_it_answers_and_how_long_that_took() -> None:
    story = a_retrying_run() >> due
    story = story.wait(milliseconds=1250) >> returns(output={"job_id": "8f3c", "attempts": 2, "x": "y"})
    assert newest(story, "step", "tool", "attempt", "latency_ms") == (1, "fetch", 2, 1250)
    assert newest(story, "job_id", "attempts") == ("8f3c", 2)
    assert "x" not in lines(story)[-1].fields


def test_a_run_that_is_done_or_cancelled_has_no_error_and_warns_of_nothing() -> None:
    for story in (worked_example(), a_waiting_run() >> cancel(by="token ops"), a_waiting_run() >> returns()):
        assert {(line.level, line.fields["error_class"]) for line in lines(story)} == {(logging.INFO, None)}
    assert newest(a_waiting_run() >> cancel(by="token ops"), "by", "state_transition") == (
        "token ops",
        "for_tool->cancelled",
    )


@pytest.mark.parametrize(
    ("story", "message", "error_class", "why"),
    [
        (a_retrying_run(), "step 1 failed; attempt 2 follows", "upstream", "it broke"),
        (a_waiting_run() >> due, "step 1 failed; attempt 2 follows", "timeout", "no result by 2026"),
        (a_reflecting_run() >> unavailable("try_again"), "the model gave no answer; asked again", "overloaded", "529"),
        (a_paused_run(), "the model gave no answer; paused", "overloaded", "529"),
        (a_reflecting_run() >> reflects("escalate"), "reflected; escalated", "model", "looked at"),
        (a_waiting_run() >> errs("configuration"), "step 1 failed; escalated", "configuration", "it broke"),
        (a_waiting_run() >> returns(tool="someone"), "step 1 is not what", "protocol_violation", "someone"),
    ],
)  # fmt: skip
def test_an_outage_and_a_run_that_needs_a_person_is_a_warning_with_the_reason(
    story: Script, message: str, error_class: str, why: str
) -> None:
    line = lines(story)[-1]
    assert (line.level, line.fields["error_class"]) == (logging.WARNING, error_class)
    assert line.message.startswith(message)
    assert why in line.fields["why"]


def test_no_words_of_goals_models_and_tools_are_logged() -> None:
    told = str(lines(worked_example()))
    assert GOAL not in told
    assert "Matt Joyce" not in told


def test_a_log_that_wants_only_warnings_has_those_of_runs(caplog: pytest.LogCaptureFixture) -> None:
    moments = list(retell(entries_of(a_retrying_run())))
    with caplog.at_level(logging.WARNING, logger="agent_service.telling.log_lines"):
        for moment in moments:
            write(moment)
    assert [record.message for record in caplog.records] == ["step 1 failed; attempt 2 follows"]
