"""What a model may reply: one JSON object per form of question, its JSON Schema, and how it is read. Pure.

Rules of the schemas, which Anthropic's and OpenAI's structured outputs both keep to: every property is required, no
object is open, no recursion, few unions. Lengths and numbers are told in the prompt and cut here, not refused: a
reply that is only too long is not worth paying for another. `arguments_json` is text because the arguments of a tool
are an open object; they are checked against the tool's own schema afterwards.
"""

import hashlib
import json
from collections import Counter
from enum import StrEnum
from functools import lru_cache
from math import isfinite
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
from schemas.flaws import flaws_of

MOST_RAW = 4000
"""Characters of a reply that could not be used, for the journal and for the repair."""
MOST_FACTS, MOST_OUTLINE, LONGEST_LINE, LONGEST_TEXT = 10, 20, 400, 4000
MOST_ERRORS = 8
DEEPEST = 50
"""Levels of nesting in the arguments of a tool. From 200 on, what was journaled could not be read again."""


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
            return self._planned(_arguments(self.arguments_json))
        except (ValueError, RecursionError) as error:
            return Unusable(reason=f"plan.arguments_json: {error}", raw=self.arguments_json[:MOST_RAW])

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
        return _unusable(flaws_of(error, whole="the reply", most=MOST_ERRORS), text), None
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


def _arguments(text: str) -> dict[str, JsonValue]:
    """The object in `text`. Raises ValueError for anything that others could read otherwise, or not at all."""
    arguments = json.loads(text, parse_constant=_number, parse_float=_number, object_pairs_hook=_object)
    if not isinstance(arguments, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 # the text is wrong, not a type of ours
    if _deeper(arguments, DEEPEST):
        raise ValueError(f"it is nested deeper than {DEEPEST} levels")
    return arguments


def _number(text: str) -> float:
    """Finite: JSON has no other, though its grammar lets 1e999 pass."""
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:LONGEST_LINE]} is no number")
    return number


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    """Without a name that is there twice: who reads it decides which one counts, and a tool may decide otherwise."""
    named = dict(pairs)
    if len(named) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"{twice[:LONGEST_LINE]!r} is there twice")
    return named


def _deeper(value: JsonValue, levels: int) -> bool:
    """Whether `value` is nested deeper than `levels`."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_deeper(each, levels - 1) for each in inner)


def _line(text: str) -> str:
    return text.strip()[:LONGEST_LINE]


def _lines(texts: list[str]) -> tuple[str, ...]:
    return tuple(_line(text) for text in texts if text.strip())[:MOST_OUTLINE]
