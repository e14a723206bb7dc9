"""Grants: what a request to the tool `agent` may spend of what its run has left.

Requests that leave together share at most three quarters of it. A grant is set aside while its request is out; the
result charges what was spent. Where its spending is unknown, all of the grant is spent.
"""

import hashlib
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Any, TypeVar

from pydantic import JsonValue, ValidationError
from ulid import ULID

from agent_service.core.brief import Brief, Grant, Spent
from agent_service.core.limits import cost_so_far, set_aside
from agent_service.core.phases import Action
from agent_service.core.state import Child, Doubt, RunState
from agent_service.core.waiting import Ended, Pending, Status, TaskGraph
from agent_service.sentences import Text, say
from schemas import catalog, subjects
from schemas.catalog import AgentConstraints, ChildUsage
from schemas.events import ToolResult
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
    asked = [action for action in actions if needs_one(state.brief, action.tool)]
    if not asked:
        return ()
    most = state.brief.limits.max_children
    if len(asked) > most:
        return (say("too_many_agents", asked=len(asked), most=most),)
    why = lacking(replace(state, step=state.step + len(actions)), asked)
    return (say("do_it_yourself", why=why),) if why else ()


def most_at_once(brief: Brief, tool: str) -> int:
    return brief.limits.max_children if needs_one(brief, tool) else sys.maxsize


def to_come(state: RunState, graph: TaskGraph) -> int:
    sent = {pending.name for pending in state.pendings}
    asked = (task for task in graph.tasks if needs_one(state.brief, task.action.tool))
    return sum((graph.step, task.id, task.round) not in sent for task in asked)


# What is granted


def granted(state: RunState, pendings: Sequence[Pending], *, among: int = 0) -> tuple[Pending, ...]:
    """First attempts, with the grants of those that need one; counts their steps. `among`: how many share, if more."""
    asked = [pending for pending in pendings if needs_one(state.brief, pending.action.tool)]
    if not asked:
        return tuple(pendings)
    shares = _shares(state, [pending.action for pending in asked], among)
    grants = {pending.name: _with(state.brief, pending, grant) for pending, grant in zip(asked, shares, strict=True)}
    return tuple(grants.get(pending.name, pending) for pending in pendings)


def lacking(state: RunState, asked: Sequence[Action], *, among: int = 0) -> Text:
    """Why a grant would be too small; empty where none is. `among`: as for `granted`."""
    shares = _shares(state, asked, among)
    if any(grant.steps == 0 for grant in shares):
        return say("too_few_steps")
    spent = any(0 in (grant.tokens, grant.cost_usd) for grant in shares)
    return say("too_little_money") if spent else ""


def _shares(state: RunState, asked: Sequence[Action], among: int) -> list[Grant]:
    pool, shares = _pool(state), list[Grant]()
    for number, action in enumerate(asked):
        part, most = max(among, len(asked)) - number, _constraints(action)
        grant = Grant(
            steps=min(ceil(pool.steps / part), most.max_steps or pool.steps),
            tokens=_least(None if pool.tokens is None else pool.tokens // part, most.max_tokens),
            cost_usd=_least(None if pool.cost_usd is None else pool.cost_usd / part, most.max_cost_usd),
        )
        pool = Grant(
            steps=pool.steps - grant.steps,
            tokens=None if pool.tokens is None else pool.tokens - (grant.tokens or 0),
            cost_usd=None if pool.cost_usd is None else pool.cost_usd - (grant.cost_usd or 0.0),
        )
        shares.append(grant)
    return shares


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


def _with(brief: Brief, pending: Pending, grant: Grant) -> Pending:
    latest = brief.limits.deadline_at
    until = min(_constraints(pending.action).deadline_at or latest, latest)
    return replace(pending, grant=grant, until=until, deadline_at=pending.requested_at + NEVER_SILENT)


def _constraints(action: Action) -> AgentConstraints:
    try:
        return AgentConstraints.model_validate(action.arguments.get("constraints") or {})
    except ValidationError:  # its executor says what is wrong
        return AgentConstraints()


# Requests that are out


def run_id_of(run_id: str, pending: Pending) -> str:
    """The run that a granted request of `run_id` wakes: an id that follows from the call, so that it is one run."""
    name = f"{run_id}:{pending.step}:{pending.task}:{pending.round}:{pending.attempt}"
    instant = int(pending.requested_at.timestamp() * 1000).to_bytes(6, "big")
    return f"run_{ULID.from_bytes(instant + hashlib.sha256(name.encode()).digest()[:10])}"


def with_asked(state: RunState, pendings: Sequence[Pending]) -> RunState:
    asked = [
        Child(run_id=run_id_of(state.run_id, pending), step=pending.step, task=pending.task, round=pending.round)
        for pending in pendings
        if pending.grant
    ]
    return replace(state, children=(*state.children, *asked)) if asked else state


def wanted(state: RunState) -> tuple[Pending, ...]:
    """Granted requests whose results the run can use."""
    stopped = {graph.step for graph in state.graphs if graph.stopped}
    return () if state.final else tuple(p for p in state.pendings if p.grant and p.step not in stopped)


def withdrawn(state: RunState) -> tuple[Pending, ...]:
    """Granted requests that were given up, whose spending is still to be told."""
    out = state.waiting.out if isinstance(state.waiting, Ended) else state.pendings
    kept = wanted(state)
    return tuple(pending for pending in out if pending.grant and pending not in kept)


# What comes back


def settled(state: RunState, pending: Pending, result: ToolResult) -> RunState:
    grant, told = pending.grant, (result.result.model_extra or {}) if result.result else {}
    if grant is None:
        return state
    known = {(doubt.tool, doubt.call) for doubt in state.doubts}
    doubts = tuple(doubt for doubt in _doubts(pending, told) if (doubt.tool, doubt.call) not in known)
    more = _usage(told, grant).model_dump()
    spent = replace(state.spent, child_steps=state.spent.child_steps + more.pop("steps"), **_sums(state.spent, more))
    return replace(_with_time(state, told), spent=spent, doubts=(*state.doubts, *doubts))


def settled_late(state: RunState, result: ToolResult) -> RunState:
    """Charges an ended run, once; nothing else that its end told changes. A held request is settled when reopened."""
    ended, which = state.waiting, (result.step, result.task or "", (result.round or 0) if result.task else 0)
    if not isinstance(ended, Ended) or ended.status is Status.ESCALATED:
        return state
    told = next((p for p in withdrawn(state) if p.name == which and result.attempt in (None, p.attempt)), None)
    if told is None:
        return state
    left = tuple(pending for pending in ended.out if pending is not told)
    return replace(state, waiting=replace(ended, out=left), spent=settled(state, told, result).spent)


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


def _sums(spent: Spent, more: dict[str, Any]) -> dict[str, Any]:
    """A sum with an unknown price is unknown."""
    pairs = {name: (getattr(spent, name), amount) for name, amount in more.items()}
    return {name: None if None in pair else sum(pair) for name, pair in pairs.items()}


def _doubts(pending: Pending, told: dict[str, JsonValue]) -> list[Doubt]:
    named = told.get("doubts")
    listed = [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []
    return [Doubt(step=pending.step, tool=str(each.get("tool")), call=str(each.get("call"))) for each in listed]
