"""A run in which everybody who can write something writes a given text: for tests of who is heard where."""

from agent_service.core.phases import Action, Framing, Met, Plan, Reflection, Verdict
from agent_service.core.state import RunState, replace
from agent_service.core.waiting import ForModel
from tests.core.cues import replies, returns, signal, started, wake
from tests.core.script import Script
from tests.kit.runs import SEARCH

ARTIFACT = "artifacts/page.txt"


def after_two_steps(text: str) -> RunState:
    """The state of a run that asks what its second result means. Each place of `text` begins with a mark of its own."""
    asked = replace(wake(), goal=f"GOAL {text}", context={f"KEY {text}": [f"CONTEXT {text}"]})
    framing = Framing(
        goal_statement=f"STATEMENT {text}",
        definition_of_done=(f"ITEM {text}", "two", "three"),
        constraints=(f"CONSTRAINT {text}",),
        assumptions=(f"ASSUMPTION {text}",),
        hypothesis=f"HYPOTHESIS {text}",
    )
    first, second = (
        Plan(
            action=Action(tool="search", command="query", arguments={"text": f"ARGUMENT {text}", "step": step}),
            outline=(f"OUTLINE {text}",),
            expected_outcome=f"EXPECTED {text}",
            rationale=f"RATIONALE {text}",
        )
        for step in (1, 2)
    )
    brought = {"excerpt": f"EXCERPT {text}", "artifact_path": f"PATH {text}", "artifacts": [{"path": ARTIFACT}]}
    result = returns(output={**brought, "summary": f"TOLD {text}", f"FIELD {text}": [f"VALUE {text}"]})
    seen = Reflection(
        verdict=Verdict.CONTINUE,
        summary=f"SUMMARY {text}",
        met=(Met(item=f"MET {text}", evidence=f"EVIDENCE {text}"), Met(item="d1", evidence=ARTIFACT)),
        facts=(f"FACT {text}",),
    )
    script = Script() >> asked >> started((SEARCH,)) >> replies(framing, plan=first)
    script = script >> signal("message", message=f"PERSON {text}") >> result >> replies(seen, plan=second) >> result
    state = script.state
    assert state.asking is not None
    waiting = ForModel(asking=replace(state.asking, rejected=f"REJECTED {text}"))
    return replace(state, waiting=waiting, reflection=seen)
