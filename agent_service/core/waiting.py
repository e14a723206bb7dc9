"""The six states of a run: each holds what the run waits for, with exactly the data to leave the state.

`decide.TABLE` says which event moves a run from which state.
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
    """Public words. `paused` waits for a person; the last four are final."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    ESCALATED = "escalated"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINAL = frozenset({Status.DONE, Status.ESCALATED, Status.FAILED, Status.CANCELLED})
BUDGET_PREFIX = "budget_"
"""Prefix of the ending classes of spent budgets."""
AGAIN = "again"
"""Task name of the request that asks a tool once more; a task puts its id and a dot before it."""
RequestName = tuple[int, str, int]
"""Step, task and round of a tool request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRef:
    """Names the tool request of a step, or of one of its tasks. The step's own has an empty `task` and `round` 0."""

    step: int = 0
    task: str = ""
    round: int = 0

    @property
    def name(self) -> RequestName:
        return self.step, self.task, self.round

    @property
    def ref(self) -> dict[str, Any]:
        return {"step": self.step, "task": self.task, "round": self.round}

    @property
    def correlation(self) -> dict[str, Any]:
        """The names in messages and views: task and round are null for the step's own request."""
        return {"step": self.step, "task": self.task or None, "round": self.round or None}

    @property
    def id(self) -> str:
        """Empty for the step's own request, `task-1` for its task, `task-1.task-2` for a task of that task."""
        asker, _, last = self.task.rpartition(".")
        return asker if last == AGAIN else self.task


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending(RequestRef):
    """An unfinished tool request: a step's own, or a task that its tool asked for before it can answer.

    Instants belong to the newest attempt; `attempt` is 0 until the first is sent. `retry_at` is null once the attempt
    is sent. The tool has until `until`. `asks`: number of the continuation whose tasks it waits for, or 0. `answer`:
    a result that came after the run ended. `place` of a task: its continuation, and its position there from 1.
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
    """Sub-requests of a step. `round` counts continuations. `stopped`: the reason why no more tasks begin."""

    step: int
    until: datetime
    round: int = 0
    stopped: Text = ""

    @property
    def due_at(self) -> datetime:
        return self.until


def asker_id(task_id: str) -> str:
    return task_id.rpartition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult(RequestRef):
    """The result of a task. `output`: the result object, or the error."""

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
    """Maximum that a model call may spend. `cost_usd` is null when the price is unknown. `if_lost`: likely tokens and
    USD of a lost reply; null charges the maximum.
    """

    tokens: int
    cost_usd: float | None
    reply_tokens: int = 0
    if_lost: tuple[int, float | None] | None = None


@dataclass(frozen=True, kw_only=True)
class OpenCall:
    """A model call that has no reply yet. `feedback`: news since the last call. `flaws`: of its last decision."""

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
    def remarks(self) -> tuple[Text, ...]:
        return *self.feedback, *self.flaws


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The reason of a stop, in `entry`. `spent` includes the whole grants of children that had not reported yet."""

    kind: Literal["stop"] = "stop"
    ending_class: str
    reason: Text
    entry: int
    spent: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(RequestRef):
    """Asks a person to allow an action, or a framing beyond the goal. `step` is 0 except for a sub-request."""

    kind: Literal["approval"] = "approval"
    proposal: Plan | Framing
    subject_hash: str
    reason: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question of the model to a person. The answer leads to a model call for `phase`."""

    kind: Literal["question"] = "question"
    ask: AskPerson
    phase: Phase


Ask = Annotated[Approval | Question | Stop, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    kind: Literal["queued"] = "queued"
    status: ClassVar[Status] = Status.QUEUED


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Waits for the reply to a model call, or for the instant at which the call is made again.

    `reserve` is null for a free model. `retry_at` is null while the call is made. The deadline stands still from
    `still_since` on, because the money of the day is spent.
    """

    kind: Literal["thinking"] = "thinking"
    asking: OpenCall
    reserve: CallReserve | None = None
    retry_at: datetime | None = None
    still_since: datetime | None = None
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Acting:
    """Waits for tool results. `requests` are sorted by step. `graphs`: one for each step whose tool asked for tasks."""

    kind: Literal["acting"] = "acting"
    requests: tuple[Pending, ...] = ()
    graphs: tuple[Graph, ...] = ()
    status: ClassVar[Status] = Status.RUNNING

    @property
    def pendings(self) -> tuple[Pending, ...]:
        """Requests that are sent, or wait for their retry."""
        return tuple([one for one in self.requests if one.is_out]) if self.graphs else self.requests

    @property
    def timed(self) -> tuple[Pending | Graph, ...]:
        """Everything that can time out. A graph cannot while it is stopped, or waits for a child."""
        if not self.graphs:
            return self.requests
        children = {pending.step for pending in self.pendings if pending.grant}
        return *[one for one in self.graphs if not one.stopped and one.step not in children], *self.pendings

    def graph(self, step: int) -> Graph | None:
        return next((graph for graph in self.graphs if graph.step == step), None) if self.graphs else None

    def postponed(self, *, graphs: timedelta = timedelta(0), answers: timedelta = timedelta(0)) -> "Acting":
        return replace(
            self,
            requests=tuple([replace(one, deadline_at=one.deadline_at + answers) for one in self.requests]),
            graphs=tuple([replace(one, until=one.until + graphs) for one in self.graphs]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeping:
    """Waits since `since` for an instant that the model chose. A person's message ends the wait early."""

    kind: Literal["sleeping"] = "sleeping"
    until: datetime
    since: datetime
    why: str
    status: ClassVar[Status] = Status.RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """An accepted plan that could not be carried out yet: held, so that it is not paid for twice."""

    kind: Literal["planned"] = "planned"
    plan: Plan
    status: ClassVar[Status] = Status.RUNNING


Held = Annotated[Thinking | Acting | Planned, Field(discriminator="kind")]
"""Kept by a pause, or by an end that can be reopened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsPerson:
    """Paused: a person has to allow something, answer a question, or let a stopped run go on.

    `entry` asked. `expires_at` is null for a stop. `held` goes on after the decision; null where the model is asked, or
    the proposed plan is carried out. Results for a stopped run are taken up, and their consequences are held.
    """

    kind: Literal["needs_person"] = "needs_person"
    ask: Ask
    since: datetime
    entry: int
    expires_at: datetime | None = None
    held: Held | None = None
    status: ClassVar[Status] = Status.PAUSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run has ended. Only a person's answer can reopen it, if it was escalated; then `held` goes on.

    `doubted`: the request whose unknown outcome ended the run. `late`: requests that were answered after the end.
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
        """Requests without a known result; one with a grant until it reports its spending."""
        sent = [one for one in acting_of(self.held).pendings if one.retry_at is None]
        return tuple([one for one in sent if one.answer is None or (one.name in self.late and not one.grant)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Deciding:
    """In the middle of a decision: the next state is not chosen yet. Never stored."""

    kind: Literal["deciding"] = "deciding"
    status: ClassVar[Status] = Status.RUNNING


Waiting = Annotated[
    Queued | Thinking | Acting | Sleeping | NeedsPerson | Ended | Planned | Deciding, Field(discriminator="kind")
]


def acting_of(waiting: Waiting | None) -> Acting:
    """Requests in flight, also of a paused run; empty in a state without any."""
    now = waiting.held if isinstance(waiting, NeedsPerson) else waiting
    return now if isinstance(now, Acting) else _NOT_ACTING


def next_waiting(waiting: Waiting, held: Held | None) -> Waiting:
    """Returns `held`, or `Deciding` where it is null. A stop stands until a person ends it, and keeps `held`."""
    if isinstance(waiting, NeedsPerson) and isinstance(waiting.ask, Stop):
        return replace(waiting, held=held or _NOT_ACTING)
    return held or Deciding()


def with_requests(waiting: Waiting, *changed: Pending, graph: Graph | None = None) -> Waiting:
    """Adds or replaces requests, each known by its step and id, and the graph of their step."""
    now = acting_of(waiting)
    new = {(one.step, one.task and one.id): one for one in (*now.requests, *changed)}
    graphs = (*(one for one in now.graphs if one.step != graph.step), graph) if graph else now.graphs
    requests = sorted(new.values(), key=_by_step)
    return next_waiting(waiting, Acting(requests=tuple(requests), graphs=tuple(sorted(graphs, key=_by_step))))


def without_request(waiting: Waiting, over: Pending) -> tuple[Waiting, Acting]:
    """Removes a task, or the whole step with its own request. Returns the requests that are left, too."""
    now, task = acting_of(waiting), over.id
    requests = tuple([one for one in now.requests if one.step != over.step or (task and one.id != task)])
    graphs = now.graphs if task else tuple([graph for graph in now.graphs if graph.step != over.step])
    left = Acting(requests=requests, graphs=graphs)
    return next_waiting(waiting, left if requests else None), left


_by_step = attrgetter("step")
_NOT_ACTING = Acting()
