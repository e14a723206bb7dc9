"""Reporting: the end of a child as the result of its parent's step, from the child's state alone.

Every end but done is an error without retry. Untrusted content in the child taints its result.
"""

from pydantic import JsonValue

from agent_service.core.effects import Publish, publish
from agent_service.core.events import Event, ToolReturned
from agent_service.core.state import RunState, replace
from agent_service.core.tools import acting, doubting, results
from agent_service.core.tools.attempts import Pending
from agent_service.core.tools.flights import flights
from agent_service.core.waiting import Ended, Status
from schemas import catalog, keys, subjects
from schemas.catalog import ChildUsage
from schemas.events import ToolError, ToolOutput, ToolResult

LONGEST_MESSAGE = 8000
IN_DOUBT = "in_doubt"


def report(state: RunState) -> tuple[Publish, ...]:
    if state.brief.as_step is None or not state.final:
        return ()
    told = result(state)
    key = keys.result(told.run_id, told.step, told.attempt or 1, told.task or "", told.round or 0)
    proves = keys.proven(told.run_id, told.step, told.attempt or 1, told.tool, told.task, told.round)
    return (publish(subjects.TOOL_RESULT, told, key, about=told.run_id, proves=proves),)


def result(state: RunState) -> ToolResult:
    parent = state.brief.as_step
    assert parent is not None, "a child is a step"
    assert isinstance(state.waiting, Ended), "it has ended"
    return ToolResult(
        run_id=parent.run_id,
        step=parent.step,
        tool=catalog.NAME,
        status="ok" if state.status is Status.DONE else "error",
        result=ToolOutput.model_validate(_output(state)),
        error=None if state.status is Status.DONE else _error(state),
        completed_at=state.waiting.at,
        attempt=parent.attempt,
        untrusted=bool(state.strangers),
        task=parent.task or None,
        round=parent.round or None,
    )


def _output(state: RunState) -> dict[str, JsonValue]:
    output: dict[str, JsonValue] = {
        "summary": state.outcome or state.reason,
        "run_id": state.run_id,
        "status": state.status.value,
        "usage": _usage(state).model_dump(),
    }
    if not state.brief.limits.deadline_named:
        output["deadline_at"] = state.brief.limits.deadline_at.isoformat()
    if state.artifacts:
        output["artifacts"] = [{"path": path} for path in state.artifacts]
    if state.doubts:
        output["doubts"] = [{"tool": doubt.tool, "call": doubt.call} for doubt in state.doubts]
    return output


def _usage(state: RunState) -> ChildUsage:
    assert state.stop, "it has ended"
    spent = state.stop.spent
    known = ChildUsage.model_validate(spent, from_attributes=True)
    return known.model_copy(update={"steps": state.step + spent.child_steps})


def _error(state: RunState) -> ToolError:
    facts = "".join(f"\n- {fact}" for fact in state.facts)
    doubts = ", ".join(sorted({doubt.tool for doubt in state.doubts}))
    parts = (
        f"the run {state.run_id} {_ENDED[state.status]} ({state.ending_class}): {state.reason}",
        f"whether its write by {doubts} was carried out is not known" if doubts else "",
        f"it had learned:{facts}" if facts else "",
    )
    message = "; ".join(filter(None, parts))[:LONGEST_MESSAGE]
    return ToolError(error_class=f"child_{state.status}", message=message, retryable=False)


_ENDED = {Status.ESCALATED: "could not go on", Status.FAILED: "failed", Status.CANCELLED: "was cancelled"}


def with_open_writes(before: RunState, event: Event, ended: RunState) -> RunState:
    if not isinstance(ended.waiting, Ended):
        return ended
    told = event.result if isinstance(event, ToolReturned) else None
    doubted = [
        doubting.of(flight.pending)
        for flight in flights(before.waiting)
        if flight.retry_at is None
        and not acting.is_repeatable(before, flight.pending)
        and not _is_known(ended.waiting, flight.pending, told)
    ]
    new = tuple(doubt for doubt in doubted if doubt not in ended.doubts)
    return replace(ended, doubts=(*ended.doubts, *new)) if new else ended


def _is_known(ended: Ended, pending: Pending, told: ToolResult | None) -> bool:
    came = told if told and (told.step, told.task or "", told.round or 0) == pending.name else None
    if came is not None:
        return came.error is None or came.error.error_class != IN_DOUBT
    return results.known(ended, pending) is not None
