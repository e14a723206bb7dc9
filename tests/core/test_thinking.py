"""Frame, plan, reflect: what each decision leads to, and what is told to the model when one cannot be used."""

from collections.abc import Callable

import pytest

from agent_service.core.phases import Framing, Plan, Reflection
from agent_service.core.waiting import Status
from tests.core.cues import (
    PROOF,
    a_framing_run,
    a_planning_run,
    a_reflecting_run,
    a_waiting_run,
    frames,
    framing,
    garbles,
    plan,
    plans,
    reflection,
    reflects,
    replies,
    returns,
)
from tests.core.script import Script, asks, completes, escalates, ignores, requests

# Which reply counts


def test_only_the_reply_to_the_call_that_is_asked_counts() -> None:
    run = a_planning_run()
    run >> plans() << requests("fetch", step=1)
    run = a_planning_run()
    run >> replies(plan(), call=1) << ignores("model call 1 is not the one waited for")
    run >> replies(plan(), call=3) << ignores("model call 3 is not the one waited for")


# Framing


def test_a_framing_becomes_the_definition_of_done() -> None:
    run = a_framing_run()
    run >> frames("one", "two", "three") << asks("plan")
    assert [(i.id, i.text, i.done) for i in run.state.done_items] == [
        ("d1", "one", False),
        ("d2", "two", False),
        ("d3", "three", False),
    ]


@pytest.mark.parametrize(
    ("unusable", "because"),
    [
        (framing("one", "two"), "definition_of_done needs 3 to 7 items"),
        (framing(*"12345678"), "definition_of_done needs 3 to 7 items"),
        (framing("one", " ", "three"), "an item of definition_of_done is blank"),
        (Framing(goal_statement=" ", definition_of_done=("a", "b", "c")), "goal_statement is blank"),
    ],
)
def test_a_framing_with_a_flaw_is_asked_for_again(unusable: Framing, because: str) -> None:
    run = a_framing_run()
    run >> replies(unusable) << asks("frame")
    assert run.told() == (because,)


WRONG = [
    (a_framing_run, "frame", plan()),
    (a_framing_run, "frame", reflection("done", PROOF)),
    (a_planning_run, "plan", framing()),
    (a_planning_run, "plan", reflection("done", PROOF)),
    (a_reflecting_run, "reflect", framing()),
    (a_reflecting_run, "reflect", plan()),
]


@pytest.mark.parametrize(("so_far", "phase", "decision"), WRONG)
def test_a_decision_of_another_phase_is_asked_for_again(
    so_far: Callable[[], Script], phase: str, decision: Framing | Plan | Reflection
) -> None:
    run = so_far()
    run >> replies(decision) << asks(phase)
    assert run.told() == (f"the reply is no decision of phase {phase}",)


def test_an_unusable_reply_is_asked_for_again_with_the_reason_and_then_escalates() -> None:
    run = a_framing_run(max_repairs=1)
    run >> garbles("no JSON object found") << asks("frame")
    assert run.told() == ("no JSON object found",)
    run >> garbles() << escalates("invalid_decision")
    assert "no usable frame in 2 tries" in run.state.reason


def test_a_usable_reply_forgives_the_repairs_before_it() -> None:
    run = a_framing_run(max_repairs=1) >> garbles() >> frames()
    run >> garbles() << asks("plan")


# Reflection


def test_proved_items_are_ticked_with_their_evidence() -> None:
    run = a_reflecting_run() >> reflects("continue", {"d1": "step:1"})
    assert [item.evidence for item in run.state.done_items] == [("step:1",), (), ()]


def test_an_artifact_of_the_run_is_evidence() -> None:
    run = a_waiting_run() >> returns(output={"artifact_path": "artifacts/page.html"})
    run >> reflects("done", dict.fromkeys(PROOF, "artifacts/page.html")) << completes()


@pytest.mark.parametrize("evidence", ["step:2", "step:01", "step:0", "artifacts/invented.md", "trust me", ""])
def test_evidence_that_does_not_exist_proves_nothing(evidence: str) -> None:
    run = a_reflecting_run()
    run >> reflects("done", {**PROOF, "d3": evidence}) << asks("reflect")
    assert f"evidence {evidence!r} for item d3 does not exist" in run.told()
    assert [item.done for item in run.state.done_items] == [True, True, False]


def test_done_is_refused_when_any_of_its_evidence_does_not_exist() -> None:
    run = a_reflecting_run() >> reflects("continue", PROOF) >> plans() >> returns()
    run >> reflects("done", {"d1": "artifacts/invented.md"}) << asks("reflect")


def test_done_is_refused_while_an_item_is_open_and_the_model_is_told_which() -> None:
    run = a_reflecting_run()
    run >> reflects("done", {"d1": "step:1", "d2": "step:1", "d9": "step:1"}) << asks("reflect")
    assert run.told() == (
        "`done` was refused",
        "there is no item d9",
        "item d3 is still open: it has two paragraphs",
    )
    assert run.state.status is Status.RUNNING


def test_done_is_granted_once_the_rest_is_proved() -> None:
    run = a_reflecting_run() >> reflects("done", {"d1": "step:1", "d2": "step:1"})
    run >> reflects("done", {"d3": "step:1"}) << completes()


def test_done_refused_too_often_escalates() -> None:
    run = a_reflecting_run(max_refused_done=2)
    run >> reflects("done") << asks("reflect")
    run >> reflects("done") << asks("reflect")
    run >> reflects("done") << escalates("done_refused")
    assert "claimed 3 times" in run.state.reason


def test_a_run_does_not_end_by_itself_when_every_item_is_ticked() -> None:
    run = a_reflecting_run()
    run >> reflects("continue", PROOF) << asks("plan")


def test_refused_evidence_is_told_to_the_plan_that_is_asked_for() -> None:
    run = a_reflecting_run(fused=False) >> reflects("continue", {"d1": "step:7"})
    assert run.told() == ("evidence 'step:7' for item d1 does not exist",)


def test_facts_are_kept_once_and_the_newest_hundred() -> None:
    run = a_reflecting_run(max_refused_done=9)
    run >> replies(reflection("done", facts=("a", "b"))) >> replies(reflection("done", facts=("b", "c")))
    assert run.state.facts == ("a", "b", "c")
    run >> replies(reflection("done", facts=tuple(f"fact {n}" for n in range(100))))
    assert run.state.facts == tuple(f"fact {n}" for n in range(100))


def test_a_model_that_escalates_ends_the_run_with_its_reason() -> None:
    run = a_reflecting_run()
    run >> reflects("escalate") << escalates("model")
    assert run.state.reason == "looked at the result"


def test_a_goal_that_nothing_on_offer_can_reach_is_handed_to_a_person_by_the_first_call() -> None:
    run = a_framing_run() >> reflects("escalate") << escalates("model")
    assert (run.state.spent.calls, run.state.framing) == (1, None)


# Reframing


def test_a_reframe_asks_for_a_new_framing_and_starts_its_items_afresh() -> None:
    run = a_reflecting_run() >> reflects("continue", PROOF) >> plans() >> returns()
    run >> reflects("reframe") << asks("frame")
    assert run.told() == ("reframe: looked at the result",)
    run >> frames("new one", "new two", "new three") << asks("plan")
    assert [item.done for item in run.state.done_items] == [False, False, False]
