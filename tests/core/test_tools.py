"""What a tool's outcome leads to: retries, timeouts, doubt, and errors that are told to the model or to a person."""

import pytest

from agent_service.core.waiting import Status
from tests.core.cues import (
    a_planning_run,
    a_retrying_run,
    a_waiting_run,
    due,
    errs,
    goes_on,
    plans,
    returns,
    too_early,
)
from tests.core.script import NOON, NOTHING, Script, asks, escalates, ignores, requests

# Retries


@pytest.mark.parametrize("tool", ["fetch", "save"], ids=["read", "idempotent write"])
def test_a_retryable_error_of_a_repeatable_command_is_tried_again_after_a_while(tool: str) -> None:
    run = a_waiting_run(tool)
    run >> errs("upstream", retryable=True) << NOTHING
    run >> too_early << ignores("nothing is due")
    run >> due << requests(tool, step=1, attempt=2)
    assert run.now > NOON


def test_a_second_attempt_sends_the_same_content() -> None:
    run = a_waiting_run()
    first = run.sent("agentic.tool_request")
    run >> errs(retryable=True) >> due
    second = run.sent("agentic.tool_request")
    timely = ("attempt", "requested_at", "deadline_at")
    assert {k: v for k, v in first.items() if k not in timely} == {k: v for k, v in second.items() if k not in timely}


def test_the_delay_grows_with_each_attempt() -> None:
    run = a_waiting_run(max_attempts=5)
    delays = []
    for _ in range(4):
        asked = run.now
        run >> errs(retryable=True) >> due
        delays.append(run.now - asked)
    assert delays == sorted(delays)
    assert delays[-1] > 4 * delays[0]


def test_a_retry_is_announced_before_it_is_sent() -> None:
    assert a_retrying_run().said == ["act: step 1: fetch failed (upstream), attempt 2 follows"]


def test_an_error_that_is_not_retryable_goes_to_the_reflection() -> None:
    run = a_waiting_run()
    run >> errs("not_found") << asks("reflect")
    assert run.state.last_result is not None
    assert run.state.last_result.output == {"class": "not_found", "message": "it broke"}
    assert run.state.completed[-1].status == "error"


def test_an_error_without_details_goes_to_the_reflection() -> None:
    run = a_waiting_run() >> returns("error")
    assert run.outcomes == (asks("reflect"),)
    assert run.state.last_result is not None
    assert run.state.last_result.output == {"class": "tool_error", "message": "no reason given"}


def test_exhausted_attempts_escalate() -> None:
    run = a_waiting_run(max_attempts=2)
    run >> errs(retryable=True) >> due << requests("fetch", step=1, attempt=2)
    run >> errs(retryable=True) << escalates("tool_exhausted")
    assert "attempt 2, the last" in run.state.reason


# No answer


def test_a_repeatable_command_without_an_answer_is_tried_again() -> None:
    run = a_waiting_run()
    run >> due << NOTHING
    run >> due << requests("fetch", step=1, attempt=2)


def test_a_repeatable_command_that_never_answers_escalates() -> None:
    run = a_waiting_run(max_attempts=1)
    run >> due << escalates("tool_exhausted")
    assert "whether the tool ran is not known" in run.state.reason


def test_a_write_without_an_answer_is_in_doubt_and_never_sent_again() -> None:
    run = a_waiting_run("post")
    run >> due << escalates("in_doubt")
    assert run.state.status is Status.ESCALATED


def test_the_answer_is_awaited_for_as_long_as_the_gateway_may_take() -> None:
    run = a_waiting_run(queue_wait_s=240.0)
    assert run.sent("agentic.tool_request")["deadline_at"] == "2026-11-21T12:05:00Z"
    run.wait(minutes=5) >> too_early << ignores("nothing is due")
    run.wait(seconds=10) >> too_early << NOTHING


def test_a_tool_may_not_begin_after_the_end_of_its_run() -> None:
    run = a_waiting_run(queue_wait_s=7200.0)
    assert run.sent("agentic.tool_request")["deadline_at"] == "2026-11-21T13:00:00Z"


# Errors for a person


