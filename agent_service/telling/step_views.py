"""Steps as the API shows them: what came of each, and of the one under way for whom the run waits. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from agent_service.core.acting import summary_of
from agent_service.core.events import ToolReturned
from agent_service.core.state import RunState, StepRecord
from agent_service.core.waiting import Pending
from agent_service.journal import Entry
from agent_service.telling.executions import Execution, execution_of
from agent_service.telling.steps import Unfinished, executor_of, unfinished
from schemas.events import Instant, ToolResult

StepStatus = Literal["ok", "error", "pending", "waiting", "unfinished"]
"""`waiting`: a retry waits to be sent. `unfinished`: under way when the run ended."""


class View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class StepErrorView(View):
    """Why the newest attempt that was answered failed."""

    error_class: str = Field(alias="class")
    message: str


class StepView(View):
    """One step. `attempt` is its newest; `error` and `execution` are told of the newest that was answered."""

    step: int
    tool: str
    command: str
    attempt: int
    status: StepStatus
    summary: str = ""
    error: StepErrorView | None = None
    execution: Execution | None = None


class PendingView(View):
    """The attempt whose result the run waits for; with `retry_at`, the attempt that is sent then.

    `executor` is who was asked for it, by the route of that name; null where it tells no name. It was asked at
    `requested_at` and is given up at `deadline_at`. `present` says whether the executor answered when it was last asked
    for its tools, and is null where nobody can tell; `trouble` is what it says is wrong with it, as with its Ductile.
    """

    step: int
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


def step_views(run: RunState, entries: Sequence[Entry]) -> Iterator[StepView]:
    """All steps in order, the one under way last; without the journal, no more than the state knows of them."""
    results = _newest_results(entries)
    for record in run.completed:
        yield _finished(record, results.get(record.step))
    under_way, left = run.pending, unfinished(run)
    if under_way:
        result = results.get(under_way.step)
        yield _step(under_way, "waiting" if run.retry_at else "pending", result, _before(result))
    if left:
        result = _of(left, results)
        yield _step(left, "unfinished", result, _afterwards(run, left, result))


def pending_view(run: RunState, pending: Pending, present: frozenset[str] | None, trouble: str) -> PendingView:
    """The pending attempt. `present` are the executors that answered when they were last asked."""
    executor = executor_of(run, pending)
    return PendingView(
        step=pending.step,
        tool=pending.action.tool,
        command=pending.action.command,
        attempt=pending.attempt,
        route=pending.route,
        executor=executor,
        requested_at=pending.requested_at,
        deadline_at=pending.deadline_at,
        retry_at=run.retry_at,
        present=None if present is None or executor is None else executor in present,
        trouble=trouble,
    )


def _finished(record: StepRecord, result: ToolResult | None) -> StepView:
    return StepView(
        step=record.step,
        tool=record.tool,
        command=record.command,
        attempt=record.attempt,
        status=record.status,
        summary=record.summary,
        error=_error(result),
        execution=execution_of(result) if result else None,
    )


def _step(of: Pending | Unfinished, status: StepStatus, result: ToolResult | None, summary: str) -> StepView:
    return StepView(
        step=of.step,
        tool=of.action.tool,
        command=of.action.command,
        attempt=of.attempt,
        status=status,
        summary=summary,
        error=_error(result),
        execution=execution_of(result) if result else None,
    )


def _error(result: ToolResult | None) -> StepErrorView | None:
    if result is None or result.error is None or result.status == "ok":
        return None
    return StepErrorView(error_class=result.error.error_class, message=result.error.message)


def _before(result: ToolResult | None) -> str:
    """What came of the attempt before the one that is waited for."""
    return f"attempt {result.attempt} failed: {summary_of(result)}" if result else ""


def _of(left: Unfinished, results: Mapping[int, ToolResult]) -> ToolResult | None:
    """The newest result of the step itself; what answered for it under another tool's name is none."""
    result = results.get(left.step)
    return result if result and result.tool == left.action.tool else None


def _afterwards(run: RunState, left: Unfinished, result: ToolResult | None) -> str:
    """What came of the step, at last after the run's end: for whoever has to know whether it did its work."""
    if result and (left.step, left.attempt) in run.late:
        return f"after the end of the run: {result.status}: {summary_of(result)}"
    if run.reason.startswith(f"step {left.step}: "):  # the run ended by it, perhaps without any answer
        return run.reason.removeprefix(f"step {left.step}: ")
    return _before(result)


def _newest_results(entries: Iterable[Entry]) -> dict[int, ToolResult]:
    """The last result of each step, by its number; a late one counts."""
    events = (entry.decoded() for entry in entries if entry.kind == ToolReturned.__name__)
    return {event.result.step: event.result for event in events if isinstance(event, ToolReturned)}
