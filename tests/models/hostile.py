"""A run in which everybody who can write something writes a given text: for tests of who is heard where."""

from datetime import datetime

from agent_service.core.brief import Limits
from agent_service.core.decide import decide
from agent_service.core.events import SignalReceived, ToolReturned, WakeAccepted
from agent_service.core.phases import Action, Framing, Met, Plan, Reflection, Verdict
from agent_service.core.state import RunState, replace
from agent_service.core.waiting import ForModel
from agent_service.run.journal import Commit, commit_of
from schemas.events import Signal, ToolOutput, ToolResult
from tests.kit import runs
from tests.kit.runs import NOON, SECOND

ARTIFACT = "artifacts/page.txt"


def after_two_steps(text: str) -> RunState:
    """The state of a run that asks what its second result means. Each place of `text` begins with a mark of its own."""
    commit = runs.replied(runs.started(_accepted(text)), _framing(text), _plan(text, 1))
    commit = runs.after(commit, SignalReceived(at=_next(commit), signal=_signal(commit, text)))
    commit = runs.replied(_returned(commit, text), _reflection(text), _plan(text, 2))
    state = _returned(commit, text).state
    assert state.asking is not None
    waiting = ForModel(asking=replace(state.asking, rejected=f"REJECTED {text}"))
    return replace(state, waiting=waiting, reflection=_reflection(text))


def _accepted(text: str) -> Commit:
    event = WakeAccepted(
        at=NOON,
        run_id=runs.run_id(1),
        wake_id="wake",
        goal=f"GOAL {text}",
        limits=Limits(deadline_at=NOON + 3600 * SECOND),
        announce=True,
        context={f"KEY {text}": [f"CONTEXT {text}"]},
    )
    return commit_of(None, event, decide(None, event))


def _framing(text: str) -> Framing:
    return Framing(
        goal_statement=f"STATEMENT {text}",
        definition_of_done=(f"ITEM {text}", "two", "three"),
        constraints=(f"CONSTRAINT {text}",),
        assumptions=(f"ASSUMPTION {text}",),
        hypothesis=f"HYPOTHESIS {text}",
    )


def _plan(text: str, step: int) -> Plan:
    return Plan(
        action=Action(tool="search", command="query", arguments={"text": f"ARGUMENT {text}", "step": step}),
        outline=(f"OUTLINE {text}",),
        expected_outcome=f"EXPECTED {text}",
        rationale=f"RATIONALE {text}",
    )


def _reflection(text: str) -> Reflection:
    return Reflection(
        verdict=Verdict.CONTINUE,
        summary=f"SUMMARY {text}",
        met=(Met(item=f"MET {text}", evidence=f"EVIDENCE {text}"), Met(item="d1", evidence=ARTIFACT)),
        facts=(f"FACT {text}",),
    )


def _signal(commit: Commit, text: str) -> Signal:
    return Signal(run_id=commit.state.run_id, signal_id="s1", kind="message", message=f"PERSON {text}")


def _returned(commit: Commit, text: str) -> Commit:
    """The result of the pending step, with what a hostile page could say in every field."""
    pending = commit.state.pending
    assert pending is not None
    output = {"excerpt": f"EXCERPT {text}", "artifact_path": f"PATH {text}", "artifacts": [{"path": ARTIFACT}]}
    result = ToolResult(
        run_id=commit.state.run_id,
        step=pending.step,
        tool=pending.action.tool,
        status="ok",
        result=ToolOutput.model_validate({**output, "summary": f"TOLD {text}", f"FIELD {text}": [f"VALUE {text}"]}),
        completed_at=_next(commit),
        attempt=pending.attempt,
    )
    return runs.after(commit, ToolReturned(at=_next(commit), result=result))


def _next(commit: Commit) -> datetime:
    return commit.entry.at + SECOND
