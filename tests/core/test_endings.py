"""How a run ends: once, from any state, and with everything that people and programs are to know."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from agent_service.core.announcing import outstanding
from agent_service.core.effects import Publish
from agent_service.core.waiting import Status
from tests.core.cues import (
    RUN_ID,
    a_finished_run,
    a_framing_run,
    a_paused_run,
    a_planning_run,
    a_reflecting_run,
    a_retrying_run,
    a_run_paused_while_waiting,
    a_waiting_run,
    breaks,
    cancel,
    due,
    errs,
    frames,
    plan,
    plans,
    queued,
    reflects,
    resume,
    returns,
    started,
    unavailable,
    wake,
)
from tests.core.model_cues import opens
from tests.core.script import (
    NOTHING,
    Cue,
    Script,
    abandons,
    accepts,
    announces,
    asks,
    cancels,
    ignores,
)

# Cancel

THINKING = [a_framing_run, a_planning_run, a_reflecting_run, a_paused_run]
RESTING = [queued, a_waiting_run, a_retrying_run, a_run_paused_while_waiting]


@pytest.mark.parametrize("so_far", THINKING)
def test_a_cancel_ends_a_run_that_thinks_and_abandons_the_call(so_far: Callable[[], Script]) -> None:
    run = so_far()
    run >> cancel("no longer needed") << (abandons(), cancels())
    assert run.state.status is Status.CANCELLED
    assert run.sent("agent.cancelled")["reason"] == "no longer needed"


def test_a_cancelled_run_takes_no_notice_of_its_tool_but_records_the_result_once() -> None:
    run = a_waiting_run() >> cancel()
    run >> returns(attempt=1, step=1) << NOTHING
    assert run.state.late == ((1, 1),)
    assert run.state.completed == ()
    run >> returns(attempt=1, step=1) << ignores("came after the run ended (cancelled)")


# A fault of the program itself


@pytest.mark.parametrize("so_far", [*THINKING, *RESTING])
def test_a_turn_that_broke_fails_a_run_wherever_it_stands(so_far: Callable[[], Script]) -> None:
    run = so_far() >> breaks("a fault of the agent (KeyError)")
    failed = run.sent("agent.failed")
    assert (run.state.status, failed["class"], failed["reason"]) == (
        Status.FAILED,
        "internal",
        "a fault of the agent (KeyError)",
    )


# Final is final


def endings() -> dict[str, Script]:
    return {
        "done": a_finished_run(),
        "escalated": a_waiting_run() >> returns(tool="post"),
        "failed": a_planning_run() >> unavailable("fail"),
        "cancelled": a_waiting_run() >> cancel(),
    }


# What an ending says


def test_every_ending_says_what_was_asked_why_it_ended_where_and_what_it_cost() -> None:
    run = a_waiting_run() >> returns(tool="post")
    assert run.sent("agent.escalated") == {
        "run_id": RUN_ID,
        "goal": "critique example.org",
        "reason": "result of step 1 attempt 1 is from tool post, but fetch is pending",
        "class": "protocol_violation",
        "step": 1,
        "usage": {"tokens": 200, "cost_usd": 0.02},
        "trace_url": None,
        "has_callback": False,
        "callback": None,
        "resumable": False,
    }


def test_an_ending_says_that_it_is_to_be_sent_somewhere_and_nothing_says_where() -> None:
    run = Script() >> replace(wake(announce=True), callback="https://example.org/hook?token=1") >> cancel()
    assert run.sent("agent.cancelled")["has_callback"]
    bodies = [effect.body for moment in run.story for effect in moment.effects if isinstance(effect, Publish)]
    assert len(bodies) >= 4
    assert not any(b"token=1" in body for body in bodies)


def test_a_completion_says_how_each_item_was_met() -> None:
    completed = a_finished_run().sent("agent.completed")
    assert [(i["id"], i["done"], i["evidence"]) for i in completed["definition_of_done"]] == [
        ("d1", True, ["step:1"]),
        ("d2", True, ["step:1"]),
        ("d3", True, ["step:1"]),
    ]
    assert completed["usage"] == {"tokens": 300, "cost_usd": pytest.approx(0.03)}
    assert completed["started_at"] == completed["completed_at"] == "2026-11-21T12:00:00Z"


def test_endings_are_published_under_the_keys_of_the_contract() -> None:
    ends = {status: run.dedupe_keys[-1].removeprefix(f"agentic:run:{RUN_ID}:") for status, run in endings().items()}
    assert ends == {"done": "completed", "escalated": "escalated:5", "failed": "failed", "cancelled": "cancelled"}


# Progress


def test_every_phase_and_step_is_told_in_a_line() -> None:
    run = Script() >> wake(fused=False) >> started()
    told = []
    for cue in (frames(), plans("fetch"), returns(), reflects("continue"), plans("save"), errs("not_found")):
        run = run >> cue
        told += run.said
    run >> reflects("done", {"d1": "step:1", "d2": "step:1"})
    told += run.said
    run >> reflects("done", {"d3": "step:1"})
    told += run.said
    assert told == [
        "frame: framed: Write a critique of example.org.",
        "plan: next: fetch handle",
        "act: step 1: fetch handle",
        "act: step 1: fetch ok",
        "reflect: looked at the result",
        "plan: next: save handle",
        "act: step 2: save handle",
        "act: step 2: save error",
        "reflect: done was refused",
        "reflect: looked at the result",
        "end: looked at the result",
    ]


def test_phases_that_one_reply_serves_are_told_one_by_one_and_in_their_order() -> None:
    run = a_framing_run() >> opens(plan("fetch"))
    key = f"agentic:run:{RUN_ID}:progress:{run.state.version}"
    assert run.said == [
        "frame: framed: Write a critique of example.org.",
        "plan: next: fetch handle",
        "act: step 1: fetch handle",
    ]
    assert run.dedupe_keys[:3] == [f"{key}:frame", f"{key}:plan", key]
    assert [p["seq"] for p in run.story[-1].published("agent.progress")] == [run.state.version] * 3
    run >> returns() >> reflects("continue", plan=plan("save"))
    assert [said.partition(":")[0] for said in run.said] == ["reflect", "plan", "act"]


def test_a_phase_whose_plan_cannot_be_used_is_told_all_the_same() -> None:
    run = a_framing_run() >> opens(plan("curl"))
    assert run.said == ["frame: framed: Write a critique of example.org."]
    assert run.dedupe_keys == [f"agentic:run:{RUN_ID}:progress:{run.state.version}"]


def test_progress_counts_the_items_that_are_met_and_what_is_spent() -> None:
    run = a_reflecting_run(fused=False, max_steps=4) >> reflects("continue", {"d1": "step:1"})
    progress = run.sent("agent.progress")
    assert progress["definition_of_done"] == {"done": 1, "total": 3}
    assert progress["seq"] == run.state.version
    assert (progress["budget"]["steps"], progress["budget"]["max_steps"], progress["budget"]["tokens"]) == (1, 4, 300)


def test_progress_may_be_lost_and_endings_may_not() -> None:
    run = a_finished_run()
    published = [effect for effect in run.story[-1].effects if isinstance(effect, Publish)]
    assert [(effect.subject, effect.rebuildable) for effect in published] == [
        ("agent.progress", True),
        ("agent.progress", True),
        ("agent.completed", False),
    ]


@pytest.mark.parametrize("status", ["done", "escalated", "failed", "cancelled"])
def test_every_ending_says_where_the_trace_is_shown(status: str) -> None:
    state = endings()[status].state
    (said,) = outstanding(replace(state, brief=replace(state.brief, trace_url="http://traces/1")))
    assert json.loads(said.body)["payload"]["trace_url"] == "http://traces/1"


# The first words


def test_an_accepted_run_is_durable_before_it_is_announced() -> None:
    run = Script()
    run >> wake(announce=True) << (accepts(), announces())
    assert run.state.status is Status.QUEUED
    assert run.dedupe_keys == [f"agentic:run:{RUN_ID}:accepted", "agentic:start:wake-1"]
    assert run.sent("agentic.start")["run_id"] == RUN_ID


def test_a_run_that_came_by_the_bus_is_not_announced_there_again() -> None:
    run = Script()
    run >> wake(announce=False) << accepts()


def test_a_start_that_comes_twice_asks_once() -> None:
    run = queued()
    run >> started() << asks("frame")
    run >> started() << ignores("started already")


@pytest.mark.parametrize("cue", [started(), cancel(), resume(), due], ids=["start", "cancel", "resume", "timer"])
def test_what_happens_to_an_unknown_run_is_ignored(cue: Cue) -> None:
    event = (a_waiting_run() >> cue).story[-1].event
    Script() >> event << ignores("no such run")


# What the bus must know is said again in the same words


@pytest.mark.parametrize(
    "so_far", [a_waiting_run, a_finished_run, a_paused_run, *(lambda s=s: endings()[s] for s in endings())]
)
def test_what_is_said_again_is_what_was_said(so_far: Callable[[], Script]) -> None:
    run = so_far()
    assert set(outstanding(run.state)) <= set(run.story[-1].effects)
    assert outstanding(run.state)


def test_what_was_said_of_the_end_stays_the_same_after_a_late_result() -> None:
    run = a_waiting_run() >> cancel()
    said = outstanding(run.state)
    run >> returns(step=1, attempt=1) << NOTHING
    assert outstanding(run.state) == said


def test_an_announcement_is_said_again_while_the_run_is_queued() -> None:
    run = Script() >> wake(announce=True)
    assert set(outstanding(run.state)) <= set(run.story[-1].effects)


def test_a_request_in_flight_is_said_again_while_the_run_is_paused() -> None:
    run = a_waiting_run(on_budget="pause", queue_wait_s=7200) >> due
    assert [said.subject for said in outstanding(run.state)] == [
        "agent.escalated",
        "agent.waiting",
        "agentic.tool_request.jina-reader",
    ]


@pytest.mark.parametrize("so_far", [a_framing_run, a_planning_run, a_reflecting_run, a_retrying_run])
def test_nothing_is_said_again_of_a_run_that_owes_the_bus_nothing(so_far: Callable[[], Script]) -> None:
    assert outstanding(so_far().state) == ()
