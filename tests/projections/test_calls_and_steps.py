"""One step and one model call of a run, in full."""

import pytest

from agent_service.run.moments import retell
from agent_service.run.ports import PromptText
from agent_service.telling.answers.model_calls import CallView, call_view, made_call
from agent_service.telling.answers.step_in_full import StepDetail, step_detail
from tests.core.cues import (
    a_framing_run,
    a_retrying_run,
    a_waiting_run,
    cancel,
    due,
    errs,
    garbles,
    reserves,
    returns,
    unavailable,
)
from tests.core.script import Script
from tests.projections.journals import MADE, entries_of, priced_example, worked_example


def step_of(script: Script, number: int = 1) -> StepDetail:
    found = step_detail(retell(entries_of(script)), number)
    assert found is not None
    return found


def call_of(script: Script, number: int, version: str = MADE.prompt_hash) -> CallView:
    made = made_call(retell(entries_of(script)), number)
    assert made is not None
    return call_view(made, PromptText(system=("rules",), user=("tail",), version=version))


def test_a_step_shows_what_was_asked_why_and_all_that_came_back() -> None:
    step = step_of(worked_example())
    assert (step.tool, step.command, step.route, step.arguments) == (
        "fetch",
        "handle",
        "jina-reader",
        {"url": "http://mattjoyce.ai"},
    )
    assert (step.rationale, step.expected) == ("nothing can be said about a page unseen", "the page's text")
    (attempt,) = step.attempts
    assert (attempt.attempt, attempt.status) == (1, "ok")
    assert attempt.result is not None
    assert attempt.result["excerpt"] == "Matt Joyce"
    assert attempt.requested_at is not None
    assert attempt.completed_at is not None
    assert attempt.requested_at < attempt.completed_at


def test_each_attempt_of_a_step_is_shown_with_what_became_of_it() -> None:
    retrying = a_retrying_run()
    assert [(a.attempt, a.status) for a in step_of(retrying).attempts] == [(1, "error"), (2, "waiting")]
    again = retrying >> due
    assert [(a.attempt, a.status) for a in step_of(again).attempts] == [(1, "error"), (2, "open")]
    failed = step_of(again >> errs("upstream", retryable=True)).attempts[1]
    assert (failed.status, failed.error and failed.error.error_class) == ("error", "upstream")


def test_what_came_after_the_end_is_shown_though_it_changed_nothing() -> None:
    script = a_waiting_run() >> cancel()
    assert [a.status for a in step_of(script).attempts] == ["cancelled"]
    (late,) = step_of(script >> returns(output={"summary": "saved", "job_id": "j1"})).attempts
    assert (late.status, late.execution) == ("refused", "job j1")


def test_a_call_shows_what_was_asked_and_said_and_what_came_of_it() -> None:
    call = call_of(priced_example(), 2)
    assert (call.phase, call.with_plan, call.model) == ("reflect", True, "claude-sonnet-4-5")
    assert call.usage is not None
    assert call.usage.cache_read_tokens == 4200
    assert call.reply is not None
    assert (call.reply["decision"]["verdict"], call.reply["plan"]["action"]["tool"]) == ("continue", "text-report")
    assert call.outcome.startswith("reflected: continue: the page is there; planned: text-report")
    assert [(part.role, part.text) for part in call.prompt] == [("system", "rules"), ("user", "tail")]
    assert call.prompt_note == ""


def test_it_is_said_when_a_prompt_was_made_with_other_templates_or_never_sent() -> None:
    assert (
        "other templates (aaaa) than those of this version (cccc)" in call_of(priced_example(), 2, "cccc").prompt_note
    )
    assert "a script answered" in call_of(worked_example(model="scripted"), 1).prompt_note


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (a_framing_run(), "there is no reply yet"),
        (a_framing_run() >> reserves(), "there is no reply yet"),
        (a_framing_run() >> unavailable("try_again"), "the model gave no answer (overloaded): 529"),
        (a_framing_run() >> cancel("enough"), "given up: the run ended: cancelled (cancelled): enough"),
        (a_framing_run() >> garbles(), "frame unusable: not JSON"),
        (a_framing_run(max_tokens=300) >> reserves(9000), "given up: the run ended: escalated (budget_tokens)"),
    ],
)
def test_a_call_without_a_decision_says_how_it_stands(script: Script, outcome: str) -> None:
    assert call_of(script, 1).outcome.startswith(outcome)
