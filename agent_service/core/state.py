"""The state of one run: the fold of its journal. Every change makes a new value.

A turn replaces the state about ten times. `replace` is quick for values with a `__dict__`, so these have no slots.
"""

from dataclasses import field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import JsonValue

from agent_service.core.brief import Brief, Spent
from agent_service.core.facts import Decided, DecisionStatus, Fact
from agent_service.core.phases import Framing, Next, Plan, Proof, Reflection
from agent_service.core.waiting import (
    Acting,
    Approval,
    CallReserve,
    Ended,
    Graph,
    NeedsPerson,
    OpenCall,
    Pending,
    Question,
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

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecklistItem:
    """`proof`: the kind of evidence that shows it; None for any. `quotes`: one for each `evidence`, or empty."""

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
    """`status`: `budget` where the tool asked for more than a step may gather."""

    step: int
    tool: str
    command: str
    status: Literal["ok", "error", "budget"]
    summary: str


@dataclass(frozen=True, kw_only=True)
class StepRecord(StepSummary):
    """`call` is the same for the same action, `outcome` for the same result of it. `seconds`: from the request to the
    result of its last attempt. `sent`: the arguments of a write that ended ok, which may be quoted too.
    """

    attempt: int
    call: str
    outcome: str
    seconds: float = 0.0
    sent: dict[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A decision about what needed approval. `subject_hash`: of tool, command and arguments, or of the framing. `by`:
    empty where it expired. `step`: the one that it allowed, or 0. `words`: the count of people's words; a refusal stays
    until there are more.
    """

    subject_hash: str
    verdict: Literal["approved", "rejected", "expired"]
    by: str
    reason: Text = ""
    step: int = 0
    words: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A write with an unknown outcome. Before a read of its tool is looked at, no write of that tool is made."""

    step: int
    tool: str
    call: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Child(RequestRef):
    """A run started as a step, or as a task of it."""

    run_id: str


@dataclass(frozen=True, kw_only=True)
class Excerpt:
    """A JSON object, or its beginning. `missing`: characters that were cut off."""

    value: dict[str, JsonValue]
    missing: int = 0


@dataclass(frozen=True, kw_only=True)
class TaskSummary:
    """A sub-request whose result the tool asked for before it answered its step."""

    task: str
    what: str
    status: str


@dataclass(frozen=True, kw_only=True)
class StepNote:
    """`reflection`, `rationale` and `expected` led to the whole plan: the note of its first step has them."""

    kind: Literal["step"] = "step"
    step: int
    tool: str
    command: str
    status: Literal["ok", "error", "budget"]
    arguments: Excerpt
    output: Excerpt
    asked: tuple[TaskSummary, ...] = ()
    reflection: Reflection | None = None
    rationale: str = ""
    expected: str = ""
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class MessageNote:
    """`answers`: the question, in the run's words. `untrusted`: the words are a stranger's."""

    kind: Literal["message"] = "message"
    said: str
    missing: int = 0
    answers: str = ""
    untrusted: bool = False


@dataclass(frozen=True, kw_only=True)
class RulingNote:
    """A decision about a call with its arguments, or about a framing. `task`: the sub-request that makes the call."""

    kind: Literal["ruling"] = "ruling"
    verdict: str
    call: str = ""
    arguments: Excerpt | None = None
    task: str = ""
    framing: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class MemoryNote:
    """Takes the place of older notes. `older`: the newest of their steps."""

    kind: Literal["memory"] = "memory"
    facts: tuple[str, ...]
    older: tuple[StepSummary, ...] = ()
    size: int = 0


Note = StepNote | MessageNote | RulingNote | MemoryNote


@dataclass(frozen=True, kw_only=True)
class RunState:
    """`version` is the number of the last journal entry.

    Words of people are messages, answers and reasons of rulings. `words` counts them, `shown` those that the prompt of
    the newest reply told of.

    `claim` is the reflection that is verified: it says `done`, or reframes. `proposed` is the framing that is verified.
    `first_choice` came along with a framing that a verifier or a person looks at, and is taken up if they allow it.

    `measured`: bytes of the longest prompt so far and the tokens it was counted as, by model. `dearest_token`: in USD.
    `replies`: the provider's name of the newest reply, by the hash of its schema: to ask why a cache was missed.
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
    """Where untrusted content came in first, such as `step 2 (fetch)`; empty while there is none."""
    refusals: tuple[Text, ...] = ()
    claim: Reflection | None = None
    proposed: Framing | None = None
    first_choice: Next | None = None
    unverified: int = 0
    rulings: tuple[Ruling, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    questions: int = 0
    waits: int = 0
    """Since the newest step."""
    waited_at_step: int = 0
    """The newest step at the last wait: later steps repeat nothing before it."""
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
    """Of the step that finished last: the result object, or the error."""
    artifacts: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    """Calls whose results came after the end."""
    places: tuple[str, ...] = ()
    """Places in the stream of messages that answered without naming what; empty once nothing is out."""
    children: tuple[Child, ...] = ()
    signals: tuple[str, ...] = ()
    stood_until: datetime | None = None
    """When it went on after the last stop of everything."""
    reframes: int = 0
    refused_done: int = 0
    spent: Spent = field(default_factory=Spent)
    summary: Text = ""
    happened: tuple[Fact, ...] = ()
    """What the event that is decided has led to so far. Empty once it is decided: the entry keeps it."""

    @property
    def status(self) -> Status:
        return self.waiting.status

    @property
    def final(self) -> bool:
        return isinstance(self.waiting, Ended)

    @property
    def asking(self) -> OpenCall | None:
        waiting = self.waiting
        now = waiting.held if isinstance(waiting, NeedsPerson) else waiting
        return now.asking if isinstance(now, Thinking) else None

    @property
    def calling(self) -> OpenCall | None:
        """The model call that is made now."""
        waiting = self.waiting
        return waiting.asking if isinstance(waiting, Thinking) and waiting.retry_at is None else None

    @property
    def pending(self) -> Pending | None:
        return next(iter(self.pendings), None)

    @property
    def pendings(self) -> tuple[Pending, ...]:
        return acting_of(self.waiting).pendings

    @property
    def requests(self) -> tuple[Pending, ...]:
        """Also those that wait for their turn, or for what they asked for."""
        return acting_of(self.waiting).requests

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return acting_of(self.waiting).graphs

    @property
    def sent(self) -> tuple[Pending, ...]:
        """Requests that are out."""
        return tuple([pending for pending in self.pendings if pending.retry_at is None])

    @property
    def reserve(self) -> CallReserve | None:
        return self.waiting.reserve if isinstance(self.waiting, Thinking) else None

    @property
    def over_at(self) -> datetime:
        """The deadline. Unless the caller named it, none while a call is held for money or a child is in flight, whose
        end tells how long people were waited for.
        """
        limits, waiting = self.brief.limits, self.waiting
        if limits.deadline_named:
            return limits.deadline_at
        held = waiting.still_since if isinstance(waiting, Thinking) else any(one.grant for one in self.pendings)
        return _NEVER if held else limits.deadline_at

    @property
    def due_at(self) -> datetime | None:
        match self.waiting:
            case Ended():
                return None
            case NeedsPerson(expires_at=at):
                limits = self.brief.limits
                return min(at, limits.deadline_at) if at and limits.deadline_named else at
            case Sleeping(until=at) | Thinking(retry_at=datetime() as at):
                return min(self.over_at, at)
            case Acting(timed=timed):
                return min(self.over_at, *[one.due_at for one in timed])
        return self.over_at

    @property
    def ask(self) -> Approval | Question | Stop | None:
        """What a person is waited for to say."""
        return self.waiting.ask if isinstance(self.waiting, NeedsPerson) else None

    @property
    def stop(self) -> Stop | None:
        stop = self.waiting.stop if isinstance(self.waiting, Ended) else self.ask
        return stop if isinstance(stop, Stop) else None

    @property
    def reason(self) -> Text:
        return self.stop.reason if self.stop else ""

    @property
    def ending_class(self) -> str:
        return self.stop.ending_class if self.stop else ""

    @property
    def ended_at(self) -> datetime | None:
        return self.waiting.at if isinstance(self.waiting, Ended) else None

    @property
    def outcome(self) -> Text:
        return self.reason if self.status is Status.DONE else ""

    def has_finished(self, step: int) -> bool:
        return step in [record.step for record in self.completed]


def with_facts(state: RunState, *facts: Fact, **changed: Any) -> RunState:
    """With these facts, and other fields `changed`."""
    return replace(state, happened=(*state.happened, *facts), **changed)


def with_decision_status(
    state: RunState, status: DecisionStatus, error_class: str = "", why: tuple[Text, ...] = ()
) -> RunState:
    """What became of the newest decision in hand: `ok` of one that came along, and was `ignored` so far."""
    happened = list(state.happened)
    for place in range(len(happened) - 1, -1, -1):
        fact = happened[place]
        if isinstance(fact, Decided) and (fact.status == "ignored") is (status == "ok"):
            happened[place] = replace(fact, status=status, error_class=error_class, why=why)
            return replace(state, happened=tuple(happened))
    return state