@pytest.mark.parametrize("error_class", ["configuration", "not_allowed", "in_doubt", "storage_full"])
def test_an_error_that_no_plan_can_mend_escalates(error_class: str) -> None:
    run = a_waiting_run("post")
    run >> errs(error_class) << escalates(error_class)


# A tool that asks for more evidence


def test_a_continuation_that_says_nothing_is_told_to_the_model_as_an_error() -> None:
    run = a_waiting_run()
    run >> returns("continuation", output={"query": "who wrote it?"}) << asks("reflect")
    assert run.state.completed[-1].status == "error"
    assert run.state.last_result is not None
    assert run.state.last_result.output["class"] == "bad_continuation"


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


def test_the_same_result_three_times_is_told_to_the_model() -> None:
    assert repeated(2).told() == ()
    (said,) = repeated(3).told()
    assert "this same result three times" in said


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


def test_another_call_is_welcome_after_that() -> None:
    run = repeated(3)
    run >> goes_on("fetch", url="https://example.org/other") << requests("fetch", step=4)


def test_the_same_result_of_three_jobs_is_a_stuck_loop() -> None:
    run = a_planning_run(max_steps=9) >> plans("fetch", url="x") >> returns(output={"summary": "same", "job_id": "j0"})
    for n in (1, 2):
        run = run >> goes_on("fetch", url="x") >> returns(output={"summary": "same", "job_id": f"j{n}", "attempts": n})
    run >> goes_on("fetch", url="x") << escalates("stuck_loop")


def test_another_result_is_no_stuck_loop() -> None:
    run = repeated(2) >> goes_on("fetch", url="https://example.org/")
    run >> returns(output={"summary": "new"}) << asks("reflect")
    assert run.told() == ()
    run >> goes_on("fetch", url="https://example.org/") << requests("fetch", step=4)


def test_the_same_call_is_recognised_whatever_the_order_of_its_arguments() -> None:
    run = a_planning_run(max_steps=9) >> plans("fetch", a=1, b=2) >> returns(output={})
    run >> goes_on("fetch", b=2, a=1) >> returns(output={})
    run >> goes_on("fetch", a=1, b=2) >> returns(output={})
    run >> goes_on("fetch", b=2, a=1) << escalates("stuck_loop")


def test_the_same_call_is_recognised_whatever_reserved_arguments_were_planned() -> None:
    run = a_planning_run(max_steps=9) >> plans("fetch", url="x", step=1) >> returns(output={})
    run >> goes_on("fetch", url="x", step=2) >> returns(output={})
    run >> goes_on("fetch", url="x", step=3) >> returns(output={})
    run >> goes_on("fetch", url="x", step=4) << escalates("stuck_loop")


def test_two_calls_that_take_turns_are_a_stuck_loop_too() -> None:
    run = a_planning_run(max_steps=20) >> plans("fetch", url="a") >> returns(output={})
    for url in ("b", "a", "b", "a", "b"):
        run >> goes_on("fetch", url=url) >> returns(output={})
    run >> goes_on("fetch", url="a") << escalates("stuck_loop")


# What a result brings along


def test_artifacts_are_kept_once_and_in_order() -> None:
    run = a_waiting_run() >> returns(output={"artifact_path": "artifacts/a", "artifacts": [{"path": "artifacts/b"}]})
    run >> goes_on() >> returns(output={"artifact_path": "artifacts/b"})
    assert run.state.artifacts == ("artifacts/a", "artifacts/b")


@pytest.mark.parametrize("artifacts", ["artifacts/a", {"path": "artifacts/a"}, [7, {"path": 7}], None])
def test_artifacts_of_another_shape_are_passed_over(artifacts: object) -> None:
    run = a_waiting_run() >> returns(output={"artifacts": artifacts})
    assert run.state.artifacts == ()


def test_artifacts_that_are_no_collection_are_passed_over() -> None:
    for artifacts in (7, True, 0.5):
        a_waiting_run() >> returns(output={"artifacts": artifacts}) << asks("reflect")


def test_a_path_that_leaves_the_artifacts_of_the_run_is_not_kept() -> None:
    paths = ("../../etc/passwd", "/etc/passwd", "artifacts/../../x", "step:1", "")
    run = a_waiting_run() >> returns(output={"artifacts": [{"path": path} for path in paths]})
    assert run.state.artifacts == ()
