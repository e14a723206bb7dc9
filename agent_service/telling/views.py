"""Runs and their steps as the API shows them: frozen pydantic models, made from states. Pure.

Texts of models and tools are shown as they are: JSON carries them, and who shows them to people makes them fit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field

from agent_service.core import proof
from agent_service.core.flights import flights
from agent_service.core.limits import budget_use
from agent_service.core.phases import Phase
from agent_service.core.remedies import remedy
from agent_service.core.state import RunState
from agent_service.core.waiting import Flight, Pending, Status
from agent_service.identity import trace_id
from agent_service.identity import trace_url as address_of_trace
from agent_service.lines import RunLine, WaitsFor, WaitsForKind, waits_for
from agent_service.telling.acts import Heard, NewestResult, Unfinished, executor_of, unfinished
from agent_service.telling.asks import AsksView, asks_view, reopens_until
from agent_service.telling.executions import Execution
from agent_service.telling.view import View
from schemas.events import BudgetUse, DoneItem
from schemas.fields import Instant

StepStatus = Literal["ok", "error", "pending", "waiting", "unfinished"]
"""`waiting`: a retry waits to be sent. `unfinished`: under way when the run ended."""


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


def step_views(run: RunState, results: Mapping[int, NewestResult]) -> Iterator[StepView]:
    """All steps in the order of their numbers. `results` are the newest by the number of their step."""
    yield from sorted(_step_views(run, results), key=lambda view: view.step)


def _step_views(run: RunState, results: Mapping[int, NewestResult]) -> Iterator[StepView]:
    for record in run.completed:
        told = {name: getattr(record, name) for name in ("step", "tool", "command", "attempt", "status", "summary")}
        yield StepView(**told, **_how(results.get(record.step)))
    for flight in flights(run.waiting):
        result = results.get(flight.pending.step)
        yield _step(flight.pending, "waiting" if flight.retry_at else "pending", result, _before(result))
    for left in unfinished(run):
        result = _of(left, results)
        yield _step(left, "unfinished", result, _afterwards(run, left, result))


def pending_views(run: RunState, present: frozenset[str] | None, trouble: str) -> Iterator[PendingView]:
    """What is under way. `present` are the executors that answered when they were last asked; `trouble` is that of the
    first."""
    for place, flight in enumerate(flights(run.waiting)):
        yield _pending(run, flight, present, "" if place else trouble)


def _pending(run: RunState, flight: Flight, present: frozenset[str] | None, trouble: str) -> PendingView:
    pending = flight.pending
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
    error = StepErrorView(error_class=failed.error_class, message=failed.message) if failed else None
    return {"error": error, "execution": result.execution}


def _before(result: NewestResult | None) -> str:
    """What came of the attempt before the one that is waited for."""
    return f"attempt {result.attempt} failed: {result.summary}" if result else ""


def _of(left: Unfinished, results: Mapping[int, NewestResult]) -> NewestResult | None:
    """The newest result of the step itself; what came for it under another tool's name is none."""
    result = results.get(left.step)
    return result if result and result.tool == left.action.tool else None


def _afterwards(run: RunState, left: Unfinished, result: NewestResult | None) -> str:
    """What came of the step, at last after the run's end: for whoever has to know whether it did its work."""
    if result and (left.step, left.attempt) in run.late:
        return f"after the end of the run: {result.status}: {result.summary}"
    if run.reason.startswith(f"step {left.step}: "):  # the run ended by it, perhaps without any answer
        return run.reason.removeprefix(f"step {left.step}: ")
    return _before(result)


class AskingView(View):
    """The model call that the run waits for; with `retry_at`, the call that is made then."""

    call: int
    phase: Phase
    retry_at: Instant | None


class WaitingForView(View):
    """What a run that is under way waits for; of a paused one, what a person has to see to.

    `since`: when it was asked (a tool), or when the newest entry was made (all else). `until`: when it is given up, or
    tried again, if nothing comes; null where only a person can move the run.
    """

    kind: WaitsForKind
    since: Instant
    until: Instant | None


class UsageView(View):
    """What the run's model calls cost; `cost_usd` is null when a price is not known.

    `cache_read_tokens` is the part of the input that came from the provider's cache. `lost_…` is what was set aside for
    calls whose reply was never heard (a crash, a cancel): perhaps paid, and counted against the limits.
    """

    calls: int
    input_tokens: int
    output_tokens: int
    tokens: int
    cost_usd: float | None
    cache_read_tokens: int
    lost_calls: int
    lost_tokens: int
    lost_cost_usd: float | None


