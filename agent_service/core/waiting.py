"""The six states of a run: what it waits for, with exactly the data to leave it.

The table in `decide` moves them. What a state owes to the bus is said again under the same message ids. In every state
but the last `CancelRequested` and `TurnBroke` end the run, and its deadline (`TimerFired`) ends or pauses it;
`StoodStill` moves its deadlines, unless it waits for a person.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from agent_service.core.brief import Grant, Spent
from agent_service.core.phases import Action, Ask, Framing, Phase, Plan
from agent_service.sentences import Text
from schemas.events import ToolResult
from schemas.values import dataclass, replace


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


OF_BUDGETS = "budget_"
"""How the classes of spent budgets begin."""
FINAL = frozenset({Status.DONE, Status.ESCALATED, Status.FAILED, Status.CANCELLED})


AGAIN = "again"
"""The name of the request that asks a tool once more; of a task: behind its id and a dot."""


Name = tuple[int, str, int]
"""Step, task and round of a tool request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRequest:
    """Of the tool request of a step, or of a task of it. `task` and `round` are empty and 0 for the step's own."""

    step: int
    task: str = ""
    round: int = 0

    @property
    def name(self) -> Name:
        return self.step, self.task, self.round


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending(OfRequest):
    """A request without an answer. The instants are those of the newest one. `retry_at`: when the attempt is sent; null
    once it is.
    """

    attempt: int
    action: Action
    route: str
    requested_at: datetime
    deadline_at: datetime
    until: datetime | None = None
    """The run's deadline where it cuts the tool's time: kept, so that a repeated request stays the same."""
    nameless: tuple[str, ...] = ()
    """Places in the stream of messages that answered earlier attempts without naming them."""
    untrusted: bool = False
    grant: Grant | None = None
    retry_at: datetime | None = None

    @property
    def due_at(self) -> datetime:
        return self.retry_at or self.deadline_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """An open sub-request. `id`: `task-1` by the step's tool, `task-1.task-2` by that task; empty for the step's own
    question. `round` and `place`: its continuation, and its place there from 1. `action`: without the evidence given
    along. `needs`: ids of the tasks whose results it gets. `asks`: the continuation that it waits for, or 0.
    """

    id: str
    round: int
    place: int
    action: Action
    needs: tuple[str, ...] = ()
    kind: Literal["retrieve", "plugin"] = "plugin"
    query: str = ""
    profile: str = ""
    reason: str = ""
    asks: int = 0

    @property
    def again(self) -> str:
        return f"{self.id}.{AGAIN}" if self.id else AGAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """What a step gathers. `first`: its own request, answered with the first continuation at `since`. `round`:
    continuations so far. `tasks`: open ones, first the step's own question. `stopped`: why nothing more begins;
    possible writes are waited for. `nameless`: places of messages that answered without naming a request. `words`:
    words of people that it has gone on with, without the model.
    """

    step: int
    first: Pending
    since: datetime
    until: datetime
    round: int
    tasks: tuple[Task, ...]
    stopped: Text = ""
    nameless: tuple[str, ...] = ()
    words: int = 0

    @property
    def due_at(self) -> datetime:
        return self.until


def asker_of(task_id: str) -> str:
    return task_id.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence(OfRequest):
    """`output`: the result object, or the error."""

    place: int
    kind: Literal["retrieve", "plugin"]
    tool: str
    command: str
    status: Literal["ok", "error"]
    output: dict[str, JsonValue]
    query: str = ""
    profile: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """The most that a model call may spend. `cost_usd` is null when the price is unknown. `if_lost`: tokens and USD
    that count when its reply is lost (its prompt, and a reply longer than any so far). Null: it counts in full.
    """

    tokens: int
    cost_usd: float | None
    reply_tokens: int = 0
    if_lost: tuple[int, float | None] | None = None

    @property
    def lost(self) -> tuple[int, float | None]:
        return self.if_lost or (self.tokens, self.cost_usd)


