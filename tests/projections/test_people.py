"""What people are asked and say is told: in the timeline, of a step, in lines, and why a run rests for them."""

import json
from dataclasses import replace

import pytest

from agent_service.core.events import ModelReplied
from agent_service.core.phases import Verification, Wait
from agent_service.moments import Moment, retell
from agent_service.telling.log_lines import log_line
from agent_service.telling.pages.trail import trail
from agent_service.telling.rulings import rulings
from agent_service.telling.sayings import say
from agent_service.telling.steps import StepDetail, step_detail
from agent_service.telling.timeline import Timeline
from agent_service.telling.timeline_items import TimelineItem
from agent_service.telling.why import Seen, why_view
from tests.core.cues import (
    PROOF,
    a_planning_run,
    a_reflecting_run,
    due,
    frames,
    plan,
    plans,
    reflection,
    reflects,
    replies,
    returns,
    signal,
    started,
    wake,
)
from tests.core.script import NOON, Script
from tests.projections.journals import USAGE, entries_of
from tests.projections.people import (
    QUESTION,
    a_run_in_doubt,
    a_run_that_asks,
    a_run_that_needs_approval,
    answers,
    rules,
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


def test_what_was_allowed_names_who_allowed_it() -> None:
    script = a_run_that_needs_approval() >> rules("approve", by="token ops")
    assert told(script, "wait", "person", "step") == [
        ("Asks for approval of post handle", "ok"),
        ("Approved", "ok"),
        ("Step 1: post handle", "open"),
    ]
    assert step(script).approved_by == "token ops"
    assert last_line(script).startswith("signal approve (from token ops): ")
    assert logged(script) == "signal approve; step 1 sent"


def test_what_was_refused_says_why_and_is_no_step() -> None:
    script = a_run_that_needs_approval() >> rules("reject", "ann is away")
    assert told(script, "wait", "step") == [("Asks for approval of post handle", "refused")]
    assert "signal reject (from token ops): ann is away" in last_line(script)


def test_what_nobody_decided_about_in_time_says_so() -> None:
    script = a_run_that_needs_approval() >> due
    assert told(script, "wait", "step") == [("Asks for approval of post handle", "refused")]
    assert last_line(script).startswith("nobody answered in time; ")


# Questions


def test_a_question_waits_until_it_is_answered() -> None:
    script = a_run_that_asks()
    (asked,) = [item for item in items(script) if item.kind == "wait"]
    assert (asked.title, asked.text, asked.until) == ("Asks a person", QUESTION.question, script.state.due_at)
    assert logged(script) == "asks a person"
    assert last_line(script).startswith(f"asks a person: {QUESTION.question}")
    answered = script.wait(seconds=30) >> answers("the one in the hall")
    assert told(answered, "wait", "person") == [("Asks a person", "ok"), ("Answer", "ok")]
    assert last_line(answered).startswith("signal answer (from token ops): the one in the hall; the run goes on; ")


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


def test_a_claim_that_is_doubted_is_a_verification_that_was_refused_with_its_reason() -> None:
    script = Script() >> replace(wake(), verify=True) >> started() >> frames() >> plans() >> returns()
    script = script >> reflects("done", PROOF) >> replies(Verification(holds=False, reason="nobody read it"))
    *_, claimed, verified, again = items(script)
    assert (claimed.phase, claimed.status) == ("reflect", "ok")
    assert (verified.phase, verified.status) == ("verify", "refused")
    assert verified.text == "verified: does not hold: nobody read it"
    assert (again.phase, again.status) == ("reflect", "open")


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


def test_the_trail_has_a_line_of_what_the_answer_made_of_the_step() -> None:
    script = a_run_in_doubt() >> answers("it is there", "ran")
    lines = [json.loads(line) for line in trail(entries_of(script))["trace.jsonl"].splitlines()]
    acts = [(line["result_status"], line["result_summary"]) for line in lines if line["phase"] == "act"]
    assert acts == [("error", None), ("ok", "it is there")]


def test_a_run_that_was_opened_again_ends_once_more() -> None:
    script = a_run_in_doubt() >> answers("it is there", "ran") >> reflects("done", PROOF)
    ends = [item for item in items(script) if item.kind == "ending"]
    assert [(item.title, item.status) for item in ends] == [("Escalated", "error"), ("Done", "ok")]
    assert len({item.id for item in items(script)}) == len(items(script))
    assert moments(script)[-1].ended


def test_a_tool_that_is_still_out_goes_on_with_the_run_that_is_opened_again() -> None:
    out = a_planning_run(max_steps=9) >> replies(plan("fetch"))
    script = out >> returns(step=7)  # breaks the protocol
    assert script.state.status == "escalated"
    script = script >> answers("that was another's")
    assert told(script, "step", "attempt")[:2] == [("Step 1: fetch handle", "open"), ("Attempt 1", "open")]
    assert [attempt.status for attempt in step(script).attempts] == ["open"]
    script = script.wait(seconds=1) >> returns()
    assert told(script, "step", "attempt")[:2] == [("Step 1: fetch handle", "ok"), ("Attempt 1", "ok")]


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


def test_why_an_escalated_run_rests_says_until_when_an_answer_opens_it() -> None:
    facts = why_view(a_run_in_doubt().state, Seen(now=NOON)).facts
    (answer,) = [fact.text for fact in facts if fact.what == "answer"]
    assert answer.endswith("a person's answer sets it going again")