class RemedyView(View):
    """What a person does now about a run that stopped, and the command with which it goes on."""

    text: str
    command: str


class RunView(View):
    """One run. `state` is its status; `class` names its ending or why it pauses; `steps` has the pending ones too.

    `pendings` are the attempts whose results it waits for, of which there are several only while reads run side by
    side; `pending` is the first.

    `models` are those that replied, as they name themselves; null where the journal was not asked. `asks` is what a
    person is asked. `reopened` counts the answers that set it going again after an end; until `reopens_until` an answer
    does so, null where none does.
    """

    run_id: str
    wake_id: str
    state: Status
    accepted_at: Instant
    started_at: Instant | None
    updated_at: Instant
    ended_at: Instant | None
    goal: str
    summary: str
    outcome: str
    reason: str
    ending_class: str = Field(alias="class")
    remedy: RemedyView | None
    steps: tuple[StepView, ...]
    definition_of_done: tuple[DoneItem, ...]
    budget: BudgetUse
    usage: UsageView
    pending: PendingView | None
    pendings: tuple[PendingView, ...]
    asking: AskingView | None
    waiting_for: WaitingForView | None
    asks: AsksView | None
    reopened: int
    reopens_until: Instant | None
    artifacts: tuple[str, ...]
    models: tuple[str, ...] | None
    trace_id: str
    trace_url: str | None


class RunLineView(View):
    """A run in a list. `class` names its ending or why it pauses; `steps` is how many were begun, `tool` the newest's.

    `damaged`: what of it cannot be read, so that it is left alone; empty where all is well.
    """

    run_id: str
    wake_id: str
    state: Status
    goal: str
    summary: str
    accepted_at: Instant
    updated_at: Instant
    ended_at: Instant | None
    ending_class: str = Field(alias="class")
    steps: int
    tool: str | None
    tokens: int
    cost_usd: float | None
    waiting_for: WaitingForView | None
    damaged: str = ""


def run_view(
    run: RunState,
    heard: Heard | None = None,
    *,
    trace_url: str | None = None,
    present: frozenset[str] | None = None,
    trouble: str = "",
) -> RunView:
    """The run; without what was `heard` of its journal, no more than the state knows.

    `trace_url` is where a trace is shown, with `{trace_id}` in its place; `present`: see `pending_views`.
    """
    now, pendings = remedy(run), tuple(pending_views(run, present, trouble))
    return RunView(
        run_id=run.run_id,
        wake_id=run.wake_id,
        state=run.status,
        accepted_at=run.accepted_at,
        started_at=run.started_at,
        updated_at=run.updated_at,
        ended_at=run.ended_at,
        goal=run.brief.goal,
        summary=run.summary,
        outcome=run.outcome,
        reason=run.reason,
        ending_class=run.ending_class,
        remedy=RemedyView(text=now.text, command=now.command) if now else None,
        steps=tuple(step_views(run, heard.results if heard else {})),
        definition_of_done=tuple(map(proof.told, run.done_items)),
        budget=BudgetUse(**budget_use(run)),
        usage=UsageView.model_validate(run.spent, from_attributes=True),
        pending=next(iter(pendings), None),
        pendings=pendings,
        asking=AskingView(call=run.asking.call, phase=run.asking.phase, retry_at=run.retry_at) if run.asking else None,
        waiting_for=waiting_for_view(waits_for(run.waiting, updated_at=run.updated_at, due_at=run.due_at)),
        asks=asks_view(run),
        reopened=run.reopened,
        reopens_until=reopens_until(run),
        artifacts=run.artifacts,
        models=tuple(heard.models) if heard else None,
        trace_id=trace_id(run.run_id),
        trace_url=address_of_trace(trace_url, run.run_id),
    )


def line_view(line: RunLine) -> RunLineView:
    told = asdict(line)
    del told["waits_for"]
    return RunLineView(state=told.pop("status"), waiting_for=waiting_for_view(line.waits_for), **told)


def waiting_for_view(waits_for: WaitsFor | None) -> WaitingForView | None:
    return WaitingForView(**asdict(waits_for)) if waits_for else None
