"""Acts: what came of one attempt of one step, read off the moment that told it. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from agent_service.core.acting import is_repeatable, summary_of
from agent_service.core.correlate import Relation, judge
from agent_service.core.events import TimerFired, ToolReturned
from agent_service.core.phases import Action
from agent_service.core.state import RunState
from agent_service.core.waiting import ForTool, Pending
from agent_service.telling.executions import Execution, execution_of
from agent_service.telling.moments import Moment
from agent_service.telling.plain import instant
from schemas.events import ToolError

ActStatus = Literal["ok", "error", "continuation", "late", "refused"]
"""`late`: it came after the run's end. `refused`: it was not what the run waited for (a protocol violation)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One attempt and its outcome. `action` is None where the run never planned this step."""

    step: int
    attempt: int
    tool: str
    action: Action | None
    status: ActStatus
    summary: str | None
    error: ToolError | None
    execution: Execution | None = None


def act_of(moment: Moment) -> Act | None:
    """The act that `moment` tells of, if it tells of one."""
    if moment.before is None:
        return None
    if isinstance(moment.event, ToolReturned):
        return _answered(moment, moment.before, moment.event)
    if isinstance(moment.event, TimerFired):
        return _overdue(moment.before, moment.event.at)
    return None


def _answered(moment: Moment, before: RunState, event: ToolReturned) -> Act:
    result = event.result
    relation = judge(before, result, event.place).relation
    matched = relation is Relation.MATCH
    status: ActStatus = result.status if matched else "late" if relation is Relation.LATE else "refused"
    finished = moment.after.completed[len(before.completed) :]
    said = finished[0].summary if finished else summary_of(result) if status == "late" else None
    return Act(
        step=result.step,
        attempt=result.attempt or (before.pending.attempt if before.pending else 1),
        tool=result.tool,
        action=_action(before, result.step),
        status=status,
        summary=said if result.error is None else None,
        error=result.error,
        execution=execution_of(result),
    )


def _overdue(before: RunState, at: datetime) -> Act | None:
    """The attempt that was given up because no answer came in time."""
    if not isinstance(before.waiting, ForTool):
        return None
    pending = before.waiting.pending
    if at < pending.deadline_at or at >= before.brief.limits.deadline_at:
        return None
    return Act(
        step=pending.step,
        attempt=pending.attempt,
        tool=pending.action.tool,
        action=pending.action,
        status="error",
        summary=None,
        error=_no_answer(before, pending),
    )


def _no_answer(before: RunState, pending: Pending) -> ToolError:
    repeatable = is_repeatable(before, pending)
    return ToolError(
        error_class="timeout" if repeatable else "in_doubt",
        message=f"no result by {instant(pending.deadline_at)}",
        retryable=repeatable,
    )


def _action(state: RunState, step: int) -> Action | None:
    if state.pending and state.pending.step == step:
        return state.pending.action
    return state.plan.action if state.plan and state.step == step else None
