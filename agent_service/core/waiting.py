"""What a run waits for: its named states, one at a time, each with exactly the data to leave it.

The table in `decide` moves them; timers, views and repeated messages read them by `match`. What a state owes to the
bus is said again under the same message ids. In every state but the last `CancelRequested` and `TurnBroke` end the
run, and its deadline (`TimerFired`) ends or pauses it; `StoodStill` moves its deadlines, unless it waits for a person.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from agent_service.core.brief import Spent
from agent_service.core.phases import Ask, Framing, Phase, Plan
from agent_service.core.tools.attempts import Flight, Gathering, Pending
from schemas.events import ToolResult


class Status(StrEnum):
    """In the words that callers are told. The last four are final."""

    QUEUED = "queued"
    """Accepted and durable; not yet begun."""
    RUNNING = "running"
    """Thinking, or waiting for a tool or a timer."""
    PAUSED = "paused"
    """Waiting for a person: an approval, an answer, a spent budget under `on_budget: pause`, or a model that will not
    answer for long."""
    DONE = "done"
    ESCALATED = "escalated"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({Status.DONE, Status.ESCALATED, Status.FAILED, Status.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """The most that a model call may spend. `cost_usd` is null when the price is unknown. `if_lost`: tokens and USD
    that count when its reply is lost (its prompt, and a reply longer than any so far). Null: it counts in full.
    """

    tokens: int
    cost_usd: float | None
    reply_tokens: int = 0
    if_lost: tuple[int, float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """`call` counts from 1 and is the call's identity."""

    call: int
    phase: Phase
    feedback: tuple[str, ...] = ()
    """Why its last decision was refused, and what a person ruled."""
    flaws: tuple[str, ...] = ()
    rejected: str = ""
    longer: bool = False
    repairs: int = 0
    tries: int = 0
    silences: int = 0

    @property
    def told(self) -> tuple[str, ...]:
        return *self.feedback, *self.flaws


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """`ending_class` is the word for it, `entry` the number of the entry that did it."""

    ending_class: str
    reason: str
    entry: int
    spent: Spent
    """By then, with all that children who had not told yet might spend: what they tell later changes no ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Waits for its turn to be started.

    Came here: a wake was accepted (`WakeAccepted`) and is durable.
    Owed to the bus: `agentic.start`, for others to see, if the wake came by the wake API.
    Moved by: `RunStarted`, with the tools it may use: the model is asked for a framing. A result (`ToolReturned`)
        breaks the protocol, for nothing was asked.
    """

    kind: Literal["queued"] = "queued"
    status: ClassVar[Status] = Status.QUEUED


