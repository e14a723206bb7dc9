"""The six states of a run: what it waits for, with exactly the data to leave it.

The table in `decide` moves them. What a state owes to the bus is said again under the same message ids. In every state
but the last `CancelRequested` and `TurnBroke` end the run, and its deadline (`TimerFired`) ends or pauses it;
`StoodStill` moves its deadlines, unless it waits for a person.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, JsonValue

from agent_service.core.brief import Grant, Spent
from agent_service.core.phases import Action, AskPerson, Framing, Phase, Plan
from agent_service.sentences import Text
from schemas.events import ToolResult
from schemas.values import dataclass, replace


class Status(StrEnum):
    """In the words that callers are told. The last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    """Waiting for a person."""
    DONE = "done"
    ESCALATED = "escalated"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({Status.DONE, Status.ESCALATED, Status.FAILED, Status.CANCELLED})
BUDGET_PREFIX = "budget_"
"""How the classes of spent budgets begin."""
AGAIN = "again"
"""The name of the request that asks a tool once more; of a task: behind its id and a dot."""
RequestName = tuple[int, str, int]
"""Step, task and round of a tool request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRef:
    """Of the tool request of a step, or of a task of it. `task` and `round` are empty and 0 for the step's own."""

    step: int = 0
    task: str = ""
    round: int = 0

    @property
    def name(self) -> RequestName:
        return self.step, self.task, self.round

    @property
    def named(self) -> dict[str, Any]:
        """The name, for another value."""
        return {"step": self.step, "task": self.task, "round": self.round}

    @property
    def id(self) -> str:
        """Empty for the step's own; `task-1` of the step's tool, `task-1.task-2` of that task."""
        return self.task.removesuffix(AGAIN).removesuffix(".") if self.task else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending(RequestRef):
    """A tool request of the run that is not over: a step's own, or a task that its tool asked for before it can answer.

    The instants are those of the newest attempt; `attempt` is 0 until the first is sent. `retry_at`: when it is sent;
    null once it is. `until`: how long the tool has. `asks`: the continuation whose tasks it waits for, or 0. `answer`:
    what is known of it since the run has ended.

    Of a task: `place` is its continuation, and its place there from 1; `needs` are the tasks whose results it gets.
    """

    action: Action
    attempt: int = 0
    route: str = ""
    requested_at: datetime
    deadline_at: datetime
    until: datetime
    untrusted: bool = False
    grant: Grant | None = None
    retry_at: datetime | None = None
    asks: int = 0
    answer: ToolResult | None = None
    place: tuple[int, int] = (0, 0)
    needs: tuple[str, ...] = ()
    kind: Literal["retrieve", "plugin"] = "plugin"
    query: str = ""
    profile: str = ""
    reason: str = ""

    @property
    def is_out(self) -> bool:
        return bool(self.attempt) and not self.asks

    @property
    def due_at(self) -> datetime:
        return self.retry_at or self.deadline_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """What a step gathers, whose tool has asked for tasks. `round`: continuations so far. `stopped`: why nothing more
    begins; possible writes are waited for.
    """

    step: int
    until: datetime
    round: int = 0
    stopped: Text = ""

    @property
    def due_at(self) -> datetime:
        return self.until


def asker_id(task_id: str) -> str:
    """The id of the request whose tool asked for a task."""
    return task_id.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(RequestRef):
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
class CallReserve:
    """The most that a model call may spend. `cost_usd` is null when the price is unknown. `if_lost`: tokens and USD
    that count when its reply is lost (its prompt, and a reply longer than any so far). Null: it counts in full.
    """

    tokens: int
    cost_usd: float | None
    reply_tokens: int = 0
    if_lost: tuple[int, float | None] | None = None


