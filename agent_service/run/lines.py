"""A run as one line of a list, and which runs a list has."""

import json
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from agent_service.core.state import RunState
from agent_service.core.waiting import (
    BUDGET_PREFIX,
    Acting,
    Approval,
    NeedsPerson,
    Question,
    Sleeping,
    Status,
    Stop,
    Thinking,
    Waiting,
)
from schemas.values import dataclass

WaitsForKind = Literal["model", "model_retry", "tool", "tool_retry", "time", "approval", "question", "budget", "child"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitsFor:
    """What a run that is under way waits for; of a paused one, what a person has to see to.

    `since`: when it was asked (a tool), or when the newest entry was made (all else). `until`: when it is given up, or
    tried again, if nothing comes; null where only a person can move the run.
    """

    kind: WaitsForKind
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """A run in a list. `class` names its ending or why it pauses; `steps` is how many were begun, `tool` the newest's;
    `cost_usd` is null where a price is not known. Steps, tokens and cost include those of its children; a child has a
    `parent_run_id`. `models` are those that replied. `caller` is as quotas know it.

    `damaged`: what of it cannot be read, so that it is left alone; empty where all is well.
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
    """Over runs that have something in common: their status, the class of their failure, a model or a tool. Steps of a
    child count for its parent, but its tools for itself. `unpriced` runs have an unknown cost.
    """

    kind: Literal["status", "failure", "model", "tool"]
    name: str
    runs: int
    unpriced: int
    cost_usd: float
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """A filter; all that is set applies. `statuses`: any of them. `text`: in goal, summary or id, in any case. `run`:
    in its id. `tool`: a step used it, or is to. `since`, `until`: when it was accepted; before `until`.
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
    columns = {name: value for name, value in list_columns(run).items() if name not in UNLISTED}
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
"""What rows have besides: all tools that a run used, or is to use; how many artifacts it has; what is set aside for its
model call."""

_line = cache(lambda: TypeAdapter(RunLine))


def list_columns(run: RunState) -> dict[str, Any]:
    """What lists show of a run besides its row, for JSON; and UNLISTED."""
    tools = {done.tool for done in run.completed}
    tools.update([action.tool for action in run.plan.actions] if run.plan else ())
    waiting = run.waiting
    reserve = waiting.reserve if isinstance(waiting, Thinking) else None
    told = {
        "ended_at": run.ended_at,
        "ending_class": run.ending_class,
        "steps": run.step + run.spent.child_steps,
        "tool": _newest_tool(run),
        "tokens": run.spent.tokens,
        "cost_usd": run.spent.cost_usd,
        "models": tuple(run.measured),
        "parent_run_id": run.brief.parent.run_id if run.brief.parent else None,
        "waiting_for": waits_for(run),
        "tools": sorted(tools),
        "artifacts": len(run.artifacts) or None,
        "reserved_usd": reserve.cost_usd if reserve else None,
    }
    return {name: value for name, value in told.items() if value is not None}


def parse_line(row: dict[str, object], columns: str) -> RunLine:
    """Raises ValueError."""
    return _line().validate_python({**json.loads(columns), **row}, by_name=True)


def waits_for(run: RunState) -> WaitsFor | None:
    """None for a run that has not begun or has ended."""
    kind, since = _kind_and_since(run.waiting)
    return WaitsFor(kind=kind, since=since or run.updated_at, until=run.due_at) if kind else None


def _kind_and_since(waiting: Waiting) -> tuple[WaitsForKind | None, datetime | None]:
    match waiting:
        case Thinking(still_since=datetime() as since):
            return "budget", since
        case Thinking(retry_at=at):
            return "model_retry" if at else "model", None
        case Acting(pendings=pendings) if pendings:
            retried = None not in [pending.retry_at for pending in pendings]
            kind: WaitsForKind = "tool_retry" if retried else "tool"
            first = None if retried else min([pending.requested_at for pending in pendings])
            return "child" if None not in [pending.grant for pending in pendings] else kind, first
        case Acting():
            return "tool", None
        case Sleeping(since=since):
            return "time", since
        case NeedsPerson(ask=Stop(ending_class=ending_class)):
            return "budget" if ending_class.startswith(BUDGET_PREFIX) else "model", None
        case NeedsPerson(ask=Approval() | Question() as ask, since=since):
            return ask.kind, since
    return None, None


def _newest_tool(run: RunState) -> str | None:
    if run.completed and run.completed[-1].step == run.step:
        return run.completed[-1].tool
    return run.plan.action.tool if run.step and run.plan else None
