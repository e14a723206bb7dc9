"""`dataclasses.replace`, at a tenth of its cost for a value that has a `__dict__`.

A turn replaces the state of a run about ten times, and `dataclasses.replace` walks through all of its forty fields in
Python each time: it was a quarter of the CPU of a turn. To the type checker this is `dataclasses.replace` itself, so
that names and types of the changes stay checked.

What is known of one run: the fold of its journal. Frozen; every change makes a new value.
"""

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import JsonValue

from agent_service.core.brief import Brief
from agent_service.core.phases import Framing, Plan, Proof, Reflection
from agent_service.core.tools.attempts import Evidence, Pending
from agent_service.core.waiting import (
    Asking,
    Ended,
    ForAnswer,
    ForApproval,
    ForEvidence,
    ForModel,
    ForPerson,
    ForReads,
    ForTime,
    ForTool,
    ModelRetry,
    Reserve,
    Status,
    Stop,
    ToolRetry,
    Waiting,
    pendings_of,
    steps_of,
    under_way,
)

if TYPE_CHECKING:
    from dataclasses import replace as replace
else:
    T = TypeVar("T")

    def replace(value: T, /, **changes: Any) -> T:
        """A copy of a frozen dataclass with `changes`. Raises TypeError for a field that it does not have."""
        fields = getattr(value, "__dict__", None)
        if fields is None:
            return dataclasses.replace(value, **changes)
        if not changes.keys() <= fields.keys():
            raise TypeError(f"{type(value).__name__} has no field {', '.join(changes.keys() - fields.keys())}")
        copy = object.__new__(type(value))
        copy.__dict__.update(fields, **changes)
        return copy