@dataclass(frozen=True, kw_only=True)
class OpenCall:
    """`call` counts from 1 and is the call's identity. `feedback`: what happened since, and what a person ruled;
    `flaws`: why its last decision was refused.
    """

    call: int
    phase: Phase
    feedback: tuple[Text, ...] = ()
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
    """Why a run stopped. `ending_class` is the word for it, `entry` the number of the entry that did it. `spent`: by
    then, with all that children who had not told yet might spend; what they tell later changes no ending.
    """

    kind: Literal["stop"] = "stop"
    ending_class: str
    reason: Text
    entry: int
    spent: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(RequestRef):
    """Asks a person to allow a plan whose action needs approval, or a framing that goes beyond the goal.

    `subject_hash`: of tool, command and arguments, with the task that it is of, or of the framing. `step` is 0 but for
    a sub-request.
    """

    kind: Literal["approval"] = "approval"
    proposal: Plan | Framing
    subject_hash: str
    reason: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of the model to a person. The model is asked for `phase` once the answer is there."""

    kind: Literal["question"] = "question"
    ask: AskPerson
    phase: Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """Waits for its turn to be started.

    Came here: a wake was accepted (`WakeAccepted`) and is durable.
    Owed to the bus: `agentic.start`, for others to see, if the wake came by the wake API.
    Moved by: `RunStarted`: the model is asked for a framing. A result (`ToolReturned`) breaks the protocol.
    """

    kind: Literal["queued"] = "queued"
    status: ClassVar[Status] = Status.QUEUED


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Waits for the reply to a model call, or for the instant at which the call is made again.

    `reserve` is set aside for the call; null for a model that costs nothing. `retry_at`: the call is made then; null
    while it is made. `still_since`: the deadline stands still since then, because the money of the day is spent.

    Came here: the run was started, a step finished, a reply called for another question, or no model was available.
    Owed to the bus: nothing. The agent makes the call by itself, and again after a crash.
    Moved by: `CallReserved`: the call is made, unless it could break a budget. `ModelReplied`: the next tool, the next
        question, or an end. `ModelUnavailable`: later again, with a shorter prompt, or not at all. `TimerFired` at
        `retry_at`, or once more may be spent: the call is made. A result (`ToolReturned`) breaks the protocol.
    """

    kind: Literal["thinking"] = "thinking"
    asking: OpenCall
    reserve: CallReserve | None = None
    retry_at: datetime | None = None
    still_since: datetime | None = None
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Waits for the results of tool requests: of one step, of several reads, or of what steps gather.

    `requests` are those of each step in turn. `graphs`: one for each step whose tool asked for more before it answers.

    Came here: a plan was accepted.
    Owed to the bus: the `agentic.tool_request` of each attempt that is sent.
    Moved by: `ToolReturned`: another attempt follows, what waited for it is sent, the tool is asked again, the model
        reflects, or a person has to look. `TimerFired`: the next attempt is sent, an attempt or graph is given up, or
        the run is in doubt and ends.
    """

    kind: Literal["acting"] = "acting"
    requests: tuple[Pending, ...] = ()
    graphs: tuple[Graph, ...] = ()
    status: ClassVar[Status] = Status.RUNNING

    @property
    def pendings(self) -> tuple[Pending, ...]:
        """Requests that are sent, or are sent again at an instant of their own, by step."""
        return tuple([one for one in self.requests if one.is_out]) if self.graphs else self.requests

    @property
    def timed(self) -> tuple[Pending | Graph, ...]:
        """All that has a time. A graph's runs while it is not stopped, and waits for no child."""
        children = {pending.step for pending in self.pendings if pending.grant} if self.graphs else ()
        return *[one for one in self.graphs if not one.stopped and one.step not in children], *self.pendings

    def later(self, by: timedelta, *, answers: bool = False) -> "Acting":
        """With more time for its graphs, or for answers to its requests."""
        if answers:
            requests = tuple([replace(one, deadline_at=one.deadline_at + by) for one in self.requests])
            return replace(self, requests=requests)
        return replace(self, graphs=tuple([replace(one, until=one.until + by) for one in self.graphs]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeping:
    """Waits since `since` for an instant that the model chose.

    Came here: the model waits, because something changes by itself.
    Owed to the bus: nothing.
    Moved by: `TimerFired` at `until`: the model is asked what comes next. `SignalReceived` with what a person says: at
        once. A result (`ToolReturned`) breaks the protocol.
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

    `entry` is the number of the entry that asked. `expires_at`, or a deadline that the caller named, ends the wait;
    it is null for a stop. `held`: what goes on once it is decided; null where the model is asked, or the plan is
    carried out.

    Came here: a plan, a framing or a task needs an approval, the model asked instead of acting, a budget is spent under
        `on_budget: pause`, or the model will not answer for long.
    Owed to the bus: the `agent.waiting` that asks. For a stop, the `agent.escalated` that says so (`resumable`), and
        the requests that are still out.
    Moved by: `SignalReceived`: `approve` and `reject` of this hash, an answer or a message to a question; `resume`,
        `answer` and `raise_budget` after a stop. `TimerFired` at `expires_at`: an approval is refused or escalates, by
        the rule of the run; a question ends the run, which can be reopened. A result (`ToolReturned`) for a stopped run
        is taken up, and what follows is held in its turn; else it breaks the protocol.
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

    `doubted`: the request whose unknown outcome ended the run. `late`: requests that were answered after the end.

    Came here: done, handed to a person, failed or cancelled, as `status` says.
    Owed to the bus: the one event of the end.
    Moved by: `SignalReceived` with an answer, where it was handed to a person not too long ago: it goes on with what
        was `held`. A late result (`ToolReturned`) is recorded, once for each attempt, and kept with its request.
    """

    kind: Literal["ended"] = "ended"
    status: Status
    stop: Stop
    at: datetime
    held: Held | None = None
    doubted: RequestName | None = None
    late: tuple[RequestName, ...] = ()

    @property
    def out(self) -> tuple[Pending, ...]:
        """Requests without a known result at the end; a granted one until it tells what it spent."""
        sent = [one for one in acting_of(self.held).pendings if one.retry_at is None]
        return tuple([one for one in sent if one.answer is None or (one.name in self.late and not one.grant)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """In the middle of a decision: what was waited for is here, and what comes next is not chosen. Never stored."""

    kind: Literal["deciding"] = "deciding"
    status: ClassVar[Status] = Status.RUNNING


Waiting = Annotated[
    Queued | Thinking | Acting | Sleeping | NeedsPerson | Ended | Planned | Deciding, Field(discriminator="kind")
]


def acting_of(waiting: Waiting | None) -> Acting:
    """Requests in flight, and what is gathered; empty in a state without any."""
    now = waiting.held if isinstance(waiting, NeedsPerson) else waiting
    return now if isinstance(now, Acting) else _NOT_ACTING


def next_waiting(waiting: Waiting, held: Held | None) -> Waiting:
    """A stop stands until a person ends it; null where what comes next is not chosen yet."""
    if isinstance(waiting, NeedsPerson) and isinstance(waiting.ask, Stop):
        return replace(waiting, held=held or _NOT_ACTING)
    return held or Deciding()


def graph_of(waiting: Waiting, step: int) -> Graph | None:
    return next((graph for graph in acting_of(waiting).graphs if graph.step == step), None)


def with_requests(waiting: Waiting, *changed: Pending, graph: Graph | None = None) -> Waiting:
    """With these as they are now, or besides, each known by its step and id; and with the graph of their step."""
    now = acting_of(waiting)
    new = {(one.step, one.id): one for one in (*now.requests, *changed)}
    graphs = (*(one for one in now.graphs if one.step != graph.step), graph) if graph else now.graphs
    requests = sorted(new.values(), key=_by_step)
    return next_waiting(waiting, Acting(requests=tuple(requests), graphs=tuple(sorted(graphs, key=_by_step))))


def without_requests(waiting: Waiting, step: int, *gone: Pending) -> Waiting:
    """Without these requests of the step, or without the step."""
    now, ids = acting_of(waiting), [one.id for one in gone]
    left = tuple([one for one in now.requests if one.step != step or (ids and one.id not in ids)])
    graphs = tuple([graph for graph in now.graphs if graph.step != step or ids])
    return next_waiting(waiting, Acting(requests=left, graphs=graphs) if left else None)


_by_step = attrgetter("step")
_NOT_ACTING = Acting()
