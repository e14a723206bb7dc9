"""Reply formats: one JSON object for every question of a run, and another for verifications.

Every part is optional; the question says which are wanted. So the calls of a run share one schema and cached prompt.
Structured outputs of providers allow no open objects, no recursion and few unions: null parts are left out, and
`arguments_json` is text (an object is accepted too), with a field for one long text. Long texts are cut, not refused.
"""

import hashlib
import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from agent_service.core import phases
from schemas.fields import Text

_ITEM = re.compile(r"\W*(d\d+)\b", re.IGNORECASE)
MOST_FACTS, MOST_LINES, LONGEST_LINE, LONGEST_QUOTE, LONGEST_TEXT = 10, 20, 400, 1000, 4000


LEFT_OUT = frozenset(
    {"framing", "reflection", "plan", "ask", "wait", "memory", "met", "unmet", "facts", "verdict", "outcome", "outline"}
    | {"risk", "long_text", "seconds", "until"}
)
"""Parts that a reply may leave out if null or empty, or if the verdict is to continue.

Claude writes required fields before optional ones: the verdict would precede its reasons.
"""


def _as_text(arguments: object) -> object:
    return json.dumps(arguments) if isinstance(arguments, dict) else arguments


def _lower(word: object) -> object:
    return word.strip().lower() if isinstance(word, str) else word


def _item(named: str) -> str:
    """`d2` in `D2` or `d2: the page is fetched`."""
    found = _ITEM.match(named)
    return found[1].lower() if found else named


def _line(text: str) -> str:
    return text.strip()[:LONGEST_LINE]


def _lines(texts: list[str]) -> list[str]:
    return [_line(text) for text in texts if text.strip()][:MOST_LINES]