@dataclass(frozen=True, kw_only=True)
class Asking:
    """`call` counts from 1 and is the call's identity."""

    call: int
    phase: Phase
    feedback: tuple[Text, ...] = ()
    """Why its last decision was refused, and what a person ruled."""
    flaws: tuple[Text, ...] = ()
    rejected: str = ""
    longer: bool = False
    repairs: int = 0
    tries: int = 0
    silences: int = 0

    @property
    def told(self) -> tuple[Text, ...]:
        return *self.feedback, *self.flaws


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Why a run stopped. `ending_class` is the word for it, `entry` the number of the entry that did it."""

    kind: Literal["stop"] = "stop"
    ending_class: str
    reason: Text
    entry: int
    spent: Spent
    """By then, with all that children who had not told yet might spend: what they tell later changes no ending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Asks a person to allow a plan whose action needs approval, or a framing that goes beyond the goal.

    `subject_hash` names it: the hash of tool, command and arguments (and of the task, where the same was allowed for
    another task of the step), or of the framing. `step`, `task` and `round` name a sub-request of a step.
    """

    kind: Literal["approval"] = "approval"
    proposal: Plan | Framing
    subject_hash: str
    reason: Text
    step: int = 0
    task: str = ""
    round: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of the model to a person. The model is asked for `phase` once the answer is there."""

    kind: Literal["question"] = "question"
    ask: Ask
    phase: Phase


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
class Thinking:
    """Waits for the reply to a model call, or for the instant at which the call is made again.

    `reserve` is what is set aside for the call: null until that is committed, and always for a model that costs
    nothing. `retry_at`: the call is made then; null while it is made. `still_since`: the deadline stands still since
    then, unless the caller named it, because what may be spent in a day is spent.

    Came here: the run was started, a step finished, a reply called for another question, or the model was not
        available.
    Owed to the bus: nothing. The agent makes the call by itself, and again after a crash.
    Moved by: `CallReserved`, before a call that costs something: it is made, unless it could break a budget.
        `ModelReplied`: the next tool, the next question, or an end. `ModelUnavailable`: later again, with a shorter
        prompt, or not at all. `TimerFired` at `retry_at`, or once more may be spent: the call is made. A result
        (`ToolReturned`) of a step that was never asked for breaks the protocol.
    """

    kind: Literal["thinking"] = "thinking"
    asking: Asking
    reserve: Reserve | None = None
    retry_at: datetime | None = None
    still_since: datetime | None = None
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Waits for the results of tool requests: of one step, of several reads, or of what steps gather.

    `pendings` are the attempts that are sent, or are sent again at an instant of their own (`retry_at`), by step.
    `graphs`: one for each step whose tool asked for more before it can answer; what waits there for its turn or
    for the results of others is not pending yet.

    Came here: a plan was accepted.
    Owed to the bus: the `agentic.tool_request` of each attempt that is sent.
    Moved by: `ToolReturned`: another attempt follows, what waited for it is sent, the tool is asked again, the model
        reflects when the last step is finished, or a person has to look. `TimerFired`: the next attempt is sent; no
        answer came in time: another attempt where it may be repeated, else the run is in doubt and ends; or the time of
        a graph is over.
    """

    kind: Literal["acting"] = "acting"
    pendings: tuple[Pending, ...] = ()
    graphs: tuple[TaskGraph, ...] = ()
    status: ClassVar[Status] = Status.RUNNING

    @property
    def ticking(self) -> tuple[TaskGraph, ...]:
        """Gatherings whose time runs: those that are not stopped, and wait for no child."""
        if not self.graphs:
            return ()
        children = {pending.step for pending in self.pendings if pending.grant}
        return tuple(one for one in self.graphs if not one.stopped and one.step not in children)

    @property
    def timed(self) -> tuple[Pending | TaskGraph, ...]:
        return *self.ticking, *self.pendings

    def with_later_graphs(self, by: timedelta) -> "Acting":
        later = tuple([replace(one, until=one.until + by) for one in self.graphs])
        return replace(self, graphs=later)

    def with_later_answers(self, by: timedelta) -> "Acting":
        later = tuple([replace(one, deadline_at=one.deadline_at + by) for one in self.pendings])
        return replace(self, pendings=later)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeping:
    """Waits for an instant that the model chose. `since` is when it began to.

    Came here: the model waits, because something changes by itself.
    Owed to the bus: nothing.
    Moved by: `TimerFired` at `until`: the model is asked what comes next. `SignalReceived` with what a person says: at
        once. A result (`ToolReturned`) breaks the protocol, for nothing was asked.
    """

    kind: Literal["sleeping"] = "sleeping"
    until: datetime
    since: datetime
    why: str
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan that was accepted and could not be carried out yet: held, so that it is not paid for twice."""

    kind: Literal["planned"] = "planned"
    plan: Plan
    status: ClassVar[Status] = Status.RUNNING


