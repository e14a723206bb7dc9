"""The cases that RFC-103 says must pass."""

from agent_service.core.waiting import Status
from tests.core.cues import PROOF, RUN_ID, frames, goes_on, plans, reflects, returns, started, wake
from tests.core.script import (
    NOTHING,
    Script,
    accepts,
    asks,
    completes,
    escalates,
    ignores,
    requests,
)


def test_start_event_creates_run_and_first_tool_request() -> None:
    run = Script()
    run >> wake() << accepts()
    run >> started() << asks("frame")
    run >> frames() << asks("plan")
    run >> plans("fetch", url="https://example.org") << requests("fetch", step=1)
    request = run.sent("agentic.tool_request.jina-reader")
    assert request["run_id"] == RUN_ID
    assert request["tool_command"] == "handle"
    assert request["tool_payload"] == {"url": "https://example.org"}
    assert f"agentic:run:{RUN_ID}:step:1:request" in run.dedupe_keys


def test_matching_tool_result_resumes_and_advances_to_next_step() -> None:
    run = Script() >> wake() >> started() >> frames() >> plans("fetch")
    run >> returns() << asks("reflect")
    run >> goes_on("fetch", url="https://example.org/2") << requests("fetch", step=2)
    assert f"agentic:run:{RUN_ID}:step:2:request" in run.dedupe_keys


def test_duplicate_tool_result_does_not_double_advance_step() -> None:
    run = Script() >> wake() >> started() >> frames() >> plans("fetch") >> returns()
    run >> returns(step=1) << ignores("step 1 is finished already")
    run >> goes_on("fetch") << requests("fetch", step=2)
    run >> returns(step=1) << ignores("step 1 is finished already")
    assert run.pending.step == 2


def test_stale_step_result_is_ignored() -> None:
    run = Script() >> wake() >> started() >> frames() >> plans("fetch") >> returns() >> goes_on("fetch")
    run >> returns("error", step=1) << ignores("step 1 is finished already")


def test_wrong_tool_for_pending_step_escalates() -> None:
    run = Script() >> wake() >> started() >> frames() >> plans("fetch")
    run >> returns(tool="post") << escalates("protocol_violation")
    assert run.state.status is Status.ESCALATED
    assert "from tool post, but fetch is pending" in run.state.reason


def test_max_steps_cutoff_escalates_deterministically() -> None:
    stories = [Script() >> wake(max_steps=2) >> started() >> frames() >> plans("fetch") for _ in range(2)]
    for run in stories:
        run >> returns() >> goes_on("fetch") << requests("fetch", step=2)
        run >> returns() << asks("reflect")
        run >> goes_on("fetch") << escalates("budget_steps")
    assert stories[0].state == stories[1].state


def test_the_last_step_may_still_meet_the_goal() -> None:
    run = Script() >> wake(max_steps=1) >> started() >> frames() >> plans("fetch") >> returns()
    run >> reflects("done", PROOF) << completes()


def test_completion_emits_exactly_one_agent_completed() -> None:
    run = Script() >> wake() >> started() >> frames() >> plans("fetch")
    run >> returns(output={"artifact_path": "artifacts/critique.md"}) << asks("reflect")
    run >> reflects("done", PROOF) << completes()
    completed = run.sent("agent.completed")
    assert completed["goal"] == "critique example.org"
    assert completed["steps_taken"] == 1
    assert completed["artifacts"] == ["artifacts/critique.md"]
    assert f"agentic:run:{RUN_ID}:completed" in run.dedupe_keys
    run >> reflects("done", PROOF) << ignores("the run has ended (done)")
    run >> returns() << ignores("came after the run ended (done)")
    assert sum(len(moment.published("agent.completed")) for moment in run.story) == 1


def test_step_from_the_future_escalates_and_persists_the_final_state() -> None:
    run = Script() >> wake() >> started() >> frames() >> plans("fetch")
    run >> returns(step=2) << escalates("protocol_violation")
    assert run.state.status is Status.ESCALATED
    run >> returns(step=1) << NOTHING
    run >> returns(step=1) << ignores("came after the run ended (escalated)")


def test_a_result_of_an_unknown_run_is_ignored() -> None:
    some_result = (Script() >> wake() >> started() >> frames() >> plans("fetch") >> returns()).story[-1].event
    Script() >> some_result << ignores("no such run")
