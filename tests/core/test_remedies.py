"""What a person is told to do about a run that stopped."""

import pytest

from agent_service.core.remedies import remedy
from schemas.events import ToolError
from tests.core.cues import (
    RUN_ID,
    a_finished_run,
    a_planning_run,
    a_reflecting_run,
    a_waiting_run,
    cancel,
    due,
    errs,
    garbles,
    reflects,
    returns,
    unavailable,
)
from tests.core.script import Script

IN_DOUBT = ToolError(error_class="in_doubt", message="the answer was lost", job_id="8f3c")


def test_in_doubt_names_the_step_the_tool_and_the_job_and_how_to_go_on() -> None:
    run = a_waiting_run("post") >> returns("error", error=IN_DOUBT)
    now, reason = remedy(run.state), run.sent("agent.escalated")["reason"]
    assert now is not None
    assert run.state.reason == "step 1: post failed (in_doubt, job 8f3c): the answer was lost"
    assert reason == f"{run.state.reason}. What to do now: {now}"
    for part in ("step 1 (post handle) was done", "--ran", "--did-not-run", "within 7 days"):
        assert part in now.text
    assert now.command == f"agentic answer --look {RUN_ID}"


def test_a_write_that_was_never_answered_is_told_the_same_way() -> None:
    run = a_waiting_run("post") >> due
    assert "step 1 (post handle) was done" in run.sent("agent.escalated")["reason"]


@pytest.mark.parametrize(
    ("run", "told", "command"),
    [
        (a_waiting_run() >> errs("configuration"), "mend what the reason names", "{} 'TEXT'"),
        (a_waiting_run(max_attempts=1) >> errs(retryable=True), "see why fetch handle fails", "{} 'TEXT'"),
        (a_reflecting_run(max_steps=1) >> reflects("continue"), "grant it more", "--max-steps … {} 'go on'"),
        (a_planning_run(max_repairs=0) >> garbles(), "read in decisions.md", "{} 'TEXT'"),
    ],
    ids=["configuration", "exhausted", "budget", "invalid"],
)
def test_what_was_handed_to_a_person_says_what_comes_first_and_with_which_answer_it_goes_on(
    run: Script, told: str, command: str
) -> None:
    now = remedy(run.state)
    assert now is not None
    assert now.text.startswith(told)
    assert now.text.endswith("an answer sets it going again within 7 days")
    assert now.command == f"agentic answer {command.format(RUN_ID)}"


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (a_planning_run() >> unavailable("fail"), "mend what the reason names, then ask for a new run"),
        (a_planning_run(max_repairs=0, reopen_days=0) >> garbles(), "read in decisions.md"),
        (a_waiting_run("post", reopen_days=0) >> returns("error", error=IN_DOUBT), "find out whether step 1"),
    ],
    ids=["failed", "invalid", "in doubt"],
)
def test_what_no_answer_opens_again_says_that_it_is_final(run: Script, told: str) -> None:
    now = remedy(run.state)
    assert now is not None
    assert now.text.startswith(told)
    assert now.text.endswith("then ask for a new run; this one is final")
    assert now.command == "agentic run 'critique example.org'"


def test_a_paused_run_is_let_go_on_and_not_asked_for_again() -> None:
    out_of_steps = a_reflecting_run(max_steps=1, on_budget="pause") >> reflects("continue")
    spent, away = remedy(out_of_steps.state), remedy((a_planning_run() >> unavailable("pause")).state)
    assert spent is not None
    assert away is not None
    assert spent.command == f"agentic signal --max-steps … {RUN_ID} raise_budget"
    assert away.command == f"agentic signal {RUN_ID} resume"


@pytest.mark.parametrize("run", [a_finished_run(), a_waiting_run() >> cancel(), a_waiting_run()])
def test_there_is_nothing_to_do_about_a_run_that_is_done_cancelled_or_goes_on(run: Script) -> None:
    assert remedy(run.state) is None
