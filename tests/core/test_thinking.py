"""Frame, plan, reflect: what each decision leads to, and what is told to the model when one cannot be used."""

import pytest

from agent_service.core.phases import Framing
from tests.core.cues import (
    PROOF,
    a_framing_run,
    a_reflecting_run,
    frames,
    framing,
    plans,
    reflects,
    replies,
    returns,
)
from tests.core.script import asks, escalates

# Which reply counts


# Framing


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


# Reflection


def test_done_is_refused_when_any_of_its_evidence_does_not_exist() -> None:
    run = a_reflecting_run() >> reflects("continue", PROOF) >> plans() >> returns()
    run >> reflects("done", {"d1": "artifacts/invented.md"}) << asks("reflect")


def test_done_refused_too_often_escalates() -> None:
    run = a_reflecting_run(max_refused_done=2)
    run >> reflects("done") << asks("reflect")
    run >> reflects("done") << asks("reflect")
    run >> reflects("done") << escalates("done_refused")
    assert "claimed 3 times" in run.state.reason


# Reframing


def test_a_reframe_asks_for_a_new_framing_and_starts_its_items_afresh() -> None:
    run = a_reflecting_run() >> reflects("continue", PROOF) >> plans() >> returns()
    run >> reflects("reframe") << asks("frame")
    assert run.told() == ("reframe: looked at the result",)
    run >> frames("new one", "new two", "new three") << asks("plan")
    assert [item.done for item in run.state.done_items] == [False, False, False]
