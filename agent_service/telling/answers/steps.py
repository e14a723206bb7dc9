"""The steps of a run in short, and what is in flight."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from agent_service.core.graph.continuing import BAD
from agent_service.core.state import RunState, StepRecord
from agent_service.core.tools.attempts import Flight, Pending
from agent_service.core.tools.flights import flights, gatherings
from agent_service.telling.acts import Execution, Unfinished, executor_of, unfinished
from agent_service.telling.heard import NewestResult
from agent_service.telling.plain import View
from agent_service.telling.tasks import FailureView, Tasks, TaskView, child_of
from schemas.fields import Instant

StepStatus = Literal["ok", "error", "budget", "pending", "waiting", "unfinished"]


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


def step_views(run: RunState, results: Mapping[int, NewestResult], tasks: Tasks) -> Iterator[StepView]:
    """In the order of their numbers. `results` are the newest by step."""
    for view in sorted(_step_views(run, results), key=lambda view: view.step):
        beneath = {"tasks": tasks.of(view.step), "child_run_id": child_of(run, (view.step, "", 0))}
        yield view.model_copy(update=beneath)


def _step_views(run: RunState, results: Mapping[int, NewestResult]) -> Iterator[StepView]:
    for record in run.completed:
        told = {name: getattr(record, name) for name in ("step", "tool", "command", "attempt", "status", "summary")}
        result = results.get(record.step)
        yield StepView(**told, **_how(result) | _ended(record, result))
    for gathering in gatherings(run.waiting):
        result = results.get(gathering.step)
        yield _step(gathering.first, "pending", result, _before(result))
    for flight in flights(run.waiting):
        if flight.pending.task:
            continue
        result = results.get(flight.pending.step)
        yield _step(flight.pending, "waiting" if flight.retry_at else "pending", result, _before(result))
    for left in unfinished(run):
        result = _of(left, results)
        yield _step(left, "unfinished", result, _afterwards(run, left, result))


def pending_views(run: RunState, present: frozenset[str] | None, trouble: str) -> Iterator[PendingView]:
    """`present`: executors that answered the last catalog query; `trouble` is of the first."""
    for place, flight in enumerate(flights(run.waiting)):
        yield _pending(run, flight, present, "" if place else trouble)


def _pending(run: RunState, flight: Flight, present: frozenset[str] | None, trouble: str) -> PendingView:
    pending = flight.pending
    executor = executor_of(run, pending)
    return PendingView(
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
        trouble=trouble,
    )


def _step(of: Pending | Unfinished, status: StepStatus, result: NewestResult | None, summary: str) -> StepView:
    action = of.action
    told = {"step": of.step, "tool": action.tool, "command": action.command, "attempt": of.attempt, "summary": summary}
    return StepView(status=status, **told, **_how(result))


def _how(result: NewestResult | None) -> dict[str, Any]:
    if result is None:
        return {}
    failed = result.error
    error = FailureView(error_class=failed.error_class, message=failed.message) if failed else None
    return {"error": error, "execution": result.execution}


def _ended(record: StepRecord, result: NewestResult | None) -> dict[str, Any]:
    if record.status == "ok":
        return {"error": None}
    asked = result is not None and result.status == "continuation"
    error_class = "budget" if record.status == "budget" else BAD if asked else ""
    return {"error": FailureView(error_class=error_class, message=record.summary)} if error_class else {}


def _before(result: NewestResult | None) -> str:
    if result is None:
        return ""
    if result.status == "continuation":
        return f"asks for more: {result.summary}"
    return f"attempt {result.attempt} failed: {result.summary}"


def _of(left: Unfinished, results: Mapping[int, NewestResult]) -> NewestResult | None:
    result = results.get(left.step)
    return result if result and result.tool == left.action.tool else None


def _afterwards(run: RunState, left: Unfinished, result: NewestResult | None) -> str:
    if result and (left.step, left.attempt) in run.late:
        return f"after the end of the run: {result.status}: {result.summary}"
    if run.reason.startswith(f"step {left.step}: "):  # the run ended by it, perhaps without any answer
        return run.reason.removeprefix(f"step {left.step}: ")
    return _before(result)
