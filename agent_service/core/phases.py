"""Decisions of the model, as values. Their meaning is checked where they are taken up.

An unusable decision is a value, not an exception: the journal keeps it and the model is asked again.
"""

import operator
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from agent_service.sentences import Text, say
from schemas.events import GIVEN_KEYS, RESERVED_KEYS
from schemas.values import dataclass

_NO_ARGUMENTS = RESERVED_KEYS | GIVEN_KEYS
MIN_DONE_ITEMS, MAX_DONE_ITEMS = 3, 7


class Phase(StrEnum):
    """`act` dispatches a tool, without a model."""

    FRAME = "frame"
    PLAN = "plan"
    ACT = "act"
    REFLECT = "reflect"
    COMPACT = "compact"
    VERIFY = "verify"


class Verdict(StrEnum):
    CONTINUE = "continue"
    DONE = "done"
    REFRAME = "reframe"
    ESCALATE = "escalate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The kind of evidence that an item needs, from `tool` or, if that is empty, from any."""

    kind: Literal["step", "artifact", "value", "person"]
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """The goal as a bounded objective (RFC-95). `proofs`: one per item; without them any step or artifact shows any."""

    goal_statement: str
    definition_of_done: tuple[str, ...]
    proofs: tuple[Proof, ...] = ()
    constraints: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    hypothesis: str | None = None

    def flaws(self) -> tuple[Text, ...]:
        items = self.definition_of_done
        is_whole = MIN_DONE_ITEMS <= len(items) <= MAX_DONE_ITEMS and len(self.proofs) in (0, len(items))
        if is_whole and all(map(str.strip, (self.goal_statement, *items))):
            return ()
        return (say("framing_shape", least=MIN_DONE_ITEMS, most=MAX_DONE_ITEMS),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """The only binding part of a plan. `given`: content that the agent adds to the arguments."""

    tool: str
    command: str
    arguments: dict[str, JsonValue]
    given: Annotated[dict[str, JsonValue], Field(exclude_if=operator.not_)] = field(default_factory=dict)

    @property
    def payload(self) -> dict[str, JsonValue]:
        """Arguments and `given`. Correlation keys and names that only the agent may set are dropped, in any case."""
        allowed = {name: value for name, value in self.arguments.items() if name.casefold() not in _NO_ARGUMENTS}
        return allowed | self.given


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A short outline (advisory) and one next action (RFC-95). `also`: independent parallel reads."""

    action: Action
    also: tuple[Action, ...] = ()
    outline: tuple[str, ...] = ()
    expected_outcome: str = ""
    risk: str = ""
    rationale: str = ""

    @property
    def actions(self) -> tuple[Action, ...]:
        return self.action, *self.also


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPerson:
    """`would_change`: the consequences of the answer."""

    question: str
    choices: tuple[str, ...] = ()
    tried: str = ""
    would_change: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Waits until an instant, or for some seconds."""

    why: str
    seconds: float | None = None
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ItemClaim:
    """Claims that `item` is done. `evidence`: `step:<n>`, an artifact's path, or `person`. `quote`: words from it."""

    item: str
    evidence: str
    quote: str = ""


@dataclass(frozen=True, kw_only=True)
class ItemRetraction:
    item: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Reflection:
    """`outcome` is the final summary if the verdict is `done`."""

    verdict: Verdict
    summary: str
    met: tuple[ItemClaim, ...] = ()
    unmet: tuple[ItemRetraction, ...] = ()
    facts: tuple[str, ...] = ()
    outline: tuple[str, ...] | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Replaces the facts and the older notes."""

    memory: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """`doubted`: ids of items whose evidence does not show them."""

    holds: bool
    reason: str
    doubted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRefusal:
    """`category` is the provider's word for the reason."""

    category: str
    explanation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A reply that is no valid decision. `raw` is its beginning. `cut`: it reached the token limit of a reply."""

    reason: str
    raw: str = ""
    cut: bool = False
    flaws: tuple[str, ...] = ()


Next = Plan | AskPerson | Wait
Decision = Framing | Next | Reflection | Digest | Verification | ModelRefusal | Unusable
