"""One step of a run in full: what was asked of its tool and why, and all that came back."""

from collections.abc import Sequence

from pydantic import JsonValue

from agent_service.core.events import ToolReturned
from agent_service.core.state import RunState
from agent_service.history.history import History
from agent_service.history.items import Item, ItemStatus
from agent_service.history.plain import View
from agent_service.run.journal import Record
from agent_service.views.steps import TaskView, child_of, task_views
from agent_service.views.timeline import ErrorView
from schemas.events import ToolResult
from schemas.fields import Instant


class AttemptView(View):
    """One attempt. `result` is all that the tool brought; `execution` is how its executor carried it out.

    `status` is `open` while it is waited for, `waiting` before it is sent, `cancelled` where it was under way when the
    run ended, and `refused` for a result that came after that.
    """

    attempt: int
    requested_at: Instant | None
    deadline_at: Instant | None
    completed_at: Instant | None = None
    status: ItemStatus
    result: dict[str, JsonValue] | None = None
    error: ErrorView | None = None
    execution: str | None = None


class TaskDetail(TaskView):
    """A sub-request of a step in full. `approved_by` is as in StepDetail."""

    arguments: dict[str, JsonValue]
    approved_by: str | None
    attempts: tuple[AttemptView, ...]


class StepDetail(View):
    """One step. `route` is where its requests go; `executor` is who was asked, null where it tells no name.

    `approved_by` is the person who allowed it; null where nobody had to. `attempts` are those of its own request,
    `tasks` what its tool asked for before it could answer, and each time that it was asked again. `child_run_id` is as
    in the run's view.
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


def step_detail(run: RunState, records: Sequence[Record], step: int) -> StepDetail | None:
    """`records`: the whole journal."""
    history = History(records)
    item = next(iter(history.requests.of_kind("step", step)), None)
    if item is None:
        return None
    skill = run.brief.skill(item.tool or "")
    own = [one for one in _attempts(history, step) if not one.task]
    return StepDetail(
        run_id=run.run_id,
        step=step,
        tool=item.tool or "",
        command=item.command or "",
        executor=skill.executor if skill else None,
        child_run_id=child_of(run, item),
        attempts=tuple(_attempt(records, one) for one in own),
        tasks=tuple(_task(history, records, view, step) for view in task_views(run, history, step)),
        **item.about,
    )


def _attempts(history: History, step: int) -> list[Item]:
    """Those that wait to be sent again too; late results count as the attempt they are of."""
    attempts = {one.id: one for one in history.requests.of_kind("attempt", step) if ":attempt:" in one.id}
    waits = (one for one in history.items if one.kind == "wait" and one.step == step and not one.ended_at)
    late = (one for one in history.requests.of_kind("attempt", step) if ":attempt:" not in one.id)
    answered = {f"{one.parent}:attempt:{one.attempt}": one for one in late if one.parent}
    for item_id, one in answered.items():
        if item_id in attempts:
            attempts[item_id].answered_in, attempts[item_id].status = one.answered_in, one.status
    return [*attempts.values(), *waits]


def _task(history: History, records: Sequence[Record], view: TaskView, step: int) -> TaskDetail:
    item = next(one for one in history.requests.of_kind("task", step) if (one.task, one.round) == view.key)
    of_task = (one for one in _attempts(history, step) if one.name == item.name)
    return TaskDetail(
        **view.model_dump(by_alias=True),
        arguments=item.about.get("arguments", {}),
        approved_by=item.about.get("approved_by"),
        attempts=tuple(_attempt(records, one) for one in of_task),
    )


def _attempt(records: Sequence[Record], item: Item) -> AttemptView:
    is_waiting = item.kind == "wait"
    result = _result(records, item)
    brought = result.result.model_dump(mode="json", exclude_none=True) if result and result.result else None
    return AttemptView(
        attempt=item.attempt or 1,
        requested_at=None if is_waiting else item.started_at,
        deadline_at=None if is_waiting else item.until,
        completed_at=result.completed_at if result else None,
        status=item.status,
        result=brought,
        error=ErrorView.of(item.error),
        execution=str(item.execution) if item.execution else None,
    )


def _result(records: Sequence[Record], item: Item) -> ToolResult | None:
    event = records[item.answered_in - 1].event if item.answered_in else None
    return event.result if isinstance(event, ToolReturned) else None
