"""What a model may reply: one JSON object per form of question, its JSON Schema, and how it is read. Pure.

Rules of the schemas, which Anthropic's and OpenAI's structured outputs both keep to: every property is required, no
object is open, no recursion, few unions. Lengths and numbers are told in the prompt and cut here, not refused: a
reply that is only too long is not worth paying for another. `arguments_json` is text because the arguments of a tool
are an open object; they are checked against the tool's own schema afterwards.
"""

import hashlib
import json
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from agent_service.core.phases import (
    Action,
    Decision,
    Digest,
    Framing,
    Met,
    Phase,
    Plan,
    Reflection,
    Unusable,
    Verdict,
)

MOST_RAW = 4000
"""Characters of a reply that could not be used, for the journal and for the repair."""
MOST_FACTS, MOST_OUTLINE, LONGEST_LINE, LONGEST_TEXT = 10, 20, 400, 4000
MOST_ERRORS = 8


class Form(StrEnum):
    """The shapes of a reply. `opening` is a framing with its first plan, `turn` a reflection with the next one."""

    OPENING = "opening"
    FRAMING = "framing"
    TURN = "turn"
    PLAN = "plan"
    REFLECTION = "reflection"
    DIGEST = "digest"


def form_of(phase: Phase, *, with_plan: bool) -> Form:
    """The form that answers a question. A fused run plans in the form of its turns: one schema, one cache."""
    if phase is Phase.COMPACT:
        return Form.DIGEST
    if with_plan:
        return Form.OPENING if phase is Phase.FRAME else Form.TURN
    return {Phase.FRAME: Form.FRAMING, Phase.PLAN: Form.PLAN}.get(phase, Form.REFLECTION)


class _Reply(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FramingReply(_Reply):
    goal_statement: str
    definition_of_done: list[str]
    constraints: list[str]
    assumptions: list[str]
    hypothesis: str

    def decision(self) -> Framing:
        return Framing(
            goal_statement=_line(self.goal_statement),
            definition_of_done=tuple(map(_line, self.definition_of_done)),
            constraints=_lines(self.constraints),
            assumptions=_lines(self.assumptions),
            hypothesis=_line(self.hypothesis) or None,
        )


class PlanReply(_Reply):
    """The reasons come first: what is written before a choice can still guide it."""

    rationale: str
    outline: list[str]
    tool: str
    command: str
    arguments_json: str
    expected_outcome: str
    risk: str

    def decision(self) -> Plan | Unusable:
        """The plan; or what is wrong with the arguments as JSON."""
        try:
            arguments = json.loads(self.arguments_json, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            return Unusable(reason=f"plan.arguments_json is no JSON: {error}", raw=self.arguments_json[:MOST_RAW])
        if not isinstance(arguments, dict):
            return Unusable(reason="plan.arguments_json is no JSON object", raw=self.arguments_json[:MOST_RAW])
        return self._planned(arguments)

    def _planned(self, arguments: dict[str, JsonValue]) -> Plan:
        return Plan(
            action=Action(tool=self.tool, command=self.command, arguments=arguments),
            outline=_lines(self.outline),
            expected_outcome=_line(self.expected_outcome),
            risk=_line(self.risk),
            rationale=self.rationale[:LONGEST_TEXT],
        )


class MetReply(_Reply):
    item: str
    evidence: str


class ReflectionReply(_Reply):
    summary: str
    met: list[MetReply]
    facts: list[str]
    verdict: Literal["continue", "done", "reframe", "escalate"]
    outcome: str

    def decision(self) -> Reflection:
        return Reflection(
            verdict=Verdict(self.verdict),
            summary=self.summary[:LONGEST_TEXT],
            met=tuple(Met(item=met.item, evidence=met.evidence) for met in self.met),
            facts=tuple(_line(fact) for fact in self.facts if fact.strip())[:MOST_FACTS],
            outcome=self.outcome[:LONGEST_TEXT] or None,
        )


class OpeningReply(_Reply):
    framing: FramingReply
    plan: PlanReply | None


class TurnReply(_Reply):
    reflection: ReflectionReply | None
    plan: PlanReply | None


class DigestReply(_Reply):
    memory: list[str]

    def decision(self) -> Digest:
        return Digest(memory=tuple(map(_line, self.memory)))


_FORMS: dict[Form, type[BaseModel]] = {
    Form.OPENING: OpeningReply,
    Form.FRAMING: FramingReply,
    Form.TURN: TurnReply,
    Form.PLAN: PlanReply,
    Form.REFLECTION: ReflectionReply,
    Form.DIGEST: DigestReply,
}


def schema_of(form: Form, tools: tuple[str, ...]) -> dict[str, Any]:
    """The JSON Schema of a reply, the same bytes for the same tools. Only names of `tools` can be planned."""
    schema: dict[str, Any] = json.loads(_schema_text(form, tools))
    return schema


@lru_cache(maxsize=256)
def schema_hash(form: Form, tools: tuple[str, ...]) -> str:
    return hashlib.sha256(_schema_text(form, tools).encode()).hexdigest()[:16]


@lru_cache(maxsize=256)
def _schema_text(form: Form, tools: tuple[str, ...]) -> str:
    schema = _FORMS[form].model_json_schema()
    plan = schema if form is Form.PLAN else schema.get("$defs", {}).get("PlanReply")
    if plan and tools:
        plan["properties"]["tool"]["enum"] = sorted(tools)
    return json.dumps(_without_titles(schema), separators=(",", ":"))


def _without_titles(node: Any) -> Any:
    """The schema without pydantic's titles and our docstrings: they would only cost tokens."""
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    told = {key for key in ("title", "description") if isinstance(node.get(key), str)}
    return {key: _without_titles(value) for key, value in node.items() if key not in told}


def read(form: Form, phase: Phase, text: str) -> tuple[Decision, Plan | Unusable | None]:
    """The decision in a reply, and the plan that came along; Unusable, with every error, when it does not fit."""
    try:
        reply = _FORMS[form].model_validate_json(text)
    except ValidationError as error:
        return _unusable(_told(error), text), None
    match reply:
        case OpeningReply(framing=framing, plan=plan):
            return framing.decision(), plan.decision() if plan else None
        case TurnReply(reflection=reflection, plan=plan):
            return _turn(phase, reflection, plan, text)
        case FramingReply() | PlanReply() | ReflectionReply() | DigestReply():
            return reply.decision(), None
    raise AssertionError(f"form {form} is not read")


def _turn(
    phase: Phase, reflection: ReflectionReply | None, plan: PlanReply | None, text: str
) -> tuple[Decision, Plan | Unusable | None]:
    if phase is Phase.PLAN:
        if plan:
            return plan.decision(), None
        return (reflection.decision() if reflection else _unusable("plan and reflection are both null", text)), None
    if reflection is None:
        return _unusable("reflection is null", text), None
    decided = reflection.decision()
    return decided, plan.decision() if plan and decided.verdict is Verdict.CONTINUE else None


def _unusable(reason: str, text: str) -> Unusable:
    return Unusable(reason=reason, raw=text[:MOST_RAW])


def _told(error: ValidationError) -> str:
    """Every error with its place, and without the input, which is told apart."""
    errors = error.errors(include_input=False, include_url=False, include_context=False)[:MOST_ERRORS]
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'the reply'}: {e['msg']}" for e in errors)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _line(text: str) -> str:
    return text.strip()[:LONGEST_LINE]


def _lines(texts: list[str]) -> tuple[str, ...]:
    return tuple(_line(text) for text in texts if text.strip())[:MOST_OUTLINE]
