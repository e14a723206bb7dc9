"""The steps of a run in short with their tasks, and what is in flight."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import Field

from agent_service.core.attempts import AGAIN, asker_of
from agent_service.core.state import RunState
from agent_service.core.tools.flights import flights
from agent_service.history.history import History
from agent_service.history.items import Failure, Item, depth_of
from agent_service.history.plain import View
from agent_service.history.results import Execution
from agent_service.history.waiting_for import executor_of
from schemas.fields import Instant

StepStatus = Literal["ok", "error", "budget", "pending", "waiting", "unfinished"]
Key = tuple[str, int]
"""The name of a sub-request in its step."""
TaskStatus = Literal["waiting", "pending", "ok", "error", "continuation", "budget", "unfinished"]
"""`pending`: sent, or asked for more. `continuation`: asked again, it asked for more. `budget`: that was too much.
`unfinished`: its step or its run ended before.
"""


class FailureView(View):
    """Why something failed."""

    error_class: str = Field(alias="class")
    message: str


class TaskView(View):
    """A sub-request of a step. `id` and `round` name it there, as the keys of its messages do.

    `asked_by` is the task that asked for it, null where the step's own tool did. `attempt` is the newest, 0 before its
    first request is sent, which is at `started_at`. `query` is of a retrieval, `reason` is why it was asked for.
    `child_run_id` is the run that works on it, where it asks an agent.
    """

    id: str
    round: int
    tool: str
    command: str
    status: TaskStatus = "waiting"
    attempt: int = 0
    depends_on: tuple[str, ...] = ()
    asked_by: str | None = None
    query: str | None = None
    reason: str = ""
    summary: str = ""
    error: FailureView | None = None
    started_at: Instant | None = None
    ended_at: Instant | None = None
    child_run_id: str | None = None

    @property
    def key(self) -> Key:
        return self.id, self.round

    @property
    def depth(self) -> int:
        return depth_of(self.id)

    @property
    def is_again(self) -> bool:
        return self.id.rpartition(".")[2] == AGAIN


class StepView(View):
    """One step. `attempt` is its newest; `error` and `execution` are told of the newest that was answered.

    `tasks` is what its tool asked for before it could answer, each task followed by its own. `child_run_id` is the run
    that works on it, where it asks an agent.
    """

    step: int
    tool: str
    command: str
    attempt: int
    status: StepStatus
    summary: str = ""
    error: FailureView | None = None
    execution: Execution | None = None
    tasks: tuple[TaskView, ...] = ()
    child_run_id: str | None = None


class PendingView(View):
    """The attempt whose result the run waits for; with `retry_at`, the attempt that is sent then.

    `task` and `round` are of a sub-request of the step, null for its own request.

    `executor` is who was asked for it, by the route of that name; null where it tells no name. It was asked at
    `requested_at` and is given up at `deadline_at`. `present` says whether the executor answered when it was last asked
    for its tools, and is null where nobody can tell; `trouble` is what it says is wrong with it, as with its Ductile.
    """

    step: int
    task: str | None
    round: int | None
    tool: str
    command: str
    attempt: int
    route: str
    executor: str | None
    requested_at: Instant
    deadline_at: Instant
    retry_at: Instant | None
    present: bool | None = None
    trouble: str = ""


def step_views(run: RunState, history: History) -> tuple[StepView, ...]:
    """In the order of their numbers."""
    steps = history.requests.of_kind("step")
    return tuple(_step(run, history, item) for item in sorted(steps, key=lambda item: item.step or 0))


def _step(run: RunState, history: History, item: Item) -> StepView:
    return StepView(
        step=item.step or 0,
        tool=item.tool or "",
        command=item.command or "",
        attempt=item.attempt or 1,
        status=_status_of_step(item),
        summary=_summary(item),
        error=_failure(item.error),
        execution=item.execution,
        tasks=task_views(run, history, item.step or 0),
        child_run_id=child_of(run, item),
    )


def _status_of_step(item: Item) -> StepStatus:
    if item.outcome in ("ok", "error", "budget"):
        return item.outcome
    if item.ended_at:
        return "unfinished"
    return "waiting" if item.status == "waiting" else "pending"


def _summary(item: Item) -> str:
    if item.outcome or item.ended_at:
        return item.summary or (item.error.message if item.error else "")
    if item.error:
        return f"it failed before: {item.error.message}"
    return f"asks for more: {item.summary}" if item.summary else ""


def child_of(run: RunState, item: Item) -> str | None:
    return next((c.run_id for c in reversed(run.children) if (c.step, c.task, c.round) == item.name), None)


def _failure(error: Failure | None) -> FailureView | None:
    return FailureView(error_class=error.error_class, message=error.message) if error else None


def task_views(run: RunState, history: History, step: int) -> tuple[TaskView, ...]:
    """Each task is followed by what it asked for."""
    views = {view.key: view for view in (_task(run, item) for item in history.requests.of_kind("task", step))}
    return tuple(_in_order(views))


def _task(run: RunState, item: Item) -> TaskView:
    return TaskView(
        id=item.task,
        round=item.round,
        tool=item.tool or "",
        command=item.command or "",
        status=_status_of_task(item),
        attempt=item.attempt or 0,
        depends_on=item.needs,
        asked_by=asker_of(item.task) or None,
        query=item.query or None,
        reason=item.reason,
        summary=item.summary if item.outcome and not item.error else "",
        error=_failure(item.error) if item.outcome else None,
        started_at=item.started_at if item.attempt else None,
        ended_at=item.ended_at,
        child_run_id=child_of(run, item),
    )


def _status_of_task(item: Item) -> TaskStatus:
    if item.ended_at and item.outcome in ("ok", "error", "continuation", "budget"):
        return item.outcome
    if item.ended_at:
        return "unfinished"
    return "waiting" if item.status == "waiting" or not item.attempt else "pending"


def _in_order(told: Mapping[Key, TaskView]) -> Iterator[TaskView]:
    below = defaultdict[Key | None, list[TaskView]](list)
    for view in sorted(told.values(), key=lambda view: (view.round, not view.is_again)):
        below[_asker(view, told)].append(view)
    yield from _down(None, below)


def _asker(view: TaskView, told: Mapping[Key, TaskView]) -> Key | None:
    return max((key for key in told if key[0] == view.asked_by and key[1] < view.round), default=None)


def _down(asker: Key | None, below: Mapping[Key | None, Sequence[TaskView]]) -> Iterator[TaskView]:
    for view in below.get(asker, ()):
        yield view
        yield from _down(view.key, below)


def pending_views(run: RunState, present: frozenset[str] | None, trouble: str) -> Iterator[PendingView]:
    """`present`: executors that answered the last catalog query; `trouble` is of the first."""
    for place, flight in enumerate(flights(run.waiting)):
        pending, executor = flight.pending, executor_of(run, flight.pending)
        yield PendingView(
            step=pending.step,
            task=pending.task or None,
            round=pending.round or None,
            tool=pending.action.tool,
            command=pending.action.command,
            attempt=pending.attempt,
            route=pending.route,
            executor=executor,
            requested_at=pending.requested_at,
            deadline_at=pending.deadline_at,
            retry_at=flight.retry_at,
            present=None if present is None or executor is None else executor in present,
            trouble="" if place else trouble,
        )
