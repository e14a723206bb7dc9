"""The result of a request to the tool `agent`: the end of its run, or why there is none.

Every end but done is an error without retry. Untrusted content in the child taints its result.
"""

from datetime import datetime

from pydantic import JsonValue

from agent_service.core import acting
from agent_service.core.brief import Parent
from agent_service.core.state import RunState
from agent_service.core.waiting import Ended, Status
from agent_service.run.messages import Publish, publish
from schemas import catalog, keys, subjects
from schemas.catalog import ChildUsage
from schemas.events import ToolError, ToolOutput, ToolResult

LONGEST_MESSAGE = 8000
_ENDED = {Status.ESCALATED: "could not go on", Status.FAILED: "failed", Status.CANCELLED: "was cancelled"}


def told(result: ToolResult) -> Publish:
    """Under one id however often it is told. The publisher adds the capability of the request."""
    asked = (result.run_id, result.step, result.attempt or 1)
    return publish(
        subjects.TOOL_RESULT,
        result,
        keys.result(*asked, result.task, result.round),
        about=result.run_id,
        proves=keys.proven(*asked, result.tool, result.task, result.round),
    )


def ended(state: RunState) -> ToolResult | None:
    """The end of a run that is a step, from its own state alone; None for any other run."""
    parent, waiting = state.brief.as_step, state.waiting
    if parent is None or not isinstance(waiting, Ended):
        return None
    done = state.status is Status.DONE
    doubts = _doubts(state, waiting)
    output = _output(state, waiting, doubts)
    return _result(parent, waiting.at, output, None if done else _error(state, doubts)).model_copy(
        update={"untrusted": bool(state.tainted_by)}
    )


def refused(parent: Parent, why: str, *, at: datetime) -> ToolResult:
    """No run was woken, and nothing is spent."""
    error = ToolError(error_class="invalid_arguments", message=why[:LONGEST_MESSAGE], retryable=False)
    return _result(parent, at, {"usage": ChildUsage().model_dump()}, error)


def lost(parent: Parent, run_id: str, why: str, *, at: datetime) -> ToolResult:
    """Its run cannot be read. It tells no usage, so that all of the grant is spent."""
    message = f"what became of the run {run_id}, and whether it wrote anything, cannot be read any more: {why}"
    return _result(parent, at, None, ToolError(error_class="child_lost", message=message, retryable=False))


def _result(parent: Parent, at: datetime, output: dict[str, JsonValue] | None, error: ToolError | None) -> ToolResult:
    return ToolResult(
        run_id=parent.run_id,
        step=parent.step,
        tool=catalog.NAME,
        status="error" if error else "ok",
        result=ToolOutput.model_validate(output) if output else None,
        error=error,
        completed_at=at,
        attempt=parent.attempt,
        task=parent.task or None,
        round=parent.round or None,
    )


def _output(state: RunState, waiting: Ended, doubts: list[dict[str, JsonValue]]) -> dict[str, JsonValue]:
    spent = waiting.stop.spent
    usage = ChildUsage.model_validate(spent, from_attributes=True)
    output: dict[str, JsonValue] = {
        "summary": str(state.outcome or state.reason),
        "run_id": state.run_id,
        "status": state.status.value,
        "usage": usage.model_copy(update={"steps": state.step + spent.child_steps}).model_dump(),
    }
    if not state.brief.limits.deadline_named:
        output["deadline_at"] = state.brief.limits.deadline_at.isoformat()
    if state.artifacts:
        output["artifacts"] = [{"path": path} for path in state.artifacts]
    if doubts:
        output["doubts"] = [*doubts]
    return output


def _doubts(state: RunState, waiting: Ended) -> list[dict[str, JsonValue]]:
    """Its own, and each write that was out when it ended."""
    left = (p for p in waiting.out if p.grant is None and not acting.is_repeatable(state, p))
    known = dict.fromkeys((doubt.tool, doubt.call) for doubt in (*state.doubts, *map(acting.doubt_of, left)))
    return [{"tool": tool, "call": call} for tool, call in known]


def _error(state: RunState, doubts: list[dict[str, JsonValue]]) -> ToolError:
    facts = "".join(f"\n- {fact}" for fact in state.facts)
    doubted = ", ".join(sorted({str(doubt["tool"]) for doubt in doubts}))
    parts = (
        f"the run {state.run_id} {_ENDED[state.status]} ({state.ending_class}): {state.reason}",
        f"whether its write by {doubted} was carried out is not known" if doubted else "",
        f"it had learned:{facts}" if facts else "",
    )
    message = "; ".join(filter(None, parts))[:LONGEST_MESSAGE]
    return ToolError(error_class=f"child_{state.status}", message=message, retryable=False)
