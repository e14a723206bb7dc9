"""How a run ends: once, from any state, and with everything that people and programs are to know."""

from collections.abc import Callable

import pytest

from agent_service.core.announcing import outstanding
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
    errs,
    frames,
    plans,
    queued,
    reflects,
    returns,
    started,
    unavailable,
    wake,
)
from tests.core.script import (
    Script,
    accepts,
    announces,
)

# Cancel

THINKING = [a_framing_run, a_planning_run, a_reflecting_run, a_paused_run]
RESTING = [queued, a_waiting_run, a_retrying_run, a_run_paused_while_waiting]


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
        "resumable": False,
    }


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


# The first words


def test_an_accepted_run_is_durable_before_it_is_announced() -> None:
    run = Script()
    run >> wake(announce=True) << (accepts(), announces())
    assert run.state.status is Status.QUEUED
    assert run.dedupe_keys == [f"agentic:run:{RUN_ID}:accepted", "agentic:start:wake-1"]
    assert run.sent("agentic.start")["run_id"] == RUN_ID


# What the bus must know is said again in the same words


@pytest.mark.parametrize(
    "so_far", [a_waiting_run, a_finished_run, a_paused_run, *(lambda s=s: endings()[s] for s in endings())]
)
def test_what_is_said_again_is_what_was_said(so_far: Callable[[], Script]) -> None:
    run = so_far()
    assert set(outstanding(run.state)) <= set(run.story[-1].effects)
    assert outstanding(run.state)


def test_an_announcement_is_said_again_while_the_run_is_queued() -> None:
    run = Script() >> wake(announce=True)
    assert set(outstanding(run.state)) <= set(run.story[-1].effects)
