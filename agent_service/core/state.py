"""The state of one run: the fold of its journal, as immutable values, without slots where `replace` has to be quick."""

from dataclasses import field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Literal

from pydantic import JsonValue

from agent_service.core.brief import Brief, Spent
from agent_service.core.facts import Decided, DecisionStatus, Fact, Ruled
from agent_service.core.phases import Framing, Next, Plan, Proof, Reflection
from agent_service.core.waiting import (
    Acting,
    Ask,
    CallReserve,
    Ended,
    NeedsPerson,
    OpenCall,
    Pending,
    RequestRef,
    Sleeping,
    Status,
    Stop,
    TaskResult,
    Thinking,
    Waiting,
    acting_of,
)
from agent_service.sentences import Text
from schemas.values import dataclass, replace

_NEVER, _DUE_AT = datetime.max.replace(tzinfo=UTC), attrgetter("due_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem:
    """An item of the definition of done. `proof` is None where any evidence counts. `quotes`: one per `evidence`."""

    id: str
    text: str
    evidence: tuple[str, ...] = ()
    proof: Proof | None = None
    quotes: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return bool(self.evidence)


@dataclass(frozen=True, kw_only=True)
class StepSummary:
    """`status` is `budget` where the tool asked for more tasks than a step may have."""

    step: int
    tool: str
    command: str
    status: Literal["ok", "error", "budget"]
    summary: str


@dataclass(frozen=True, kw_only=True)
class StepRecord(StepSummary):
    """`call` is a hash of the action, `outcome` of its result. `seconds`: of the last attempt. `sent`: arguments of a
    successful write, which a claim may quote.
    """

    attempt: int
    call: str
    outcome: str
    seconds: float = 0.0
    sent: dict[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A write with an unknown outcome. It blocks writes of its tool until a read of that tool succeeds."""

    step: int
    tool: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Child(RequestRef):
    """A run started as a step, or as a task of a step."""

    run_id: str


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """A JSON object, or its beginning with `missing` characters cut off."""

    value: dict[str, JsonValue]
    missing: int = 0


@dataclass(frozen=True, kw_only=True)
class StepNote:
    """`asked`: tasks before the answer. Only the first step of a plan has `reflection`, `rationale` and `expected`."""

    kind: Literal["step"] = "step"
    step: int
    tool: str
    command: str
    status: Literal["ok", "error", "budget"]
    arguments: Excerpt
    output: Excerpt
    asked: tuple[str, ...] = ()
    reflection: Reflection | None = None
    rationale: str = ""
    expected: str = ""
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class MessageNote:
    """`answers`: the question, or the reason of the stop, that it answers."""

    kind: Literal["message"] = "message"
    said: str
    missing: int = 0
    answers: str = ""
    untrusted: bool = False


@dataclass(frozen=True, kw_only=True)
class RulingNote:
    """A decision about a call with its arguments, or about a framing."""

    kind: Literal["ruling"] = "ruling"
    verdict: str
    call: str = ""
    arguments: Excerpt | None = None
    task: str = ""
    framing: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class MemoryNote:
    """Replaces older notes. `older`: the newest of their steps."""

    kind: Literal["memory"] = "memory"
    facts: tuple[str, ...]
    older: tuple[StepSummary, ...] = ()
    size: int = 0


Note = StepNote | MessageNote | RulingNote | MemoryNote


@dataclass(frozen=True, kw_only=True)
class RunState:
    """`version` is the number of the last journal entry.

    `words` counts messages, answers and reasons of people, `shown` those in the prompt of the newest reply.

    The verifier looks at `claim`, a reflection that says `done`, or at `proposed`, a framing. `first_choice` came along
    with a framing that waits for a verifier or a person, and is taken up if they allow it.

    `measured`: by model, bytes of the longest prompt so far and its tokens by the provider's count. `dearest_token`: in
    USD. `replies`: the provider's id of the newest reply by schema hash, to ask why a cache was missed.
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
    original: Framing | None = None
    done_items: tuple[ChecklistItem, ...] = ()
    plan: Plan | None = None
    outline: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    words: int = 0
    shown: int = 0
    tainted_by: Text = ""
    """First source of untrusted content, such as `step 2 (fetch)`; empty while there is none."""
    refusals: tuple[Text, ...] = ()
    claim: Reflection | None = None
    proposed: Framing | None = None
    first_choice: Next | None = None
    unverified: int = 0
    rulings: tuple[Ruled, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    questions: int = 0
    waits: int = 0
    """Since the newest step."""
    waited_at_step: int = 0
    """The newest step at the last wait: repetitions are counted from there."""
    reopened: int = 0
    measured: dict[str, tuple[int, int]] = field(default_factory=dict)
    longest_reply: int = 0
    dearest_token: float = 0.0
    calls: int = 0
    step: int = 0
    attempts: int = 0
    completed: tuple[StepRecord, ...] = ()
    notes: tuple[Note, ...] = ()
    reflection: Reflection | None = None
    replies: dict[str, str] = field(default_factory=dict)
    evidence: tuple[TaskResult, ...] = ()
    last_output: dict[str, JsonValue] | None = None
    """Result or error of the step that finished last."""
    artifacts: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    """Calls whose results came after the end."""
    places: tuple[str, ...] = ()
    """Stream positions of results that named no attempt; empty once no request is out."""
    children: tuple[Child, ...] = ()
    signals: tuple[str, ...] = ()
    stood_until: datetime | None = None
    """Instant at which the last stop of all runs ended."""
    reframes: int = 0
    refused_done: int = 0
    spent: Spent = field(default_factory=Spent)
    summary: Text = ""
    happened: tuple[Fact, ...] = ()
    """Facts of the event in hand. Empty once it is decided: the entry keeps them."""

    @property
    def status(self) -> Status:
        return self.waiting.status

    @property
    def final(self) -> bool:
        return isinstance(self.waiting, Ended)

    @property
    def open_call(self) -> OpenCall | None:
        waiting = self.waiting
        now = waiting.held if isinstance(waiting, NeedsPerson) else waiting
        return now.asking if isinstance(now, Thinking) else None

    @property
    def active_call(self) -> OpenCall | None:
        """The open call, unless it waits for a retry or for a person."""
        waiting = self.waiting
        return waiting.asking if isinstance(waiting, Thinking) and waiting.retry_at is None else None

    @property
    def pending(self) -> Pending | None:
        return next(iter(acting_of(self.waiting).pendings), None)

    @property
    def pendings(self) -> tuple[Pending, ...]:
        return acting_of(self.waiting).pendings

    @property
    def sent(self) -> tuple[Pending, ...]:
        return tuple([pending for pending in self.pendings if pending.retry_at is None])

    @property
    def reserve(self) -> CallReserve | None:
        return self.waiting.reserve if isinstance(self.waiting, Thinking) else None

    @property
    def effective_deadline(self) -> datetime:
        """Unless the caller named it, it stands still while a call is held for money, or a child is in flight, whose
        end says how long people were waited for.
        """
        waiting, limits = self.waiting, self.brief.limits
        stands_still = isinstance(waiting, Thinking) and waiting.still_since is not None
        if not stands_still and self.brief.depth < limits.max_depth:
            stands_still = any(one.grant for one in self.pendings)
        return _NEVER if stands_still and not limits.deadline_named else limits.deadline_at

    @property
    def due_at(self) -> datetime | None:
        match self.waiting:
            case Ended():
                return None
            case NeedsPerson(expires_at=at):
                limits = self.brief.limits
                return min(at, limits.deadline_at) if at and limits.deadline_named else at
            case Sleeping(until=at) | Thinking(retry_at=datetime() as at):
                return min(self.effective_deadline, at)
            case Acting(timed=timed):
                due: datetime = min([self.effective_deadline, *map(_DUE_AT, timed)])
                return due
        return self.effective_deadline

    @property
    def ask(self) -> Ask | None:
        return self.waiting.ask if isinstance(self.waiting, NeedsPerson) else None

    @property
    def stop(self) -> Stop | None:
        match self.waiting:
            case Ended(stop=stop) | NeedsPerson(ask=Stop() as stop):
                return stop
        return None

    @property
    def reason(self) -> Text:
        stop = self.stop
        return stop.reason if stop else ""

    @property
    def ending_class(self) -> str:
        stop = self.stop
        return stop.ending_class if stop else ""

    @property
    def ended_at(self) -> datetime | None:
        return self.waiting.at if isinstance(self.waiting, Ended) else None

    @property
    def reopens_until(self) -> datetime | None:
        """None if no person's answer can reopen the run."""
        ended_at = self.ended_at
        if ended_at is None or self.status is not Status.ESCALATED:
            return None
        return ended_at + timedelta(days=self.brief.limits.reopen_days)

    def has_finished(self, step: int) -> bool:
        return step in [record.step for record in self.completed]


def with_facts(state: RunState, *facts: Fact, **changed: Any) -> RunState:
    return replace(state, happened=(*state.happened, *facts), **changed)


def with_decision_status(
    state: RunState, status: DecisionStatus, error_class: str = "", why: tuple[Text, ...] = ()
) -> RunState:
    """Sets the status of the newest decision of this event; `ok` is for the plan that came along."""
    facts = [*state.happened]
    for place, fact in reversed([*enumerate(facts)]):
        if isinstance(fact, Decided) and (fact.status == "ignored") is (status == "ok"):
            facts[place] = replace(fact, status=status, error_class=error_class, why=why)
            return replace(state, happened=tuple(facts))
    return state
