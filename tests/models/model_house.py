"""Questions of real runs, and replies as models write them, for the tests of every adapter."""

import json
from datetime import datetime
from typing import Any

from agent_service.core.phases import Phase, Reflection, Verdict
from agent_service.core.state import RunState
from agent_service.core.waiting import OpenCall, Thinking
from agent_service.run.journal import Commit
from agent_service.run.ports import ModelQuestion
from schemas.values import replace
from tests.kit import runs
from tests.kit.runs import NOON

FRAMING: dict[str, Any] = {
    "goal_statement": "The answer is known and written down.",
    "definition_of_done": [
        {"text": "It is found", "proof": "value", "tool": ""},
        {"text": "It is checked", "proof": "step", "tool": ""},
        {"text": "It is written down", "proof": "artifact", "tool": ""},
    ],
    "constraints": ["Nothing is bought"],
    "assumptions": [],
}
ACTION = {"call": "search.query", "arguments_json": '{"text": "the answer"}', "long_text": None}
PLAN: dict[str, Any] = {
    "rationale": "nothing is known yet",
    "outline": ["search", "compare", "tell"],
    "actions": [ACTION],
    "expected_outcome": "a page that tells it",
    "risk": None,
}
REFLECTION: dict[str, Any] = {
    "summary": "A part is known.",
    "met": [{"item": "d1", "evidence": "step:1", "quote": "a part of the answer"}],
    "unmet": [],
    "facts": ["The answer is 42 (step:1)"],
    "verdict": "continue",
    "outcome": None,
}
ASK = {
    "question": "Which answer do you mean?",
    "choices": ["the short one", "the long one"],
    "tried": "Both are in the archive.",
    "would_change": "Which of the two is kept.",
}
WAIT = {"why": "It is printed at noon.", "seconds": 600, "until": None}
VERIFICATION = {"reason": "The quote of d2 shows nothing.", "doubted": ["d2"], "holds": False}
PARTS = ("framing", "reflection", "plan", "ask", "wait", "memory")


def reply(**given: Any) -> dict[str, Any]:
    return {**dict.fromkeys(PARTS), **given}


def without_nothing(reply: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json.dumps(reply), object_hook=_filled)
    return told


def _filled(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, [])}


def wanted(request: dict[str, Any]) -> str:
    """The first part that a request to the fake Claude asks for, read from the end of its message."""
    if "holds" in request["output_config"]["format"]["schema"]["properties"]:
        return "verification"
    end = request["messages"][0]["content"][-1]["text"].rpartition("</standing>")[2]
    return next(part for part in ("framing", "reflection", "plan", "memory") if f"`{part}`" in end)


def action(tool: str, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"call": f"{tool}.{command}", "arguments_json": json.dumps(arguments), "long_text": None}


OPENING = reply(framing=FRAMING, plan=PLAN)
TURN = reply(reflection=REFLECTION, plan=PLAN)
DIGEST = reply(memory=["The answer is 42 (step:1)"])


def asked(commit: Commit) -> ModelQuestion:
    assert commit.state.open_call is not None, "the run asks nothing"
    return question(commit.state, commit.state.open_call.phase)


def question(state: RunState, phase: Phase, *, now: datetime = NOON) -> ModelQuestion:
    """Asks for `phase`, whatever `state` asks itself."""
    asking = state.open_call or OpenCall(call=state.calls + 1, phase=phase)
    state = replace(state, waiting=Thinking(asking=replace(asking, phase=phase), reserve=state.reserve))
    return ModelQuestion(state=state, call=asking.call, phase=phase, now=now)


def begun() -> Commit:
    """A run that may take a thousand steps."""
    return runs.started(runs.accepted(max_steps=1000, max_attempts_of_run=1000))


def framing() -> ModelQuestion:
    return asked(begun())


def reflecting(steps: int = 1) -> ModelQuestion:
    commit = runs.replied(begun(), runs.FRAMING, runs.plan(1))
    for step in range(1, steps):
        found = Reflection(verdict=Verdict.CONTINUE, summary=f"part {step} is known", facts=(f"fact {step}",))
        commit = runs.replied(runs.returned(commit), found, runs.plan(step + 1))
    return asked(runs.returned(commit))


def planning() -> ModelQuestion:
    return asked(runs.replied(runs.started(runs.accepted()), runs.FRAMING))


def separate(asked: ModelQuestion) -> ModelQuestion:
    state = replace(asked.state, brief=replace(asked.state.brief, fused=False))
    return replace(asked, state=state)