Held = Annotated[Thinking | Acting | Planned, Field(discriminator="kind")]
"""What a pause, or an end that can be reopened, keeps for later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsPerson:
    """Paused: waits for a person to allow something, to answer a question, or to let a stopped run go on.

    `entry` is the number of the entry that asked. `expires_at` is null for a stop, which has no timer. `held`: what
    goes on once it is decided; null where the model is asked, or the plan is carried out.

    Came here: a plan, a framing or a task needs a person's approval (of a task, once nothing else is under way); the
        model asked instead of acting; or a budget is spent under `on_budget: pause`, or the model will not answer for
        long.
    Owed to the bus: the `agent.waiting` that asks. For a stop, the `agent.escalated` that says so (`resumable`), and
        the requests that are still out.
    Moved by: `SignalReceived`. Of an approval: `approve` of this hash carries it out, `reject` tells the model why not.
        Of a question: an answer or a message. Of a stop: `resume`, `answer` and `raise_budget` let it go on with what
        is held. `TimerFired` at `expires_at`: an approval is refused or escalates, by the rule of the run; a question
        ends the run, which can be reopened. A result (`ToolReturned`) that comes for a stopped run is taken up, and
        what follows from it is held in its turn; else it breaks the protocol, for nothing is out.
    """

    kind: Literal["needs_person"] = "needs_person"
    ask: Annotated[Approval | Question | Stop, Field(discriminator="kind")]
    since: datetime
    entry: int
    expires_at: datetime | None = None
    held: Held | None = None
    status: ClassVar[Status] = Status.PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run has ended. Only a person's answer can reopen it, if it was handed to a person.

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
    held: Held | None = None
    came: tuple[ToolResult, ...] = ()
    out: tuple[Pending, ...] = ()
    """Requests without a known result at the end; a granted one until it tells what it spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """In the middle of a decision: what was waited for is here, and what comes next is not chosen. Never stored."""

    kind: Literal["deciding"] = "deciding"
    status: ClassVar[Status] = Status.RUNNING


Waiting = Annotated[
    Queued | Thinking | Acting | Sleeping | NeedsPerson | Ended | Planned | Deciding, Field(discriminator="kind")
]


def under_way(waiting: Waiting) -> Waiting:
    """What goes on, also while a person is waited for."""
    return waiting.held or waiting if isinstance(waiting, NeedsPerson) else waiting


def acting_of(waiting: Waiting | None) -> Acting:
    """Requests in flight, and what is gathered; empty in a state without any."""
    now = waiting.held if isinstance(waiting, NeedsPerson) else waiting
    return now if isinstance(now, Acting) else _NOT_ACTING


def stop_of(waiting: Waiting) -> Stop | None:
    match waiting:
        case Ended(stop=stop) | NeedsPerson(ask=Stop() as stop):
            return stop
    return None


def is_stopped(waiting: Waiting) -> bool:
    return isinstance(waiting, NeedsPerson) and isinstance(waiting.ask, Stop)


def then(waiting: Waiting, held: Held) -> Waiting:
    """A stop stands until a person ends it."""
    return replace(waiting, held=held) if isinstance(waiting, NeedsPerson) and is_stopped(waiting) else held


def answered(waiting: Waiting) -> Waiting:
    return waiting if is_stopped(waiting) else Deciding()


_NOT_ACTING = Acting()
