"""Verification: somebody else looks at a claim of done, and at a new framing, before they count."""

from dataclasses import replace
from typing import Any

import pytest

from agent_service.core.phases import Refusal, Verification
from tests.core.cues import (
    PROOF,
    due,
    frames,
    framing,
    garbles,
    plan,
    plans,
    reflects,
    replies,
    returns,
    signal,
    started,
    unavailable,
    wake,
)
from tests.core.model_cues import reserves
from tests.core.script import Cue, Script, abandons, asks, completes, escalates


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


def test_done_without_proof_is_looked_at_by_nobody() -> None:
    run = a_verified_run()
    run >> reflects("done") << asks("reflect")


def test_a_run_whose_budget_is_spent_ends_by_its_proofs() -> None:
    a_verified_run(max_tokens=300) >> reflects("done", PROOF) << completes()


def test_a_look_that_could_break_a_budget_is_not_paid_for() -> None:
    run = claimed(max_tokens=500)
    run >> reserves(tokens=300) << (abandons(), completes())


def test_done_stands_by_its_proofs_when_nobody_can_be_asked() -> None:
    claimed() >> unavailable("fail") << (abandons(), completes())
    claimed() >> replies(Refusal(category="policy")) << completes()
    claimed(max_repairs=0) >> garbles() << completes()
    claimed(max_repairs=0) >> replies(plan()) << completes()


def test_a_look_that_is_put_off_is_made_later_and_the_deadline_does_not_take_back_what_is_proved() -> None:
    run = claimed() >> unavailable("try_again")
    run >> due << asks("verify")
    run = claimed() >> unavailable("try_again", retry_after_s=80_000.0)
    run >> due << (abandons(), completes())


def test_what_a_person_says_meanwhile_voids_the_claim() -> None:
    run = claimed() >> signal("message", message="do not stop yet")
    run >> finds() << asks("reflect")
    assert run.told() == ("a person said something newer than what was claimed",)


def test_what_a_person_says_while_a_look_is_put_off_makes_it_moot() -> None:
    run = claimed() >> unavailable("try_again") >> signal("message", message="do not stop yet")
    run >> due << asks("reflect")


CANNOT_LOOK: list[tuple[str, Cue]] = [
    ("529", unavailable("fail")),
    ("529", unavailable("escalate")),
    ("the model refused to answer (policy)", replies(Refusal(category="policy"))),
    ("the model gave no usable verify in 1 tries: not JSON", garbles()),
]


@pytest.mark.parametrize("answers", [cue for _, cue in CANNOT_LOOK])
def test_a_voided_claim_does_not_end_the_run_when_nobody_can_look(answers: Cue) -> None:
    run = claimed(max_repairs=0) >> signal("message", message="do not stop yet")
    run >> answers << asks("reflect")


# Reframing


@pytest.mark.parametrize(("why", "answers"), CANNOT_LOOK)
def test_a_new_framing_that_nobody_can_look_at_is_not_taken_up_and_the_run_goes_on(why: str, answers: Cue) -> None:
    run = a_verified_run(max_repairs=0) >> reflects("reframe") >> frames("a", "b", "c")
    run >> answers << asks("reflect")
    refused = f"the new framing is not in force, for nobody could look at it ({why}): go on with the one before"
    assert run.told() == (refused,)
    assert (run.state.framing, run.state.proposed) == (framing(), None)


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


def test_a_new_framing_may_be_met_by_what_is_done_though_no_step_is_left() -> None:
    run = a_verified_run(max_steps=1) >> reflects("reframe") >> frames("a", "b", "c")
    run >> finds() << asks("reflect")
    run = run >> reflects("done", PROOF)
    run >> finds() << completes()


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


def test_the_first_framing_is_compared_with_nothing() -> None:
    run = Script() >> replace(wake(), verify=True) >> started()
    run >> frames() << asks("plan")
