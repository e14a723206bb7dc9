"""What the model may decide, typed: a framing, a plan, a reflection, a digest, or something that cannot be used.

Shapes are checked here (`flaws`), meaning is checked where the decision is taken up. An unusable decision is a value,
not an exception: the journal keeps it and the model is asked again.
"""

from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue

MIN_DONE_ITEMS, MAX_DONE_ITEMS = 3, 7


class Phase(StrEnum):
    """What a model call is for; `act` is the dispatch of a tool, without a model."""

    FRAME = "frame"
    PLAN = "plan"
    ACT = "act"
    REFLECT = "reflect"
    COMPACT = "compact"
    """Old notes are taken together in facts, so that the prompt stays bounded."""


class Verdict(StrEnum):
    """How a reflection ends."""

    CONTINUE = "continue"
    DONE = "done"
    REFRAME = "reframe"
    ESCALATE = "escalate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """The goal as a bounded objective (RFC-95): one sentence, and 3-7 items that can each be checked."""

    goal_statement: str
    definition_of_done: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    hypothesis: str | None = None

    def flaws(self) -> tuple[str, ...]:
        flaws = []
        if not self.goal_statement.strip():
            flaws.append("goal_statement is blank")
        if not MIN_DONE_ITEMS <= len(self.definition_of_done) <= MAX_DONE_ITEMS:
            flaws.append(f"definition_of_done needs {MIN_DONE_ITEMS} to {MAX_DONE_ITEMS} items")
        if any(not item.strip() for item in self.definition_of_done):
            flaws.append("an item of definition_of_done is blank")
        return tuple(flaws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One tool call: the only binding part of a plan."""

    tool: str
    command: str
    arguments: dict[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A short outline (advisory) and exactly one next action (RFC-95)."""

    action: Action
    outline: tuple[str, ...] = ()
    expected_outcome: str = ""
    risk: str = ""
    rationale: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """A done-item that is now met. Evidence is `step:<n>` of a finished step or the path of an artifact of the run."""

    item: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflection:
    """What the last result means. `outcome` is the final summary when the verdict is done."""

    verdict: Verdict
    summary: str
    met: tuple[Met, ...] = ()
    facts: tuple[str, ...] = ()
    outline: tuple[str, ...] | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """All that is worth keeping of what was learned so far; it takes the place of the facts and of the older notes."""

    memory: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The model, or its provider, will not answer. `category` is the provider's word for why."""

    category: str
    explanation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A reply that is no valid decision, with what is wrong and the beginning of what came.

    `cut`: it ended because it reached the most tokens that a reply may have.
    """

    reason: str
    raw: str = ""
    cut: bool = False


Decision = Framing | Plan | Reflection | Digest | Refusal | Unusable
