"""The steps of a run with their tasks and attempts, in short and in full, and what is in flight."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal

from pydantic import JsonValue

from agent_service.core.attempts import asker_of
from agent_service.core.state import RunState
from agent_service.history.history import History
from agent_service.history.items import Failure, Item, ItemStatus, as_tree
from agent_service.history.plain import View
from agent_service.history.results import Execution, result_of
from agent_service.history.waiting_for import executor_of
from agent_service.run.journal import Record

StepStatus = Literal["waiting", "pending", "ok", "error", "continuation", "budget", "unfinished"]
"""`pending`: sent, or asked for more. `continuation`: asked again, it asked for more. `budget`: that was too much.
`unfinished`: its step or its run ended before.
"""


class RequestView(View):
    """A step or a task of it. `attempt` is the newest, 0 before the first request is sent. `child_run_id` is the run
    that works on it, where it asks an agent.
    """

    tool: str
    command: str
    attempt: int = 0
    status: StepStatus = "waiting"
    summary: str = ""
    error: Failure | None = None
    child_run_id: str | None = None


class TaskView(RequestView):
    """A sub-request of a step. `id` and `round` name it there, as the keys of its messages do.

    `asked_by` is the task that asked for it, null where the step's own tool did. Its first request is sent at
    `started_at`. `query` is of a retrieval, `reason` is why it was asked for.
    """

    id: str
    round: int
    depends_on: tuple[str, ...] = ()
    asked_by: str | None = None
    query: str | None = None
    reason: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None


class StepView(RequestView):
    """One step. `error` and `execution` are told of the newest attempt that was answered.

    `tasks` is what its tool asked for before it could answer, each task followed by its own.
    """

    step: int
    execution: Execution | None = None
    tasks: tuple[TaskView, ...] = ()


class AttemptView(View):
    """One attempt. `result` is all that the tool brought; `execution` is how its executor carried it out.

    `status` is `open` while it is waited for, `waiting` before it is sent, `cancelled` where it was under way when the
    run ended, and `refused` for a result that came after that.
    """

    attempt: int
    requested_at: datetime | None
    deadline_at: datetime | None
    completed_at: datetime | None = None
    status: ItemStatus
    result: dict[str, JsonValue] | None = None
    error: Failure | None = None
    execution: str | None = None


class TaskDetail(TaskView):
    """A sub-request of a step in full. `approved_by` is as in StepDetail."""

    arguments: dict[str, JsonValue]
    approved_by: str | None
    attempts: tuple[AttemptView, ...]


class StepDetail(View):
    """One step. `route` is where its requests go; `executor` is who was asked, null where it tells no name.

    `approved_by` is the person who allowed it; null where no approval was needed. `attempts` are those of its own
    request, `tasks` what its tool asked for before it could answer, and each time that it was asked again.
    `child_run_id` is as in the run's view.
    """

    run_id: str
    step: int
    tool: str
    command: str
    route: str
    executor: str | None
    arguments: dict[str, JsonValue]
    expected: str
    risk: str
    rationale: str
    approved_by: str | None
    child_run_id: str | None
    attempts: tuple[AttemptView, ...]
    tasks: tuple[TaskDetail, ...]


class PendingView(View):
    """The attempt whose result the run waits for; with `retry_at`, the attempt that is sent then.

    `task` and `round` are of a sub-request of the step, null for its own request.

    `executor` is who was asked for it, by the route of that name; null where it tells no name. It was asked at
    `requested_at` and is given up at `deadline_at`. `present` says whether the executor answered when it was last asked
    for its tools, and is null where that is not known; `trouble` is what it says is wrong with it, as with its Ductile.
    """

    step: int
    task: str | None
    round: int | None
    tool: str
    command: str
    attempt: int
    route: str
    executor: str | None
    requested_at: datetime
    deadline_at: datetime
    retry_at: datetime | None
    present: bool | None = None
    trouble: str = ""


def step_views(run: RunState, history: History) -> tuple[StepView, ...]:
    """In the order of their numbers."""
    told = [_task(run, item) for item in as_tree(history.of_kind("task"))]
    return tuple(
        [
            StepView(
                step=item.step,
                execution=item.execution,
                tasks=tuple([TaskView(**task) for step, task in told if step == item.step]) if told else (),
                **_request(run, item),
                summary=_summary(item),
                error=item.error,
            )
            for item in sorted(history.of_kind("step"), key=attrgetter("step"))
        ]
    )


def _request(run: RunState, item: Item) -> dict[str, Any]:
    told = {"tool": item.tool, "command": item.command, "attempt": item.attempt, "status": _status(item)}
    return told | {"child_run_id": _child(run, item)}


def _child(run: RunState, item: Item) -> str | None:
    children = [c.run_id for c in run.children if (c.step, c.task, c.round) == item.name] if run.children else None
    return children[-1] if children else None


def _task(run: RunState, item: Item) -> tuple[int | None, dict[str, Any]]:
    return item.step, {
        **_request(run, item),
        "id": item.task,
        "round": item.round,
        "depends_on": item.needs,
        "asked_by": asker_of(item.task or "") or None,
        "query": item.query or None,
        "reason": item.reason,
        "summary": item.summary if item.outcome and not item.error else "",
        "error": item.error if item.outcome else None,
        "started_at": item.started_at if item.attempt else None,
        "ended_at": item.ended_at,
    }


def _status(item: Item) -> StepStatus:
    if item.outcome in ("ok", "error", "continuation", "budget"):
        return item.outcome
    if item.ended_at:
        return "unfinished"
    return "waiting" if item.status == "waiting" or not item.attempt else "pending"


def _summary(item: Item) -> str:
    if item.outcome or item.ended_at:
        return item.summary or (item.error.message if item.error else "")
    if item.error:
        return f"it failed before: {item.error.message}"
    return f"asks for more: {item.summary}" if item.summary else ""


def step_detail(run: RunState, records: Sequence[Record], step: int) -> StepDetail | None:
    """`records`: the whole journal."""
    history = History(records)
    item = next(iter(history.of_kind("step", step)), None)
    if item is None:
        return None
    skill = run.brief.skill(item.tool or "")
    return StepDetail(
        run_id=run.run_id,
        step=step,
        tool=item.tool or "",
        command=item.command or "",
        executor=skill.executor if skill else None,
        child_run_id=_child(run, item),
        attempts=_attempts(history, records, item),
        tasks=tuple(
            TaskDetail(
                **_task(run, task)[1],
                arguments=task.about.get("arguments", {}),
                approved_by=task.about.get("approved_by"),
                attempts=_attempts(history, records, task),
            )
            for task in as_tree(history.of_kind("task", step))
        ),
        **item.about,
    )


def _attempts(history: History, records: Sequence[Record], of: Item) -> tuple[AttemptView, ...]:
    """With the one that waits to be sent again. A late result counts as that of the attempt that it names."""
    below = [one for one in history.items if one.parent == of.id]
    late = {one.attempt: one for one in below if one.id.startswith("result:")}
    own = (one for one in below if ":attempt:" in one.id or (one.kind == "wait" and not one.ended_at))
    return tuple(_attempt(records, one, late.get(one.attempt, one)) for one in own)


def _attempt(records: Sequence[Record], item: Item, answered: Item) -> AttemptView:
    is_wait, seq = item.kind == "wait", answered.answered_in
    result = result_of(records[seq - 1], item.step or 0) if seq else None
    return AttemptView(
        attempt=item.attempt or 1,
        requested_at=None if is_wait else item.started_at,
        deadline_at=None if is_wait else item.until,
        completed_at=result.completed_at if result else None,
        status=answered.status,
        result=result.result.model_dump(mode="json", exclude_none=True) if result and result.result else None,
        error=item.error,
        execution=str(item.execution) if item.execution else None,
    )


def pending_views(run: RunState, present: frozenset[str] | None, trouble: str) -> Iterator[PendingView]:
    """`present`: executors that answered the last catalog query; `trouble` is of the first."""
    for place, pending in enumerate(run.pendings):
        executor = executor_of(run, pending)
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
            retry_at=pending.retry_at,
            present=None if present is None or executor is None else executor in present,
            trouble="" if place else trouble,
        )
