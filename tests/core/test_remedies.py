"""What a person is told to do about a run that stopped."""

import pytest

from agent_service.core.people.remedies import remedy
from schemas.events import ToolError
from tests.core.cues import (
    RUN_ID,
    a_finished_run,
    a_planning_run,
    a_reflecting_run,
    a_waiting_run,
    cancel,
    errs,
    garbles,
    reflects,
    returns,
    unavailable,
)
from tests.core.script import Script

IN_DOUBT = ToolError(error_class="in_doubt", message="the answer was lost", job_id="8f3c")


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
