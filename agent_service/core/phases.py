"""What the model may decide, typed. Shapes are checked here (`flaws`), meaning where the decision is taken up.

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
    """`act` is the dispatch of a tool, without a model."""

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
    """`tool`: whose step or result it has to be; empty for any."""

    kind: Literal["step", "artifact", "value", "person"]
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """The goal as a bounded objective (RFC-95): one sentence, and 3-7 items that can each be checked. `proofs`: one for
    each, in their order; without them any step or artifact shows any item.
    """

    goal_statement: str
    definition_of_done: tuple[str, ...]
    proofs: tuple[Proof, ...] = ()
    constraints: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    hypothesis: str | None = None

    def flaws(self) -> tuple[Text, ...]:
        flaws = list[Text]()
        if not self.goal_statement.strip():
            flaws.append(say("goal_blank"))
        if not MIN_DONE_ITEMS <= len(self.definition_of_done) <= MAX_DONE_ITEMS:
            flaws.append(say("items_counted", least=MIN_DONE_ITEMS, most=MAX_DONE_ITEMS))
        if "" in map(str.strip, self.definition_of_done):
            flaws.append(say("item_blank"))
        if self.proofs and len(self.proofs) != len(self.definition_of_done):
            flaws.append(say("proofs_counted"))
        return tuple(flaws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """The only binding part of a plan. `given`: what the agent hands on beside the arguments."""

    tool: str
    command: str
    arguments: dict[str, JsonValue]
    given: Annotated[dict[str, JsonValue], Field(exclude_if=operator.not_)] = field(default_factory=dict)

    @property
    def payload(self) -> dict[str, JsonValue]:
        """No argument may be a correlation key, or a word that only the agent says, in any case."""
        said = {name: value for name, value in self.arguments.items() if name.casefold() not in _NO_ARGUMENTS}
        return said | self.given


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
    """`would_change`: what depends on the answer."""

    question: str
    choices: tuple[str, ...] = ()
    tried: str = ""
    would_change: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Until an instant, or for some seconds. Neither a step nor a model call."""

    why: str
    seconds: float | None = None
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ItemClaim:
    """`evidence`: `step:<n>` of a finished step, an artifact's path, or `person`. `quote`: words that show the item."""

    item: str
    evidence: str
    quote: str = ""


@dataclass(frozen=True, kw_only=True)
class ItemRetraction:
    item: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Reflection:
    """`outcome` is the final summary when the verdict is done."""

    verdict: Verdict
    summary: str
    met: tuple[ItemClaim, ...] = ()
    unmet: tuple[ItemRetraction, ...] = ()
    facts: tuple[str, ...] = ()
    outline: tuple[str, ...] | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Takes the place of the facts and of the older notes."""

    memory: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """`doubted`: ids of the items that their evidence does not show."""

    holds: bool
    reason: str
    doubted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRefusal:
    """`category` is the provider's word for why."""

    category: str
    explanation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A reply that is no valid decision. `raw` is how it began, literally. `cut`: it reached the most tokens of a
    reply. `reason` has all `flaws` in one text.
    """

    reason: str
    raw: str = ""
    cut: bool = False
    flaws: tuple[str, ...] = ()


Next = Plan | AskPerson | Wait
Decision = Framing | Next | Reflection | Digest | Verification | ModelRefusal | Unusable
