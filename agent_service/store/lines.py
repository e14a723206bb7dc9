"""Run lists: one line per run, and the filter of a list."""

import json
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from agent_service.core.state import RunState
from agent_service.core.waiting import (
    BUDGET_PREFIX,
    Acting,
    Approval,
    Ended,
    NeedsPerson,
    Question,
    Sleeping,
    Status,
    Stop,
    Thinking,
)
from schemas.values import dataclass

WaitsForKind = Literal["model", "model_retry", "tool", "tool_retry", "time", "approval", "question", "budget", "child"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsFor:
    """The event that a running run waits for, or the action that a paused one needs from a person.

    `since`: when a tool was asked, else when the newest entry was made. `until`: when the wait is given up or the call
    is retried; null if only a person can move the run.
    """

    kind: WaitsForKind
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run in a list. `class` names its ending or the reason of its pause; `steps` counts those begun, `tool` is the
    newest's; `cost_usd` is null where a price is not known. Steps, tokens and cost include those of child runs, which
    have a `parent_run_id`. `models` are those that replied. `caller` is as quotas know it.

    `damaged`: the unreadable part of a run that is left alone; empty if the run is readable.
    """

    run_id: str
    status: Status
    wake_id: str
    caller: str = ""
    goal: str
    summary: str
    accepted_at: datetime
    updated_at: datetime
    ended_at: datetime | None = None
    ending_class: Annotated[str, Field(alias="class")] = ""
    steps: int = 0
    tool: str | None = None
    tokens: int = 0
    cost_usd: float | None = None
    models: tuple[str, ...] = ()
    parent_run_id: str | None = None
    waiting_for: WaitsFor | None = None
    damaged: str = ""


@dataclass(frozen=True, slots=True)
class Sum:
    """Totals of the runs with the same status, failure class, model or tool. Steps of a child count for its parent, but
    its tools for itself. `unpriced` runs have an unknown cost.
    """

    kind: Literal["status", "failure", "model", "tool"]
    name: str
    runs: int
    unpriced: int
    cost_usd: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Filter of a list; all set fields must match. `statuses`: any of them. `text`: in goal, summary or id, ignoring
    case. `run`: part of the id. `tool`: used or planned. `since`, `until`: acceptance, `until` excluded.
    """

    statuses: frozenset[Status] = frozenset()
    text: str = ""
    run: str = ""
    tool: str = ""
    since: datetime | None = None
    until: datetime | None = None
    wake_id: str = ""
    caller: str = ""


EVERY_RUN = RunFilter()


def line_of(run: RunState) -> RunLine:
    columns = {name: value for name, value in list_columns(run, run.due_at).items() if name not in UNLISTED}
    return RunLine(
        run_id=run.run_id,
        status=run.status,
        wake_id=run.wake_id,
        caller=run.brief.caller,
        goal=run.brief.goal,
        summary=str(run.summary),
        accepted_at=run.accepted_at,
        updated_at=run.updated_at,
        **columns,
    )


UNLISTED = frozenset({"tools", "artifacts", "reserved_usd"})
"""Columns of a row that lists do not show: tools used or planned, number of artifacts, USD reserved for its model call.
"""

_TOOL, _RETRY_AT, _REQUESTED_AT, _GRANT = map(attrgetter, ("tool", "retry_at", "requested_at", "grant"))
_line = cache(lambda: TypeAdapter(RunLine))


def list_columns(run: RunState, due_at: datetime | None) -> dict[str, Any]:
    """JSON columns of a run beside its row, UNLISTED included, without empty ones. `due_at`: of the run."""
    tools = set(map(_TOOL, (*run.completed, *(run.plan.actions if run.plan else ()))))
    waiting, stop, tool = run.waiting, run.stop, None
    if run.completed and run.completed[-1].step == run.step:
        tool = run.completed[-1].tool
    elif run.step and run.plan:
        tool = run.plan.action.tool
    reserve = waiting.reserve if isinstance(waiting, Thinking) else None
    columns = {
        "ended_at": waiting.at if isinstance(waiting, Ended) else None,
        "ending_class": stop.ending_class if stop else None,
        "steps": run.step + run.spent.child_steps,
        "tool": tool,
        "tokens": run.spent.tokens,
        "cost_usd": run.spent.cost_usd,
        "models": tuple(run.measured),
        "parent_run_id": run.brief.parent.run_id if run.brief.parent else None,
        "waiting_for": waits_for(run, due_at),
        "tools": sorted(tools),
        "artifacts": len(run.artifacts) or None,
        "reserved_usd": reserve.cost_usd if reserve else None,
    }
    return {name: value for name, value in columns.items() if value or value == 0}


def parse_line(row: dict[str, object], columns: str) -> RunLine:
    """Raises ValueError."""
    return _line().validate_python({**json.loads(columns), **row}, by_name=True)


def waits_for(run: RunState, due_at: datetime | None) -> WaitsFor | None:
    """None for a run that has not begun or has ended. `due_at`: of the run."""
    kind: WaitsForKind | None = None
    since: datetime | None = None
    match run.waiting:
        case Thinking(still_since=datetime() as since):
            kind = "budget"
        case Thinking(retry_at=at):
            kind = "model_retry" if at else "model"
        case Acting(pendings=pendings) if pendings:
            retried = None not in map(_RETRY_AT, pendings)
            kind = "tool_retry" if retried else "tool"
            kind = "child" if None not in map(_GRANT, pendings) else kind
            since = None if retried else min(map(_REQUESTED_AT, pendings))
        case Acting():
            kind = "tool"
        case Sleeping(since=since):
            kind = "time"
        case NeedsPerson(ask=Stop(ending_class=ending_class)):
            kind = "budget" if ending_class.startswith(BUDGET_PREFIX) else "model"
        case NeedsPerson(ask=Approval() | Question() as ask, since=since):
            kind = ask.kind
    return WaitsFor(kind=kind, since=since or run.updated_at, until=due_at) if kind else None