@dataclass(frozen=True, slots=True, kw_only=True)
class ForModel:
    """Waits for the reply to a model call.

    Came here: the run was started, a step finished, a reply called for another question, or the call was put off and is
        made now. `reserve` is what is set aside for it: null until that is committed, and always for a model that costs
        nothing.
    Owed to the bus: nothing. The agent makes the call by itself, and again after a crash.
    Moved by: `CallReserved`, before a call that costs something: it is made, unless it could break a budget.
        `ModelReplied`: the next tool, the next question, or an end. `ModelUnavailable`: later again, with a shorter
        prompt, or not at all. A result (`ToolReturned`) of a step that was never asked for breaks the protocol.
    """

    kind: Literal["for_model"] = "for_model"
    asking: Asking
    reserve: Reserve | None = None
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRetry:
    """Waits for the instant at which the same model call is made again.

    Came here: the model was not to be had: overloaded, a rate limit, no network. Or it was not asked, because what may
        be spent in a day is spent: then its deadline stands still since `still_since`, unless the caller named it.
    Owed to the bus: nothing.
    Moved by: `TimerFired` at `retry_at`, or once more may be spent. An answer to the call (`CallReserved`,
        `ModelReplied`, `ModelUnavailable`) and a result (`ToolReturned`) count as they do while the call is being made.
    """

    kind: Literal["model_retry"] = "model_retry"
    asking: Asking
    retry_at: datetime
    still_since: datetime | None = None
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class ForTool:
    """Waits for the result of an attempt that was sent.

    Came here: a plan was accepted, or the delay before a retry is over.
    Owed to the bus: the `agentic.tool_request` of the attempt.
    Moved by: `ToolReturned`: the model reflects on it, another attempt follows, or a person has to look. `TimerFired`
        when no answer came in time: another attempt where it may be repeated, else the run is in doubt and ends.
    """

    kind: Literal["for_tool"] = "for_tool"
    pending: Pending
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRetry:
    """Waits for the instant at which the next attempt of the same step is sent. `pending` counts it already.

    Came here: an attempt failed or brought no answer in time, and may be repeated.
    Owed to the bus: nothing.
    Moved by: `TimerFired` at `retry_at`. A result (`ToolReturned`) of this attempt breaks the protocol, for it is not
        sent yet; one of an attempt before it is ignored.
    """

    kind: Literal["tool_retry"] = "tool_retry"
    pending: Pending
    retry_at: datetime
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class ForReads:
    """Waits for the results of several reads, each of them sent, or to be sent again at an instant of its own.

    Came here: a plan of several reads was accepted. `flights` are those that are not finished yet, in their order.
    Owed to the bus: the `agentic.tool_request` of each attempt that is sent.
    Moved by: `ToolReturned`, as in ForTool and ToolRetry: the model reflects when the last one is finished.
        `TimerFired`: the next attempt of what is due, or no answer in time.
    """

    kind: Literal["for_reads"] = "for_reads"
    flights: tuple[Flight, ...]
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class ForEvidence:
    """Waits for what a tool asked for before it can answer its step. Others of the same plan may be under way too.

    Came here: the tool of a step answered with a continuation. `flights` are all requests that are sent, or to be sent
        again; what waits for its turn or for the results of others is in `gatherings`, one for each step that gathers.
    Owed to the bus: the `agentic.tool_request` of each attempt that is sent.
    Moved by: `ToolReturned`: what waited for it is sent, the tool is asked again, or the step is finished and the model
        reflects. `TimerFired`: the next attempt of what is due, no answer in time, or the time of a gathering is over.
    """

    kind: Literal["for_evidence"] = "for_evidence"
    flights: tuple[Flight, ...]
    gatherings: tuple[Gathering, ...]
    status: ClassVar[Status] = Status.RUNNING

    @property
    def ticking(self) -> tuple[Gathering, ...]:
        children = {flight.pending.step for flight in self.flights if flight.pending.grant}
        return tuple(one for one in self.gatherings if not one.stopped and one.step not in children)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForTime:
    """Waits for an instant that the model chose. `since` is when it began to.

    Came here: the model waits, because something changes by itself.
    Owed to the bus: nothing.
    Moved by: `TimerFired` at `until`: the model is asked what comes next. `SignalReceived` with what a person says: at
        once. A result (`ToolReturned`) breaks the protocol, for nothing was asked.
    """

    kind: Literal["for_time"] = "for_time"
    until: datetime
    since: datetime
    why: str
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan that was accepted and could not be carried out yet: kept, so that it is not paid for twice.

    Came here: no step was left. Only ever held: in a pause, or in an end that an answer may reopen.
    Owed to the bus: nothing.
    Moved by: nothing by itself. Once it is let go on, the plan is dispatched.
    """

    kind: Literal["planned"] = "planned"
    plan: Plan
    status: ClassVar[Status] = Status.RUNNING


Held = ForModel | ModelRetry | ForTool | ToolRetry | ForReads | ForEvidence | Planned
"""What a run that is under way waits for, and what a pause or an end that can be reopened keeps for later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForApproval:
    """Paused: waits for a person to allow what was planned, or to refuse it.

    `proposal` is a plan whose action needs approval, or a framing that goes beyond the goal. `subject_hash` names it:
    the hash of tool, command and arguments (and of the task, where the same was allowed for another task of the step),
    or of the framing. `entry` is the number of the entry that asked. `held`:
    what goes on once it is decided, where it is about a sub-request of a step, which `task` and `round` name.

    Came here: a plan or a reframe was accepted that needs a person's approval; or a task of a step does, and nothing
        else is under way.
    Owed to the bus: the `agent.waiting` that asks for it.
    Moved by: `SignalReceived`: `approve` of this hash carries it out, `reject` tells the model why not. What a person
        says besides makes the model think anew. `TimerFired` at `expires_at`: by the rule of the run. A result
        (`ToolReturned`) breaks the protocol, for nothing was asked.
    """

    kind: Literal["for_approval"] = "for_approval"
    proposal: Plan | Framing
    subject_hash: str
    reason: str
    since: datetime
    expires_at: datetime
    entry: int
    held: ForEvidence | None = None
    step: int = 0
    task: str = ""
    round: int = 0
    status: ClassVar[Status] = Status.PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class ForAnswer:
    """Paused: waits for a person's answer to a question of the model. `phase` is asked when it is there.

    Came here: the model asked, instead of an action.
    Owed to the bus: the `agent.waiting` that asks.
    Moved by: `SignalReceived` with an answer or a message. `TimerFired` at `expires_at`: nobody answered, the run ends
        and can be reopened. A result (`ToolReturned`) breaks the protocol, for nothing was asked.
    """

    kind: Literal["for_answer"] = "for_answer"
    ask: Ask
    phase: Phase
    since: datetime
    expires_at: datetime
    entry: int
    status: ClassVar[Status] = Status.PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class ForPerson:
    """Paused: waits for a person, without any timer. `held` is what it waits for once it is resumed.

    Came here: a budget is spent under `on_budget: pause`, or the model will not answer for long.
    Owed to the bus: the `agent.escalated` that says so (`resumable`), and the request of a tool that is still out.
    Moved by: `SignalReceived`: `resume`, `answer` and `raise_budget` let it go on with what is held (an open model
        call is made again). A result that comes meanwhile (`ToolReturned`) is taken up, and what
        follows from it is held in its turn.
    """

    kind: Literal["for_person"] = "for_person"
    held: Annotated[Held, Field(discriminator="kind")]
    stop: Stop
    since: datetime
    status: ClassVar[Status] = Status.PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Waits for nothing, for good.

    Came here: done, handed to a person, failed or cancelled, as `status` says.
    Owed to the bus: the one event of the end.
    Moved by: `SignalReceived` with an answer, where it was handed to a person not too long ago: it goes on with what
        was `held`. A result that comes late (`ToolReturned`) is recorded, once for each attempt; that of a held
        attempt is kept in `came`.
    """

    kind: Literal["ended"] = "ended"
    status: Status
    stop: Stop
    at: datetime
    held: Annotated[Held, Field(discriminator="kind")] | None = None
    came: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """In the middle of a decision: what was waited for is here, and what comes next is not chosen. Never stored."""

    kind: Literal["deciding"] = "deciding"
    status: ClassVar[Status] = Status.RUNNING


Waiting = Annotated[
    Queued
    | ForModel
    | ModelRetry
    | ForTool
    | ToolRetry
    | ForReads
    | ForEvidence
    | ForTime
    | Planned
    | ForApproval
    | ForAnswer
    | ForPerson
    | Ended
    | Deciding,
    Field(discriminator="kind"),
]


def under_way(waiting: Waiting) -> Waiting:
    match waiting:
        case ForPerson(held=held) | ForApproval(held=ForEvidence() as held):
            return held
    return waiting


def pendings_of(waiting: Waiting | None) -> tuple[Pending, ...]:
    match waiting:
        case ForTool(pending=pending) | ToolRetry(pending=pending):
            return (pending,)
        case ForReads(flights=flights) | ForEvidence(flights=flights):
            return tuple(flight.pending for flight in flights)
    return ()


def steps_of(waiting: Waiting) -> tuple[int, ...]:
    if not isinstance(waiting, ForEvidence):
        return tuple(pending.step for pending in pendings_of(waiting))
    steps = (*(flight.pending.step for flight in waiting.flights), *(one.step for one in waiting.gatherings))
    return tuple(sorted(set(steps)))


def then(waiting: Waiting, held: Held) -> Waiting:
    """A pause stands until a person ends it."""
    return replace(waiting, held=held) if isinstance(waiting, ForPerson) else held


def answered(waiting: Waiting) -> Waiting:
    return waiting if isinstance(waiting, ForPerson) else Deciding()
