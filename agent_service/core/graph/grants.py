"""Grants: what children may spend of what their parent has left.

Children that start together share at most three quarters of it. A grant is set aside while its child runs; the end
charges what was spent. A child whose spending is unknown has spent its grant.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from math import ceil

from pydantic import JsonValue, ValidationError

from agent_service.core.brief import Brief, Grant, Spent
from agent_service.core.limits import cost_so_far, set_aside, steps_taken, under_way
from agent_service.core.phases import Action
from agent_service.core.state import Doubt, RunState, replace
from agent_service.core.tools.attempts import Pending
from schemas import catalog, subjects
from schemas.catalog import AgentCall, AgentConstraints, ChildUsage
from schemas.events import ToolResult

SHARE = Fraction(3, 4)
NEVER_SILENT = timedelta(days=3650)
"""A child ends by its parent's deadline, in the same store."""


def granted(state: RunState, pendings: Sequence[Pending], *, among: int = 0) -> tuple[Pending, ...]:
    """First attempts, with each child's grant; counts their steps. `among`: the children that share, if more."""
    children = [p for p in pendings if (p.action.tool, p.route) == (catalog.NAME, subjects.SERVICE_AGENT)]
    if not children:
        return tuple(pendings)
    shares = zip(children, _shares(state, [child.action for child in children], among), strict=True)
    shared = {child.name: _as_child(state.brief, child, grant) for child, grant in shares}
    return tuple(shared.get(pending.name, pending) for pending in pendings)


def lacking(state: RunState, asked: Sequence[Action], *, among: int = 0) -> str:
    """Why the grant would be too small for each child; empty where it is not. `among`: as for `granted`."""
    shares = _shares(state, asked, among)
    if any(grant.steps == 0 for grant in shares):
        return "too few steps are left for another agent to take any"
    spent = any(grant.tokens == 0 or grant.cost_usd == 0.0 for grant in shares)
    return "too little of its tokens or money is left for another agent to think with" if spent else ""


def _shares(state: RunState, asked: Sequence[Action], among: int) -> list[Grant]:
    pool, shares = _pool(state), list[Grant]()
    for number, action in enumerate(asked):
        grant = _share(pool, _constraints(action), Fraction(1, max(among, len(asked)) - number))
        pool = _minus(pool, grant)
        shares.append(grant)
    return shares


def _as_child(brief: Brief, pending: Pending, grant: Grant) -> Pending:
    until = min(_constraints(pending.action).deadline_at or brief.limits.deadline_at, brief.limits.deadline_at)
    return replace(pending, grant=grant, until=until, deadline_at=pending.requested_at + NEVER_SILENT)


def _constraints(action: Action) -> AgentConstraints:
    return AgentCall.model_validate(action.arguments).constraints


def _pool(state: RunState) -> Grant:
    limits, spent, aside, others = state.brief.limits, state.spent, set_aside(state), under_way(state)
    tokens = None if limits.max_tokens is None else limits.max_tokens - spent.tokens - spent.lost_tokens
    cost = None if limits.max_cost_usd is None else limits.max_cost_usd - (cost_so_far(spent) or 0.0)
    less = (others.tokens or 0, others.cost_usd or 0.0)
    free = limits.max_steps - steps_taken(state) + others.steps
    return Grant(
        steps=max(0, ceil(SHARE * free) - others.steps),
        tokens=None if tokens is None else max(0, int(SHARE * (tokens - (aside.tokens or 0) + less[0])) - less[0]),
        cost_usd=None
        if cost is None
        else max(0.0, float(SHARE) * (cost - (aside.cost_usd or 0.0) + less[1]) - less[1]),
    )


def _share(pool: Grant, asked: AgentConstraints, part: Fraction) -> Grant:
    steps = ceil(part * pool.steps)
    tokens = None if pool.tokens is None else int(part * pool.tokens)
    cost = None if pool.cost_usd is None else float(part) * pool.cost_usd
    return Grant(
        steps=min(steps, asked.max_steps or steps),
        tokens=min((n for n in (tokens, asked.max_tokens) if n is not None), default=None),
        cost_usd=min((n for n in (cost, asked.max_cost_usd) if n is not None), default=None),
    )


def _minus(pool: Grant, grant: Grant) -> Grant:
    return Grant(
        steps=pool.steps - grant.steps,
        tokens=None if pool.tokens is None else pool.tokens - (grant.tokens or 0),
        cost_usd=None if pool.cost_usd is None else pool.cost_usd - (grant.cost_usd or 0.0),
    )


def settled(state: RunState, pending: Pending, result: ToolResult) -> RunState:
    grant, told = pending.grant, (result.result.model_extra or {}) if result.result else {}
    if grant is None:
        return state
    known = {(doubt.tool, doubt.call) for doubt in state.doubts}
    doubts = tuple(doubt for doubt in _doubts(pending, told) if (doubt.tool, doubt.call) not in known)
    spent = _with(state.spent, _usage(told, grant))
    return replace(_with_time(state, told), spent=spent, doubts=(*state.doubts, *doubts))


def _with_time(state: RunState, told: dict[str, JsonValue]) -> RunState:
    limits, until = state.brief.limits, told.get("deadline_at")
    if limits.deadline_named or not isinstance(until, str):
        return state
    later = max(limits.deadline_at, datetime.fromisoformat(until))
    return replace(state, brief=replace(state.brief, limits=replace(limits, deadline_at=later)))


def _usage(told: dict[str, JsonValue], grant: Grant) -> ChildUsage:
    try:
        return ChildUsage.model_validate(told["usage"])
    except (KeyError, ValidationError):
        lost = grant.tokens or 0, grant.cost_usd or 0.0
        return ChildUsage(steps=grant.steps, lost_calls=1, lost_tokens=lost[0], lost_cost_usd=lost[1])


def _doubts(pending: Pending, told: dict[str, JsonValue]) -> list[Doubt]:
    named = told.get("doubts")
    listed = [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []
    return [Doubt(step=pending.step, tool=str(each.get("tool")), call=str(each.get("call"))) for each in listed]


def _with(spent: Spent, usage: ChildUsage) -> Spent:
    return replace(
        spent,
        calls=spent.calls + usage.calls,
        input_tokens=spent.input_tokens + usage.input_tokens,
        output_tokens=spent.output_tokens + usage.output_tokens,
        cost_usd=_sum(spent.cost_usd, usage.cost_usd),
        cache_read_tokens=spent.cache_read_tokens + usage.cache_read_tokens,
        lost_calls=spent.lost_calls + usage.lost_calls,
        lost_tokens=spent.lost_tokens + usage.lost_tokens,
        lost_cost_usd=_sum(spent.lost_cost_usd, usage.lost_cost_usd),
        child_steps=spent.child_steps + usage.steps,
    )


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