_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneItem:
    """One checkable item of the definition of done.

    `proof`: the kind of evidence that shows it; None where any does. `quotes`: the words that show it, one for each
    `evidence`, empty where none were asked for.
    """

    id: str
    text: str
    evidence: tuple[str, ...] = ()
    proof: Proof | None = None
    quotes: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return bool(self.evidence)


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
    status: Literal["ok", "error", "budget"]
    """`budget`: what the tool asked for went beyond what a step may gather."""
    summary: str
    call: str
    outcome: str
    seconds: float = 0.0
    """From the request to the result of its last attempt."""
    sent: dict[str, JsonValue] | None = None
    """The arguments of a write that ended ok, which may be quoted as well as its result: the program has sent them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What was decided about something that needed approval. `subject_hash`: of tool, command and arguments, or of the
    framing.

    `by`: who decided, as in SignalReceived; empty where nobody did in time. `step`: the one that it allowed, or 0.
    `heard`: of how many words of people it was the last; what was refused stays so until they say more.
    """

    subject_hash: str
    verdict: Literal["approved", "rejected", "expired"]
    by: str
    reason: str = ""
    step: int = 0
    heard: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A write of which it is not known whether it was carried out. `call` names it, as in StepRecord.

    It may not be repeated, nor may another write of the tool be made, before a read of the same tool was looked at.
    """

    step: int
    tool: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A run that was started as a step, or as a task of it, in a round (empty and 0 otherwise)."""

    run_id: str
    step: int
    task: str = ""
    round: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LastResult:
    """The newest tool result, for the next reflection. `output` is the result object, or the error."""

    step: int
    status: Literal["ok", "error", "budget"]
    output: dict[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Counted from the model's own reports. `cost_usd` is null as soon as one call's price is unknown.

    `lost_…` is what calls have cost, or perhaps have, that were begun and never answered to the end, because of a
    crash, a cancel, the deadline, a lost connection or silence: it counts against the limits.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    cache_read_tokens: int = 0
    lost_calls: int = 0
    lost_tokens: int = 0
    lost_cost_usd: float | None = 0.0
    child_steps: int = 0
    """Steps of children, which count as the run's own. All else is counted with what children spent."""

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
    waiting: Waiting
    version: int
    accepted_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    framing: Framing | None = None
    done_items: tuple[DoneItem, ...] = ()
    plan: Plan | None = None
    outline: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    """What people told the run while it ran."""
    heard: int = 0
    """How many times people told it something: messages, answers, reasons of rulings."""
    shown: int = 0
    """How many of these the prompt of the newest reply told of."""
    strangers: str = ""
    """Where content of strangers came in first, such as `step 2 (fetch)`; empty while there is none."""
    refusals: tuple[str, ...] = ()
    """What was refused of the newest decision, to be told with the next question."""
    claim: Reflection | None = None
    """The reflection that said `done`, or reframes, while somebody else looks whether that holds."""
    proposed: Framing | None = None
    """A reframe that is looked at, or waits for approval."""
    original: Framing | None = None
    """The first framing, once the goal was framed anew: its constraints stay in force."""
    unverified: int = 0
    """How often a verification refused what the model claimed."""
    rulings: tuple[Ruling, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    questions: int = 0
    """Questions asked of people."""
    waits: int = 0
    """How many times it waited since the newest step."""
    waited_at_step: int = 0
    """The newest step when the run last waited: what came before it is no repetition of what comes after."""
    reopened: int = 0
    """How often an answer set it going again."""
    measured: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes of the longest prompt so far and the tokens it was counted as, by model."""
    longest_reply: int = 0
    """Tokens of the longest reply so far."""
    dearest_token: float = 0.0
    """What a token cost in the dearest call so far, in USD; 0 where no price is known."""
    calls: int = 0
    """The number of the newest model call."""
    step: int = 0
    """The number of the newest step."""
    attempts: int = 0
    """Tool requests sent, of all steps."""
    completed: tuple[StepRecord, ...] = ()
    notes: tuple[Note, ...] = ()
    """What a prompt shows of past steps and of what people said (see `notes`)."""
    reflection: Reflection | None = None
    """The newest one, until the note of the next step holds it."""
    replies: dict[str, str] = field(default_factory=dict)
    """The provider's name of the newest reply, by the hash of its schema: to ask why a cache was missed."""
    evidence: tuple[Evidence, ...] = ()
    """What came of the tasks of steps that gather; empty while none does."""
    last_result: LastResult | None = None
    artifacts: tuple[str, ...] = ()
    late: tuple[tuple[int, int], ...] = ()
    """Step and attempt of results that came after the end."""
    late_tasks: tuple[str, ...] = ()
    """The same of sub-requests, by the names of their calls."""
    children: tuple[Child, ...] = ()
    """The runs that it started as its steps, in their order."""
    given_up: tuple[Pending, ...] = ()
    """Those of them that are waited for no more, and have not told yet what they spent."""
    signals: tuple[str, ...] = ()
    """Ids of the newest signals, so that one that is delivered again is not heard again."""
    stood_until: datetime | None = None
    """When it went on last after everything was stopped; null where that never was."""
    reframes: int = 0
    refused_done: int = 0
    """How often the model claimed to be done without proof."""
    spent: Spent = Spent()
    summary: str = ""
    """What happened last, in a line for people."""

    @property
    def status(self) -> Status:
        return self.waiting.status

    @property
    def final(self) -> bool:
        return isinstance(self.waiting, Ended)

    @property
    def asking(self) -> Asking | None:
        match under_way(self.waiting):
            case ForModel(asking=asking) | ModelRetry(asking=asking):
                return asking
        return None

    @property
    def pending(self) -> Pending | None:
        return next(iter(self.pendings), None)

    @property
    def pendings(self) -> tuple[Pending, ...]:
        return pendings_of(under_way(self.waiting))

    @property
    def reserve(self) -> Reserve | None:
        waiting = under_way(self.waiting)
        return waiting.reserve if isinstance(waiting, ForModel) else None

    @property
    def retry_at(self) -> datetime | None:
        waiting = under_way(self.waiting)
        return waiting.retry_at if isinstance(waiting, ModelRetry | ToolRetry) else None

    @property
    def over_at(self) -> datetime:
        """When its time is over. Unless the caller named the deadline, not while a call is held for want of money, nor
        while a child is under way: for the child it stands still while people are waited for, and its end, which always
        comes, tells until when."""
        brief, waiting = self.brief, self.waiting
        if brief.limits.deadline_named:
            return brief.limits.deadline_at
        is_held = isinstance(waiting, ModelRetry) and waiting.still_since is not None
        by_a_child = brief.may_have_children and any(pending.grant for pending in self.pendings)
        return _NEVER if is_held or by_a_child else brief.limits.deadline_at

    @property
    def due_at(self) -> datetime | None:
        deadline = self.over_at
        match self.waiting:
            case ForPerson() | Ended():
                return None
            case ForApproval(expires_at=at) | ForAnswer(expires_at=at):
                return at
            case ForTime(until=at):
                return min(deadline, at)
            case ForReads(flights=flights):
                return min(deadline, *(flight.retry_at or flight.pending.deadline_at for flight in flights))
            case ForEvidence(flights=flights) as gathers:
                ends = (gathering.until for gathering in gathers.ticking)
                return min(deadline, *ends, *(flight.retry_at or flight.pending.deadline_at for flight in flights))
            case ForTool(pending=Pending(deadline_at=at)) | ToolRetry(retry_at=at) | ModelRetry(retry_at=at):
                return min(deadline, at)
        return deadline

    @property
    def stop(self) -> Stop | None:
        return self.waiting.stop if isinstance(self.waiting, ForPerson | Ended) else None

    @property
    def reason(self) -> str:
        return self.stop.reason if self.stop else ""

    @property
    def ending_class(self) -> str:
        return self.stop.ending_class if self.stop else ""

    @property
    def ended_at(self) -> datetime | None:
        return self.waiting.at if isinstance(self.waiting, Ended) else None

    @property
    def outcome(self) -> str:
        return self.reason if self.status is Status.DONE else ""

    @property
    def open_steps(self) -> tuple[int, ...]:
        return tuple(step for step in steps_of(under_way(self.waiting)) if not self.has_finished(step))

    def has_finished(self, step: int) -> bool:
        return any(record.step == step for record in self.completed)
