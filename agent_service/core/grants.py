"""Grants: what a request to the tool `agent` may spend of what its run has left.

Requests that are to leave share three quarters of it. A grant is set aside while its request is out; the result charges
what was spent. Where its spending is unknown, all of the grant is spent.
"""

import hashlib
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError
from ulid import ULID

from agent_service.core.brief import Brief, Grant
from agent_service.core.limits import added, cost_so_far, set_aside, with_limits
from agent_service.core.phases import Action
from agent_service.core.state import Doubt, RunState
from agent_service.core.waiting import Ended, Pending
from agent_service.sentences import Text, say
from schemas import catalog, subjects
from schemas.catalog import ChildUsage
from schemas.events import Constraints, ToolResult
from schemas.values import replace

N = TypeVar("N", int, float)
SHARE = 3 / 4
NEVER_SILENT = timedelta(days=3650)
"""A granted request is answered by its own deadline."""


def needs_one(brief: Brief, tool: str) -> bool:
    if tool != catalog.NAME:
        return False
    skill = brief.skill(tool)
    return skill is not None and skill.route == subjects.SERVICE_AGENT


def flaws_of(state: RunState, actions: Sequence[Action]) -> tuple[Text, ...]:
    asked, most = sum([needs_one(state.brief, action.tool) for action in actions]), state.brief.limits.max_children
    if asked > most:
        return (say("too_many_agents", asked=asked, most=most),)
    why = lacking(replace(state, step=state.step + len(actions)), asked, at_once=asked) if asked else ""
    return (say("do_it_yourself", why=why),) if why else ()


def most_at_once(brief: Brief, tool: str) -> int:
    return brief.limits.max_children if needs_one(brief, tool) else sys.maxsize


def lacking(state: RunState, among: int, *, at_once: int = 1) -> Text:
    """Why a share of so many would be too small, for as many as are sent at once; empty where none is."""
    pool = _pool(state)
    if pool.steps < at_once:
        return say("too_few_steps")
    too_little = (pool.tokens is not None and pool.tokens < among) or pool.cost_usd == 0
    return say("too_little_money") if too_little else ""


def granted(state: RunState, pending: Pending) -> Pending:
    """With its share of what is left, of those that are not sent."""
    pool, among, end = _pool(state), max(1, unsent(state)), state.brief.limits.deadline_at
    asked = _constraints(pending.action)
    grant = Grant(
        steps=min(ceil(pool.steps / among), asked.max_steps or pool.steps),
        tokens=_least(None if pool.tokens is None else pool.tokens // among, asked.max_tokens),
        cost_usd=_least(None if pool.cost_usd is None else pool.cost_usd / among, asked.max_cost_usd),
    )
    until, silent = min(asked.deadline_at or end, end), pending.requested_at + NEVER_SILENT
    return replace(pending, grant=grant, until=until, deadline_at=silent)


def unsent(state: RunState) -> int:
    """Requests that are still to share what is left."""
    return sum([needs_one(state.brief, one.action.tool) for one in state.requests if not one.attempt])


def _pool(state: RunState) -> Grant:
    """Three quarters of what is not spent, without what other requests have of it."""
    limits, spent, out = state.brief.limits, state.spent, set_aside(state)
    steps = limits.max_steps - state.step - spent.child_steps
    tokens = None if limits.max_tokens is None else limits.max_tokens - spent.tokens - spent.lost_tokens
    cost = None if limits.max_cost_usd is None else limits.max_cost_usd - (cost_so_far(spent) or 0.0)
    return Grant(
        steps=max(0, ceil(SHARE * steps) - out.steps),
        tokens=None if tokens is None else max(0, int(SHARE * tokens) - (out.tokens or 0)),
        cost_usd=None if cost is None else max(0.0, SHARE * cost - (out.cost_usd or 0.0)),
    )


def _least(share: N | None, asked: N | None) -> N | None:
    return min((most for most in (share, asked) if most is not None), default=None)


def _constraints(action: Action) -> Constraints:
    try:
        return Constraints.model_validate(action.arguments.get("constraints") or {})
    except ValidationError:  # its executor says what is wrong
        return Constraints()


# Requests that are out


def run_id_of(run_id: str, pending: Pending) -> str:
    """The run that a granted request of `run_id` wakes: an id that follows from the call, so that it is one run."""
    name = f"{run_id}:{pending.step}:{pending.task}:{pending.round}:{pending.attempt}"
    instant = int(pending.requested_at.timestamp() * 1000).to_bytes(6, "big")
    return f"run_{ULID.from_bytes(instant + hashlib.sha256(name.encode()).digest()[:10])}"


def wanted(state: RunState) -> tuple[Pending, ...]:
    """Granted requests whose results the run can use."""
    stopped = {graph.step for graph in state.graphs if graph.stopped}
    return tuple([p for p in state.pendings if p.grant and p.step not in stopped])


def withdrawn(state: RunState) -> tuple[Pending, ...]:
    """Granted requests that were given up, whose spending is still to be told."""
    out = state.waiting.out if isinstance(state.waiting, Ended) else state.pendings
    kept = wanted(state)
    return tuple(pending for pending in out if pending.grant and pending not in kept)


def settled(state: RunState, pending: Pending, result: ToolResult) -> RunState:
    """With what the request of `pending` has spent, its writes in doubt, and the time in which it waited for people."""
    grant, told = pending.grant, (result.result.model_extra or {}) if result.result else {}
    if grant is None:
        return state
    spent, more = state.spent, _usage(told, grant).model_dump()
    more["child_steps"] = more.pop("steps")
    sums: dict[str, Any] = {name: added(getattr(spent, name), amount) for name, amount in more.items()}
    named, known = told.get("doubts"), {(doubt.tool, doubt.call) for doubt in state.doubts}
    listed = [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []
    doubts = [Doubt(step=pending.step, tool=str(each.get("tool")), call=str(each.get("call"))) for each in listed]
    doubts = [doubt for doubt in doubts if (doubt.tool, doubt.call) not in known]
    return replace(_with_time(state, told), spent=replace(spent, **sums), doubts=(*state.doubts, *doubts))


def _with_time(state: RunState, told: dict[str, JsonValue]) -> RunState:
    limits, until = state.brief.limits, told.get("deadline_at")
    if limits.deadline_named or not isinstance(until, str):
        return state
    return with_limits(state, deadline_at=max(limits.deadline_at, datetime.fromisoformat(until)))


def _usage(told: dict[str, JsonValue], grant: Grant) -> ChildUsage:
    try:
        return ChildUsage.model_validate(told["usage"])
    except (KeyError, ValidationError):
        lost = grant.tokens or 0, grant.cost_usd or 0.0
        return ChildUsage(steps=grant.steps, lost_calls=1, lost_tokens=lost[0], lost_cost_usd=lost[1])
