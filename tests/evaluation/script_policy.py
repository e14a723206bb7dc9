"""A model on the wire that says what a scenario's script decides: the script is asked what the model was asked."""

import asyncio
import json
from typing import Any

from agent_service.core.phases import Digest, Framing, Phase, Plan, Reflection
from agent_service.core.replacing import replace
from agent_service.ports import Answer, Model, ModelCall, Question
from agent_service.workbench.evaluation.scenario import Script, follower_of


class Whispered:
    """A model whose server is told what to say. Fills the port Model; `policy` is that of the server."""

    def __init__(self, model: Model, script: Script) -> None:
        self._model = model
        self._follower = follower_of("fake", script)
        self._asked: Question | None = None

    def prepare(self, question: Question) -> ModelCall:
        self._asked = question
        return self._model.prepare(question)

    def policy(self, body: dict[str, Any]) -> dict[str, Any] | str:
        said = self._said()
        tools = tools_of(body)
        planned = said.get("plan") or said
        # A tool that the schema does not have would not come through the grammar of the API: then it is plain text.
        return json.dumps(said) if tools and planned.get("tool", tools[0]) not in tools else said

    def _said(self) -> dict[str, Any]:
        assert self._asked is not None
        phase, answer = self._asked.phase, self._decided(self._asked.phase)
        match phase, answer.decision:
            case Phase.FRAME, Framing() as framing:
                return {"framing": _framing(framing), "plan": _plan(self._decided(Phase.PLAN).decision)}
            case Phase.PLAN, Plan() as planned:
                return {"reflection": None, "plan": _plan(planned)}
            case _, Reflection() as reflection:
                return {"reflection": _reflection(reflection), "plan": _plan(answer.plan)}
            case Phase.COMPACT, Digest(memory=memory):
                return {"memory": list(memory)}
        raise AssertionError(f"the script says {answer.decision} in phase {phase}")

    def _decided(self, phase: Phase) -> Answer:
        assert self._asked is not None
        return asyncio.run(self._follower.prepare(replace(self._asked, phase=phase)).make())


def tools_of(body: dict[str, Any]) -> list[str]:
    """Those that can be planned; none where there is nothing to plan."""
    definitions = body["output_config"]["format"]["schema"].get("$defs", {})
    tools: list[str] = definitions["PlanReply"]["properties"]["tool"]["enum"] if definitions else []
    return tools


def _framing(framing: Framing) -> dict[str, Any]:
    return {
        "goal_statement": framing.goal_statement,
        "definition_of_done": list(framing.definition_of_done),
        "constraints": list(framing.constraints),
        "assumptions": list(framing.assumptions),
        "hypothesis": framing.hypothesis or "",
    }


def _plan(plan: object) -> dict[str, Any] | None:
    if not isinstance(plan, Plan):
        return None
    return {
        "rationale": plan.rationale,
        "outline": list(plan.outline),
        "tool": plan.action.tool,
        "command": plan.action.command,
        "arguments_json": json.dumps(plan.action.arguments, ensure_ascii=False),
        "expected_outcome": plan.expected_outcome,
        "risk": plan.risk,
    }


def _reflection(reflection: Reflection) -> dict[str, Any]:
    return {
        "summary": reflection.summary,
        "met": [{"item": met.item, "evidence": met.evidence} for met in reflection.met],
        "facts": list(reflection.facts),
        "verdict": str(reflection.verdict),
        "outcome": reflection.outcome or "",
    }
