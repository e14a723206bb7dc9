"""Verification: somebody else looks at a claim of done, and at a new framing, before they count."""

from dataclasses import replace
from typing import Any

from agent_service.core.phases import Verification
from tests.core.cues import (
    PROOF,
    frames,
    framing,
    plan,
    plans,
    reflects,
    replies,
    returns,
    started,
    wake,
)
from tests.core.script import Cue, Script, asks, completes, escalates


def a_verified_run(**details: Any) -> Script:
    """Somebody else looks at what is claimed; the first step is done."""
    return Script() >> replace(wake(**details), verify=True) >> started() >> frames() >> plans() >> returns()


def finds(reason: str = "it is shown", *, holds: bool = True, doubted: tuple[str, ...] = (), **reply: Any) -> Cue:
    return replies(Verification(holds=holds, reason=reason, doubted=doubted), **reply)


def doubts(*items: str) -> Cue:
    return finds("two is not shown", holds=False, doubted=items)


def claimed(**details: Any) -> Script:
    return a_verified_run(**details) >> reflects("done", PROOF)


# Done


def test_done_is_looked_at_before_it_counts_and_then_ends_the_run_with_what_was_claimed() -> None:
    run = claimed()
    run << asks("verify")
    run >> finds() << completes()
    assert run.said == ["verify: done: it is shown", "end: looked at the result"]
    assert run.state.outcome == "looked at the result"


def test_done_that_is_not_shown_is_refused_with_the_reason_and_the_doubted_items_are_open_again() -> None:
    run = claimed() >> doubts("d2", "d9")
    run << asks("reflect")
    assert run.told() == (
        "`done` was refused by who looked at the proofs: two is not shown",
        "item d2 is open again: the critique is written",
    )
    assert [item.done for item in run.state.done_items] == [True, False, True]


def test_done_is_refused_only_once() -> None:
    run = claimed() >> doubts("d2")
    run >> reflects("done", {"d2": "step:1"}) << completes()


# Reframing


def a_proposal() -> Script:
    """A new framing waits for somebody to compare it with the goal."""
    return a_verified_run() >> reflects("reframe") >> frames("a", "b", "c", plan=plan(url="elsewhere"))


def test_a_new_framing_is_compared_with_the_goal_before_it_is_in_force() -> None:
    run = a_proposal()
    run << asks("verify")
    assert run.state.framing == framing()
    run >> finds("it narrows the goal") << asks("plan")
    assert run.said == [
        "verify: the new framing serves the goal: it narrows the goal",
        "frame: framed: Write a critique of example.org.",
    ]
    assert run.state.framing == framing("a", "b", "c")


def test_a_new_framing_that_leaves_the_goal_is_refused_each_time_and_the_old_one_stays() -> None:
    run = a_proposal()
    for _ in range(2):
        run >> finds("it is another goal", holds=False) << asks("reflect")
        assert run.told()[0] == "the new framing was refused: it is another goal"
        assert run.state.framing == framing()
        run >> reflects("reframe")
        if run.state.final:
            break
        run >> frames("a", "b", "c") << asks("verify")
    run << escalates("budget_reframes")
