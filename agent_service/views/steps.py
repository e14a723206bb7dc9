"""One step of a run in full, with its tasks and attempts, and what is in flight."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from agent_service.core.state import RunState
from agent_service.history.history import History
from agent_service.history.items import Item, as_tree
from agent_service.history.plain import View
from agent_service.history.results import result_of
from agent_service.history.waiting_for import executor_of
from agent_service.run.journal import Record


class PartView(View):
    """The step, a task that its tool asked for before it could answer, an attempt, or a wait between two.

    `about`: of the step and of tasks. `arguments`; `approved_by`, the person who allowed it, null where none had to;
    of the step, `route`, `expected`, `risk` and `rationale`; of a task, `query`, `reason`, why it was asked for, and
    `needs`, the tasks before it. `result`: all that the tool brought.
    """

    item: Item
    about: dict[str, Any]
    result: dict[str, JsonValue] | None


class StepDetail(View):
    """One step in full, each of its `parts` followed by its own. `executor` is who was asked, null where it tells no
    name.
    """

    run_id: str
    executor: str | None
    parts: tuple[PartView, ...]


def step_detail(run: RunState, records: Sequence[Record], step: int) -> StepDetail | None:
    """`records`: the whole journal."""
    items = [item for item in History(records).by_id.values() if item.step == step and item.kind != "phase"]
    if not items:
        return None
    skill = run.brief.skill(items[0].tool or "")
    parts = tuple(_part(item, records) for item in as_tree(items))
    return StepDetail(run_id=run.run_id, executor=skill.executor if skill else None, parts=parts)


def _part(item: Item, records: Sequence[Record]) -> PartView:
    answered = item.answered_in if item.kind == "attempt" else 0
    result = result_of(records[answered - 1], item.step or 0) if answered else None
    brought = result.result.model_dump(mode="json", exclude_none=True) if result and result.result else None
    return PartView(item=item, about=item.about, result=brought)


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


_AS_IT_IS = ("step", "attempt", "route", "requested_at", "deadline_at", "retry_at")


def pending_views(run: RunState, present: frozenset[str] | None, trouble: str) -> tuple[PendingView, ...]:
    """`present`: executors that answered the last catalog query; `trouble` is of the first."""
    views = list[PendingView]()
    for pending in run.pendings:
        executor = executor_of(run, pending)
        view = PendingView(
            **{name: getattr(pending, name) for name in _AS_IT_IS},
            task=pending.task or None,
            round=pending.round or None,
            tool=pending.action.tool,
            command=pending.action.command,
            executor=executor,
            present=None if present is None or executor is None else executor in present,
            trouble="" if views else trouble,
        )
        views.append(view)
    return tuple(views)
