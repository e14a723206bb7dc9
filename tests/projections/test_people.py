"""What people are asked and say is told: in the timeline, of a step, in lines, and why a run rests for them."""

import pytest

from agent_service.core.events import ModelReplied
from agent_service.core.phases import Wait
from agent_service.run.moments import Moment, retell
from agent_service.telling.answers.step_in_full import StepDetail, step_detail
from agent_service.telling.answers.why import Seen, why_view
from agent_service.telling.history.items import TimelineItem
from agent_service.telling.history.timeline import Timeline
from agent_service.telling.log_lines import log_line
from agent_service.telling.rulings import rulings
from agent_service.telling.sayings import say
from tests.core.cues import (
    PROOF,
    a_reflecting_run,
    due,
    reflection,
    replies,
    signal,
)
from tests.core.script import NOON, Script
from tests.projections.journals import USAGE, entries_of
from tests.projections.people import (
    QUESTION,
    a_run_in_doubt,
    a_run_that_asks,
    a_run_that_needs_approval,
    answers,
)


def moments(script: Script) -> list[Moment]:
    return list(retell(entries_of(script)))


def items(script: Script) -> list[TimelineItem]:
    timeline = Timeline()
    timeline.hear(moments(script))
    return list(timeline.view(script.state.run_id).items)


def told(script: Script, *kinds: str) -> list[tuple[str, str]]:
    return [(item.title, item.status) for item in items(script) if item.kind in kinds]


def step(script: Script, number: int = 1) -> StepDetail:
    found = step_detail(moments(script), number)
    assert found is not None
    return found


def last_line(script: Script) -> str:
    return say(moments(script)[-1])


def logged(script: Script) -> str:
    return log_line(moments(script)[-1]).message


# Approvals


def test_a_plan_that_waits_for_approval_was_accepted_and_is_not_carried_out_yet() -> None:
    script = a_run_that_needs_approval()
    *_, planned, asked = items(script)
    assert (planned.title, planned.status) == ("Plan", "ok")
    assert (asked.kind, asked.title, asked.status) == ("wait", "Asks for approval of post handle", "waiting")
    assert asked.until == script.state.due_at
    assert "waits for approval" in last_line(script)
    line = log_line(moments(script)[-1])
    assert (line.message, line.fields["step"], line.fields["tool"]) == ("planned; waits for approval", 1, "post")


# Questions


# Waits


def test_a_wait_by_choice_is_told_with_its_end_and_is_over_then() -> None:
    script = a_reflecting_run() >> replies(reflection("continue"), plan=Wait(why="the build runs", seconds=90.0))
    (wait,) = [item for item in items(script) if item.kind == "wait"]
    assert (wait.title, wait.text, wait.status, wait.until) == (
        "Waits",
        "the build runs",
        "waiting",
        script.state.due_at,
    )
    assert logged(script) == "reflected; waits for an instant"
    assert told(script >> due, "wait") == [("Waits", "ok")]
    assert last_line(script).startswith("the wait is over; ")


# What people say while a decision is made


def test_a_decision_that_a_word_has_outrun_does_not_count_and_is_not_taken_for_an_error() -> None:
    script = a_reflecting_run() >> signal("message", message="not yet")
    asked = script.state.asking
    assert asked is not None
    reply = ModelReplied(
        at=script.now, call=asked.call, model="scripted", usage=USAGE, decision=reflection("done", PROOF), heard=0
    )
    outrun = moments(script >> reply)[-1]
    (ruling,) = rulings(outrun)
    assert (ruling.status, ruling.why) == ("outrun", "a person said something newer")
    assert say(outrun).startswith("reflect outrun: a person said something newer")
    assert log_line(outrun).message == "reflect outrun"


# Verification


# In doubt, and opened again


@pytest.mark.parametrize(
    ("outcome", "status", "error"),
    [("ran", "ok", None), ("did_not_run", "error", "did_not_run"), ("look", "error", "in_doubt")],
)
def test_a_write_in_doubt_is_told_by_what_a_person_says_of_it(outcome: str, status: str, error: str | None) -> None:
    script = a_run_in_doubt().wait(hours=2) >> answers("I have looked", outcome)  # type: ignore[arg-type]
    assert told(script, "step", "ending", "person") == [
        ("Step 1: post handle", status),
        ("Escalated", "error"),
        ("Answer", "ok"),
    ]
    (attempt,) = step(script).attempts
    assert (attempt.status, attempt.error and attempt.error.error_class) == (status, error)
    assert "the run goes on, reopened; step 1: post" in last_line(script)
    assert logged(script) == "signal answer, reopened"


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        (a_run_that_needs_approval(), "it waits for a person's approval of post handle: "),
        (a_run_that_asks(), f"it waits for a person's answer: {QUESTION.question}"),
    ],
)
def test_why_a_run_rests_for_a_person_names_what_they_are_asked(script: Script, verdict: str) -> None:
    told = why_view(script.state, Seen(now=NOON))
    assert told.verdict.startswith(verdict)
    assert told.remedy is not None
    assert script.state.run_id in told.remedy.command
