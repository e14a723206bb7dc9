"""What a tool's outcome leads to: retries, timeouts, doubt, and errors that are told to the model or to a person."""

import pytest

from agent_service.core.waiting import Status
from tests.core.cues import (
    a_planning_run,
    a_waiting_run,
    due,
    errs,
    goes_on,
    plans,
    returns,
    too_early,
)
from tests.core.script import NOON, NOTHING, Script, escalates, ignores, requests

# Retries


@pytest.mark.parametrize("tool", ["fetch", "save"], ids=["read", "idempotent write"])
def test_a_retryable_error_of_a_repeatable_command_is_tried_again_after_a_while(tool: str) -> None:
    run = a_waiting_run(tool)
    run >> errs("upstream", retryable=True) << NOTHING
    run >> too_early << ignores("nothing is due")
    run >> due << requests(tool, step=1, attempt=2)
    assert run.now > NOON


def test_the_delay_grows_with_each_attempt() -> None:
    run = a_waiting_run(max_attempts=5)
    delays = []
    for _ in range(4):
        asked = run.now
        run >> errs(retryable=True) >> due
        delays.append(run.now - asked)
    assert delays == sorted(delays)
    assert delays[-1] > 4 * delays[0]


# No answer


def test_a_write_without_an_answer_is_in_doubt_and_never_sent_again() -> None:
    run = a_waiting_run("post")
    run >> due << escalates("in_doubt")
    assert run.state.status is Status.ESCALATED


# Errors for a person


@pytest.mark.parametrize("error_class", ["configuration", "not_allowed", "in_doubt", "storage_full"])
def test_an_error_that_no_plan_can_mend_escalates(error_class: str) -> None:
    run = a_waiting_run("post")
    run >> errs(error_class) << escalates(error_class)


# A tool that asks for more evidence


# A stuck loop


SAME = {
    "ok": returns(output={"summary": "same"}),
    "error": errs("not_found"),
    "continuation": returns("continuation", output={"query": "same"}),
}


def repeated(times: int, result: str = "ok") -> Script:
    """A run whose newest steps were the same call with the same result."""
    run = a_planning_run(max_steps=9) >> plans("fetch", url="https://example.org/")
    for n in range(times):
        run = run >> goes_on("fetch", url="https://example.org/") if n else run
        run = run >> SAME[result]
    return run


@pytest.mark.parametrize(
    "result",
    [
        "ok",
        "error",
        "continuation",
    ],
)
def test_the_same_call_planned_again_after_that_escalates(result: str) -> None:
    run = repeated(3, result)
    run >> goes_on("fetch", url="https://example.org/") << escalates("stuck_loop")


def test_the_same_call_is_recognised_whatever_the_order_of_its_arguments() -> None:
    run = a_planning_run(max_steps=9) >> plans("fetch", a=1, b=2) >> returns(output={})
    run >> goes_on("fetch", b=2, a=1) >> returns(output={})
    run >> goes_on("fetch", a=1, b=2) >> returns(output={})
    run >> goes_on("fetch", b=2, a=1) << escalates("stuck_loop")


# What a result brings along


def test_a_path_that_leaves_the_artifacts_of_the_run_is_not_kept() -> None:
    paths = ("../../etc/passwd", "/etc/passwd", "artifacts/../../x", "step:1", "")
    run = a_waiting_run() >> returns(output={"artifacts": [{"path": path} for path in paths]})
    assert run.state.artifacts == ()
