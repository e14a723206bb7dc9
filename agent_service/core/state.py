"""What is known of one run: the fold of its journal. Frozen; every change makes a new value.

`Brief` holds what does not change from step to step (goal, context, limits, skills), so that a store can keep it apart
from the small part that is written with every entry.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import JsonValue

from agent_service.core.phases import Action, Framing, Phase, Plan, Reflection
from schemas.catalog import ToolCommand, ToolOffer


class Status(StrEnum):
    """Where a run stands. The last four are final: nothing follows them."""

    QUEUED = "queued"
    """Accepted and durable; not yet begun."""
    RUNNING = "running"
    """Thinking, or waiting for a tool or a timer."""
    PAUSED = "paused"
    """Waiting for a person: a spent budget under `on_budget: pause`, or a model that will not answer for long."""
    DONE = "done"
    ESCALATED = "escalated"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({Status.DONE, Status.ESCALATED, Status.FAILED, Status.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a run may spend. Instants are UTC, `_s` is seconds; null means no limit."""

    deadline_at: datetime
    max_steps: int = 10
    max_reframes: int = 2
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_attempts: int = 3
    """Attempts of one step."""
    max_attempts_of_run: int = 40
    max_repairs: int = 2
    """Unusable decisions of one phase that are asked for again."""
    max_refused_done: int = 3
    max_depth: int = 0
    on_budget: Literal["escalate", "pause"] = "escalate"
    max_notes: int = 48_000
    """How long the notes of a run may grow, in characters, before they are compacted into facts."""
    queue_wait_s: float = 240.0
    """How long a tool request may wait before the tool begins."""
    retry_base_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What a run was asked and given."""

    goal: str
    context: dict[str, JsonValue]
    limits: Limits
    fused: bool = True
    """One model call serves Frame or Reflect, and Plan along with it."""
    depth: int = 0
    """How many agents called each other to get here."""
    callback: str | None = None
    announced: bool = True
    """It came by the wake API, and `agentic.start` says so to others."""
    trace_url: str | None = None
    """Where the run's trace is shown."""
    skills: tuple[ToolOffer, ...] = ()
    """Frozen when the run is framed."""

    def skill(self, tool: str) -> ToolOffer | None:
        return next((skill for skill in self.skills if skill.name == tool), None)

    def command(self, action: Action) -> ToolCommand | None:
        skill = self.skill(action.tool)
        return next((c for c in skill.commands if c.name == action.command), None) if skill else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneItem:
    """One checkable item of the definition of done."""

    id: str
    text: str
    evidence: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return bool(self.evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """The attempt whose result the run waits for; with `retry_at` set, the attempt that waits to be sent."""

    step: int
    attempt: int
    action: Action
    route: str
    requested_at: datetime
    deadline_at: datetime
    retry_at: datetime | None = None
    heard: tuple[str, ...] = ()
    """Places of the messages that answered earlier attempts without naming them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """The most that a model call may spend. `cost_usd` is null when the price is unknown."""

    tokens: int
    cost_usd: float | None
    reply_tokens: int = 0
    """The part of `tokens` that the reply may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The model call whose reply the run waits for. `call` counts from 1 and is the call's identity."""

    call: int
    phase: Phase
    feedback: tuple[str, ...] = ()
    """What the model must be told: why its last decision was refused."""
    rejected: str = ""
    """The beginning of the reply that could not be used."""
    longer: bool = False
    """The last reply was cut at its limit: this one may be longer."""
    repairs: int = 0
    tries: int = 0
    """How often the model was not to be had."""
    retry_at: datetime | None = None
    reserve: Reserve | None = None
    """Set aside for the call that is being made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One block of the prompt, rendered once and kept as it is, so that a provider's cache knows it again.

    `step`: what one step did and brought. `person`: what somebody told the run. `memory`: older notes, compacted.
    """

    kind: Literal["step", "person", "memory"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """A finished step. `call` is the same for the same action, `outcome` for the same result of it."""

    step: int
    tool: str
    command: str
    attempt: int
    status: Literal["ok", "error"]
    summary: str
    call: str
    outcome: str
    seconds: float = 0.0
    """From the request to the result of its last attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastResult:
    """The newest tool result, for the next reflection. `output` is the result object, or the error."""

    step: int
    status: Literal["ok", "error"]
    output: dict[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Counted from the model's own reports. `cost_usd` is null as soon as one call's price is unknown.

    `lost_…` is what was set aside for calls that were begun and never answered, because of a crash, a cancel or the
    deadline: perhaps paid, so it counts against the limits.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    cache_read_tokens: int = 0
    lost_calls: int = 0
    lost_tokens: int = 0
    lost_cost_usd: float | None = 0.0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, kw_only=True)
class RunState:
    """One run. `version` is the sequence number of the last journal entry.

    Without slots, so that a changed copy is one copy of a dict (see `replacing`).
    """

    run_id: str
    wake_id: str
    brief: Brief
    status: Status
    version: int
    accepted_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    framing: Framing | None = None
    done_items: tuple[DoneItem, ...] = ()
    plan: Plan | None = None
    outline: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    """What people told the run while it ran."""
    asking: Asking | None = None
    pending: Pending | None = None
    calls: int = 0
    step: int = 0
    attempts: int = 0
    completed: tuple[StepRecord, ...] = ()
    notes: tuple[Note, ...] = ()
    reflection: Reflection | None = None
    """The newest one, until the note of the next step holds it."""
    replies: dict[str, str] = field(default_factory=dict)
    """The provider's name of the newest reply, by the hash of its schema: to ask why a cache was missed."""
    last_result: LastResult | None = None
    artifacts: tuple[str, ...] = ()
    late: tuple[tuple[int, int], ...] = ()
    """Step and attempt of results that came after the end."""
    signals: tuple[str, ...] = ()
    reframes: int = 0
    refused_done: int = 0
    spent: Spent = Spent()
    summary: str = ""
    reason: str = ""
    """Why the run ended or pauses."""
    ending_class: str = ""
    ending_seq: int = 0
    """The entry that ended or paused the run."""
    outcome: str = ""

    @property
    def final(self) -> bool:
        return self.status in FINAL

    @property
    def due_at(self) -> datetime | None:
        """When something falls due without any message: the run's only timer, stored with the state."""
        if self.final or self.status is Status.PAUSED:
            return None
        instants = [self.brief.limits.deadline_at]
        if self.pending:
            instants.append(self.pending.retry_at or self.pending.deadline_at)
        if self.asking and self.asking.retry_at:
            instants.append(self.asking.retry_at)
        return min(instants)

    def has_finished(self, step: int) -> bool:
        return any(record.step == step for record in self.completed)
