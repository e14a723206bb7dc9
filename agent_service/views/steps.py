"""The steps of a run with their tasks and attempts, in short and in full, and what is in flight."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from operator import attrgetter
from typing import Any

from pydantic import ConfigDict, Field, JsonValue

from agent_service.core.state import RunState
from agent_service.history.history import History
from agent_service.history.items import Failure, Item, ItemStatus, as_tree
from agent_service.history.plain import View
from agent_service.history.results import Execution, result_of
from agent_service.history.waiting_for import executor_of
from agent_service.run.journal import Record


class _OfItem(View):
    """What an item of the history says, by the same names."""

    model_config = ConfigDict(extra="ignore")


class RequestView(_OfItem):
    """A step or a task of it. `attempt` is the newest, 0 before the first request is sent. `error` and `execution` are
    of the newest attempt that was answered. `child_run_id` is the run that works on it, where it asks an agent.

    `status`: `open` once it is sent, or asked for more; `cancelled`: its step or its run ended before.
    """

    step: int
    tool: str
    command: str
    attempt: int
    status: ItemStatus
    summary: str
    error: Failure | None
    execution: Execution | None
    child_run_id: str | None


class TaskView(RequestView):
    """A sub-request of a step, named by `task` and `round` as in the keys of its messages. A task `task-1.task-2` was
    asked for by `task-1`. `query` is of a retrieval, `reason` is why it was asked for, `needs` the tasks before it.
    """

    task: str
    round: int
    needs: tuple[str, ...]
    query: str
    reason: str
    started_at: datetime
    ended_at: datetime | None


class StepView(RequestView):
    """One step. `tasks` is what its tool asked for before it could answer, each task followed by its own."""

    tasks: tuple[TaskView, ...]


class AttemptView(_OfItem):
    """One attempt, that which waits to be sent, or a result that came late. `result` is all that the tool brought.

    `until`: when its answer is due, or when it is sent. `status` is `refused` for a result that changes nothing.
    """

    attempt: int
    status: ItemStatus
    text: str
    started_at: datetime
    ended_at: datetime | None
    until: datetime | None
    result: dict[str, JsonValue] | None
    error: Failure | None
    execution: Execution | None


class TaskDetail(TaskView):
    """A sub-request of a step in full. `approved_by` is the person who allowed it; null where none had to."""

    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    approved_by: str | None = None
    attempts: tuple[AttemptView, ...]


class StepDetail(RequestView):
    """One step in full. `route` is where its requests go; `executor` is who was asked, null where it tells no name.

    `attempts` are those of its own request, `tasks` what its tool asked for before it could answer, and each time that
    it was asked again. `approved_by` is as in TaskDetail.
    """

    run_id: str
    route: str
    executor: str | None
    arguments: dict[str, JsonValue]
    expected: str
    risk: str
    rationale: str
    approved_by: str | None
    attempts: tuple[AttemptView, ...]
    tasks: tuple[TaskDetail, ...]


class PendingView(_OfItem):
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


def _told(value: Any, **more: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)} | more


def step_views(history: History) -> tuple[StepView, ...]:
    """In the order of their numbers."""
    tasks = defaultdict[int | None, list[dict[str, Any]]](list)
    for task in as_tree(history.of_kind("task")):
        tasks[task.step].append(_told(task))
    steps = sorted(history.of_kind("step"), key=attrgetter("step"))
    return tuple([StepView.model_validate(_told(item, tasks=tasks[item.step])) for item in steps])


def step_detail(run: RunState, records: Sequence[Record], step: int) -> StepDetail | None:
    """`records`: the whole journal."""
    history = History(records)
    item = next(iter(history.of_kind("step", step)), None)
    if item is None:
        return None
    skill = run.brief.skill(item.tool or "")
    tasks = as_tree(history.of_kind("task", step))
    about = {"run_id": run.run_id, "executor": skill.executor if skill else None}
    return StepDetail.model_validate(
        _in_full(history, records, item) | about | {"tasks": [_in_full(history, records, task) for task in tasks]}
    )


def _in_full(history: History, records: Sequence[Record], item: Item) -> dict[str, Any]:
    below = (one for one in history.items if one.parent == item.id)
    attempts = [one for one in below if one.kind == "attempt" or (one.kind == "wait" and not one.ended_at)]
    return _told(item, **item.about, attempts=tuple(_attempts(records, attempts)))


def _attempts(records: Sequence[Record], attempts: Iterable[Item]) -> Iterator[dict[str, Any]]:
    for item in attempts:
        result = result_of(records[item.answered_in - 1], item.step or 0) if item.answered_in else None
        brought = result.result.model_dump(mode="json", exclude_none=True) if result and result.result else None
        yield _told(item, result=brought)


def pending_views(run: RunState, present: frozenset[str] | None, trouble: str) -> tuple[PendingView, ...]:
    """`present`: executors that answered the last catalog query; `trouble` is of the first."""
    views = list[PendingView]()
    for pending in run.pendings:
        executor = executor_of(run, pending)
        about = {"task": pending.task or None, "round": pending.round or None, "executor": executor}
        about |= {"tool": pending.action.tool, "command": pending.action.command, "trouble": "" if views else trouble}
        answers = None if present is None or executor is None else executor in present
        views.append(PendingView.model_validate(_told(pending, **about, present=answers)))
    return tuple(views)