def _instant(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text.strip().removesuffix(" UTC")) if text else None
        return at and (at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        raise ValueError(f"{text[:64]!r} is no instant such as 2026-11-21T12:00:00Z") from None


def _quote(text: str) -> str:
    said = text.strip()
    return said if len(said) <= LONGEST_QUOTE else said[:LONGEST_QUOTE].rpartition(" ")[0] or said[:LONGEST_QUOTE]


Item = Annotated[Text, AfterValidator(_item)]
Line = Annotated[Text, AfterValidator(_line)]
Lines = Annotated[list[Text], AfterValidator(_lines)]
Long = Annotated[Text, AfterValidator(lambda text: text[:LONGEST_TEXT])]
Quote = Annotated[Text, AfterValidator(_quote)]


class _Reply(BaseModel):
    """Part of a reply; `makes` is its class in the core, with the same field names."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)
    makes: ClassVar[type[Any]]

    def decision(self) -> Any:
        return self.makes(**{name: _made(value) for name, value in self})


def _made(value: object) -> object:
    if isinstance(value, list):
        return tuple(map(_made, value))
    return value.decision() if isinstance(value, _Reply) else value


class DoneItemReply(_Reply):
    text: Line
    proof: Annotated[Literal["step", "artifact", "value", "person"], BeforeValidator(_lower)]
    tool: Text = ""


class FramingReply(_Reply):
    goal_statement: Line
    definition_of_done: list[DoneItemReply]
    constraints: Lines = []
    assumptions: Lines = []

    def decision(self) -> phases.Framing:
        return phases.Framing(
            goal_statement=self.goal_statement,
            definition_of_done=tuple(item.text for item in self.definition_of_done),
            proofs=tuple(phases.Proof(kind=item.proof, tool=item.tool) for item in self.definition_of_done),
            constraints=tuple(self.constraints),
            assumptions=tuple(self.assumptions),
        )


class MetReply(_Reply):
    makes = phases.ItemClaim
    item: Item
    evidence: Text
    quote: Quote = ""


class UnmetReply(_Reply):
    makes = phases.ItemRetraction
    item: Item
    reason: Line = ""


class ReflectionReply(_Reply):
    makes = phases.Reflection
    summary: Long
    met: list[MetReply] = []
    unmet: list[UnmetReply] = []
    facts: Annotated[Lines, AfterValidator(lambda facts: facts[:MOST_FACTS])] = []
    verdict: Annotated[
        Literal["continue", "done", "reframe", "escalate"] | None,
        BeforeValidator(_lower),
        AfterValidator(lambda verdict: phases.Verdict(verdict or phases.Verdict.CONTINUE)),
        Field(validate_default=True),
    ] = None
    outcome: Annotated[Long | None, AfterValidator(lambda text: text or None)] = None


class LongTextReply(_Reply):
    argument: Text
    text: Text


class ActionReply(_Reply):
    call: Text
    arguments_json: Annotated[Text, BeforeValidator(_as_text)]
    long_text: LongTextReply | None = None


class PlanReply(_Reply):
    rationale: Long
    outline: Lines | None = None
    actions: list[ActionReply]
    expected_outcome: Line = ""
    risk: Line | None = None

    def planned(self, actions: tuple[phases.Action, ...]) -> phases.Plan:
        return phases.Plan(
            action=actions[0],
            also=actions[1:],
            outline=tuple(self.outline or ()),
            expected_outcome=self.expected_outcome,
            risk=self.risk or "",
            rationale=self.rationale,
        )


class AskReply(_Reply):
    makes = phases.AskPerson
    question: Annotated[Long, AfterValidator(str.strip)]
    choices: Lines = []
    tried: Long = ""
    would_change: Long = ""


class WaitReply(_Reply):
    makes = phases.Wait
    why: Text
    seconds: float | None = None
    until: Annotated[Text, AfterValidator(_instant)] | None = None


class DecisionReply(_Reply):
    framing: FramingReply | None = None
    reflection: ReflectionReply | None = None
    plan: PlanReply | None = None
    ask: AskReply | None = None
    wait: WaitReply | None = None
    memory: list[Text] | None = None


class VerificationReply(_Reply):
    makes = phases.Verification
    reason: Long
    doubted: Annotated[Lines, AfterValidator(lambda items: [_item(item) for item in items])] = []
    holds: bool


def reply_to(phase: phases.Phase) -> type[BaseModel]:
    return VerificationReply if phase is phases.Phase.VERIFY else DecisionReply


def schema_of(reply: type[BaseModel], calls: tuple[str, ...]) -> dict[str, Any]:
    """JSON Schema of a reply, byte-identical for the same calls. Only `calls` (`tool.command`) can be planned."""
    schema: dict[str, Any] = json.loads(_schema_text(reply, calls))
    return schema


@lru_cache(maxsize=256)
def schema_hash(reply: type[BaseModel], calls: tuple[str, ...]) -> str:
    return hashlib.sha256(_schema_text(reply, calls).encode()).hexdigest()[:16]


@lru_cache(maxsize=256)
def _schema_text(reply: type[BaseModel], calls: tuple[str, ...]) -> str:
    schema = reply.model_json_schema(mode="serialization")  # in this mode fields with defaults are required too
    parts = schema.pop("$defs", {})
    for part in (schema, *parts.values()):
        part["required"] = [name for name in part["required"] if name not in LEFT_OUT]
    if reply is DecisionReply and calls:
        tools = {call.partition(".")[0] for call in calls}
        parts["ActionReply"]["properties"]["call"]["enum"] = sorted(calls)
        parts["DoneItemReply"]["properties"]["tool"]["enum"] = ["", *sorted(tools)]
    return json.dumps(_bare(schema, parts), separators=(",", ":"))


def _bare(node: Any, parts: dict[str, Any]) -> Any:
    """Drops what only costs tokens: pydantic's titles and defaults, docstrings, null, and names of parts."""
    if isinstance(node, list):
        return [_bare(item, parts) for item in node]
    if not isinstance(node, dict):
        return node
    if "anyOf" in node:
        (node,) = (kind for kind in node["anyOf"] if kind != {"type": "null"})
    node = parts[node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    dropped = {key for key in ("title", "description") if isinstance(node.get(key), str)}
    if "type" in node:
        dropped.add("default")
    return {key: _bare(value, parts) for key, value in node.items() if key not in dropped}
