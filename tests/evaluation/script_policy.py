"""A policy for fakes of model providers: what a scenario's script decides, read from the request and said on the wire.

It knows nothing but the request, as a model does: where the run stands is read from the prompt.
"""

import asyncio
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from agent_service.core.phases import Digest, Framing, Phase, Plan, Reflection
from agent_service.core.state import Brief, LastResult, Limits, RunState, StepRecord
from agent_service.core.waiting import Asking, ForModel
from agent_service.ports import Answer, Question
from agent_service.workbench.evaluation.played import BEGIN
from agent_service.workbench.evaluation.scenario import Scenario, Script, follower_of

STEP = re.compile(r'<step number="(\d+)" tool="([^"]*)" command="([^"]*)" status="(ok|error)">(.*?)</step>', re.DOTALL)
RESULT = re.compile(r"<untrusted_result>\n(.*?)\n</untrusted_result>", re.DOTALL)
STEPS_LEFT = re.compile(r"Budget left: (\d+) of (\d+) steps")
LEARNED = re.compile(r"(?:Facts learned:|<memory_of_older_steps>)\n((?:- .*\n?)+)")


class ScriptPolicy:
    """Says what the script of the scenario decides whose goal the request holds."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        """`scripts` by goal."""
        self._models = {goal: follower_of("fake", script) for goal, script in scripts.items()}

    def __call__(self, body: dict[str, Any]) -> dict[str, Any] | str:
        asked = Asked(body)
        said = self._said(asked)
        tools = asked.tools
        planned = said.get("plan") or said
        # A tool that the schema does not have would not come through the grammar of the API: then it is plain text.
        return json.dumps(said) if tools and planned.get("tool", tools[0]) not in tools else said

    def _said(self, asked: "Asked") -> dict[str, Any]:
        decision, plan = self._decided(asked, asked.phase)
        match asked.phase, decision:
            case Phase.FRAME, Framing() as framing:
                along, _ = self._decided(asked, Phase.PLAN)
                return {"framing": _framing(framing), "plan": _plan(along) if isinstance(along, Plan) else None}
            case Phase.PLAN, Plan() as planned:
                return {"reflection": None, "plan": _plan(planned)}
            case _, Reflection() as reflection:
                return {"reflection": _reflection(reflection), "plan": _plan(plan) if isinstance(plan, Plan) else None}
            case Phase.COMPACT, Digest(memory=memory):
                return {"memory": list(memory)}
        raise AssertionError(f"the script says {decision} in phase {asked.phase}")

    def _decided(self, asked: "Asked", phase: Phase) -> tuple[object, object]:
        model = self._models[asked.goal]
        answer: Answer = asyncio.run(model.prepare(asked.question(phase)).make())
        return answer.decision, answer.plan


@dataclass(frozen=True)
class Asked:
    """A request of a model adapter in a fused run, as what a script looks at."""

    body: dict[str, Any]

    @cached_property
    def text(self) -> str:
        return "\n".join(_texts(self.body["messages"]))

    @cached_property
    def properties(self) -> frozenset[str]:
        schema: dict[str, Any] = self.body["output_config"]["format"]["schema"]
        return frozenset(schema["properties"])

    @property
    def tools(self) -> list[str]:
        """Those that can be planned; none where there is nothing to plan."""
        definitions = self.body["output_config"]["format"]["schema"].get("$defs", {})
        tools: list[str] = definitions["PlanReply"]["properties"]["tool"]["enum"] if definitions else []
        return tools

    @property
    def phase(self) -> Phase:
        if "memory" in self.properties:
            return Phase.COMPACT
        if "framing" in self.properties:
            return Phase.FRAME
        return Phase.PLAN if self.text.rsplit("\n\n", 1)[-1].startswith("Plan the next action.") else Phase.REFLECT

    @property
    def goal(self) -> str:
        found = re.search(r"<goal>\n(.*?)\n</goal>", self.text, re.DOTALL)
        assert found, "the prompt holds a goal"
        return html.unescape(found[1])

    def question(self, phase: Phase) -> Question:
        """What a script would have been asked."""
        call = 1
        state = RunState(
            run_id="run_1",
            wake_id="w",
            brief=Brief(goal=self.goal, context={}, limits=Limits(deadline_at=BEGIN + timedelta(hours=1))),
            version=1,
            accepted_at=BEGIN,
            updated_at=BEGIN,
            waiting=ForModel(asking=Asking(call=call, phase=phase, feedback=tuple(self._feedback()))),
            step=self._steps,
            completed=tuple(self._completed()),
            last_result=self._last_result(),
            facts=tuple(line[2:] for block in LEARNED.findall(self.text) for line in block.splitlines()),
            reframes=1 if "is to be replaced" in self.text else 0,
        )
        return Question(state=state, call=call, phase=phase, with_plan=True, now=BEGIN)

    @property
    def _steps(self) -> int:
        found = STEPS_LEFT.search(self.text)
        assert found, "the prompt says how many steps are left"
        return int(found[2]) - int(found[1])

    def _completed(self) -> Iterator[StepRecord]:
        """As many records as there were steps; only the newest one is as it was."""
        shown = STEP.findall(self.text)
        tool, command, status = shown[-1][1:4] if shown else ("", "", "")
        for step in range(1, self._steps + 1):
            yield StepRecord(
                step=step,
                tool=tool,
                command=command,
                attempt=1,
                status="error" if status == "error" else "ok",
                summary="",
                call="",
                outcome="",
            )

    def _last_result(self) -> LastResult | None:
        shown = STEP.findall(self.text)
        found = RESULT.search(shown[-1][4]) if shown else None
        if found is None:
            return None
        path = re.search(r'"artifact_path": "([^"]+)"', found[1])
        named = {"artifact_path": path[1]} if path else {}
        return LastResult(step=self._steps, status=shown[-1][3], output={"text": html.unescape(found[1]), **named})

    def _feedback(self) -> list[str]:
        _, _, told = self.text.partition("Before you decide, take note:\n")
        return re.findall(r"^- (.*)$", told, re.MULTILINE)


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("text"), str):
            yield node["text"]
        yield from _texts(node.get("content"))
    for item in node if isinstance(node, list) else ():
        yield from _texts(item)


def _framing(framing: Framing) -> dict[str, Any]:
    return {
        "goal_statement": framing.goal_statement,
        "definition_of_done": list(framing.definition_of_done),
        "constraints": list(framing.constraints),
        "assumptions": list(framing.assumptions),
        "hypothesis": framing.hypothesis or "",
    }


def _plan(plan: Plan) -> dict[str, Any]:
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


def by_goal(scenarios: list[Scenario]) -> dict[str, Script]:
    return {scenario.goal: scenario.script for scenario in scenarios}
