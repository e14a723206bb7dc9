"""Limits of a run: checks and raises them, charges model calls, and grants shares to children.

A request to the tool `agent` gets a grant: unsent ones share three quarters of what the run has left. The grant is set
aside while the request is out; its result charges the spending, or the whole grant where that is unknown.
"""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from pydantic import ValidationError
from ulid import ULID

from agent_service.core.brief import Brief, Grant, Limits, Spent
from agent_service.core.events import ModelReplied, StoodStill
from agent_service.core.facts import LimitsRaised
from agent_service.core.phases import Action
from agent_service.core.state import Doubt, RunState, with_facts
from agent_service.core.waiting import Acting, CallReserve, Ended, NeedsPerson, Pending, Thinking, acting_of
from agent_service.sentences import Text, instant, say
from schemas import catalog, subjects
from schemas.catalog import ChildUsage
from schemas.events import Constraints, ToolResult
from schemas.values import replace

Reached = tuple[str, Text]
"""Ending class and reason."""
RAISED = {
    "budget_steps": "max_steps",
    "budget_reframes": "max_reframes",
    "budget_tokens": "max_tokens",
    "budget_cost": "max_cost_usd",
    "budget_time": "deadline_at",
}
"""The limits that a person can raise, by ending class."""

# Checks


def reached_before_a_call(state: RunState, reserve: CallReserve | None = None) -> Reached | None:
    """The limit that is reached now, or by a call that takes its whole `reserve`."""
    limits = state.brief.limits
    if state.updated_at >= limits.deadline_at:
        return deadline_reached(limits)
    if limits.max_tokens is None and limits.max_cost_usd is None:
        return None
    taken, (tokens, cost) = spent_with_grants(state), (reserve.tokens, reserve.cost_usd) if reserve else (0, 0.0)
    by_tokens = _reached(("budget_tokens", "tokens_spent"), taken.used, tokens, limits.max_tokens)
    return by_tokens or _reached(("budget_cost", "cost_spent"), taken.paid, cost, limits.max_cost_usd)


def _reached(words: tuple[str, str], taken: float | None, need: float | None, most: float | None) -> Reached | None:
    ending_class, spent = words
    if most is None:
        return None
    if taken is None or need is None:
        return ending_class, say("price_unknown", most=most)
    is_reached = taken >= most or taken + need > most
    return (ending_class, say(spent, taken=taken, most=most, need=need)) if is_reached else None


def reached_before_a_step(state: RunState) -> Reached | None:
    limits = state.brief.limits
    if state.updated_at >= limits.deadline_at:
        return deadline_reached(limits)
    if steps_taken(state) >= limits.max_steps:
        return "budget_steps", say("steps_used", most=limits.max_steps)
    if state.attempts >= limits.max_attempts_of_run:
        return "budget_attempts", say("attempts_used", most=limits.max_attempts_of_run)
    return None


def steps_taken(state: RunState) -> int:
    return state.step + spent_with_grants(state).child_steps


def deadline_reached(limits: Limits) -> Reached:
    return "budget_time", say("deadline_passed", deadline=instant(limits.deadline_at))


# Raising


def raised(state: RunState, more: Constraints) -> RunState:
    limits = state.brief.limits
    asked = {name: getattr(more, name) for name in RAISED.values()} | {"max_steps": more.steps}
    both = {name: (getattr(limits, name), number) for name, number in asked.items()}
    larger: dict[str, Any] = {name: max(pair) for name, pair in both.items() if None not in pair}
    changed = with_limits(state, **larger)
    return with_facts(changed, LimitsRaised(limits=changed.brief.limits))


def with_limits(state: RunState, **changed: Any) -> RunState:
    return replace(state, brief=replace(state.brief, limits=replace(state.brief.limits, **changed)))


def with_more_attempts(state: RunState) -> RunState:
    limits = state.brief.limits
    most = max(limits.max_attempts_of_run, state.attempts + limits.max_attempts)
    return with_limits(state, max_attempts_of_run=most)


def extend_deadline(state: RunState, since: datetime | None) -> RunState:
    """A clock that was set back in between takes nothing from the run."""
    limits = state.brief.limits
    if since is None or limits.deadline_named or state.updated_at <= since:
        return state
    return with_limits(state, deadline_at=limits.deadline_at + (state.updated_at - since))


def on_stood_still(state: RunState, event: StoodStill) -> RunState | Text:
    """Extends deadlines by the time in which all runs were stopped."""
    since = max(event.since, state.accepted_at, state.stood_until or event.since)
    if event.at <= since:
        return say("stop_known")
    known, by = replace(state, stood_until=event.at), event.at - since
    match state.waiting:
        case NeedsPerson(held=Acting() as held) as waiting:  # other times stand still during a pause anyway
            return replace(known, waiting=replace(waiting, held=held.postponed(answers=by)))
        case Thinking(still_since=datetime() as still) as waiting if since < still:
            return replace(known, waiting=replace(waiting, still_since=since))  # the deadline is extended from there
        case NeedsPerson() | Thinking(still_since=datetime()):
            return say("stands_still_already")
        case Acting() as acting:
            known = replace(known, waiting=acting.postponed(graphs=by, answers=by))
    return replace(extend_deadline(known, since), summary=say("stood_still", by=event.by, reason=event.reason))


# Charging


def charged(state: RunState, reply: ModelReplied, **changed: Any) -> RunState:
    """Adds the usage of a reply, measures it, and makes further changes."""
    usage, known = reply.usage, state.measured
    read, written, cached = usage.input_tokens, usage.output_tokens, usage.cache_read_tokens
    counted = {"input_tokens": read, "output_tokens": written, "cache_read_tokens": cached, "cost_usd": usage.cost_usd}
    spent = state.spent.plus(calls=1, **counted)
    if not reply.prompt_bytes:
        return replace(state, spent=spent, **changed)
    if read:
        known = {**known, reply.model: max(known.get(reply.model, (0, 0)), (reply.prompt_bytes, read))}
    tokens = read + written
    return replace(
        state,
        spent=spent,
        measured=known,
        longest_reply=max(state.longest_reply, written),
        dearest_token=max(state.dearest_token, (usage.cost_usd or 0.0) / tokens if tokens else 0.0),
        **changed,
    )


# Grants of children

SHARE = 3 / 4
NEVER_SILENT = timedelta(days=3650)
"""A child's own deadline ends its request; this one never does."""


def needs_grant(brief: Brief, tool: str) -> bool:
    skill = brief.skill(tool) if tool == catalog.NAME else None
    return skill is not None and skill.route == subjects.SERVICE_AGENT


def child_flaws(state: RunState, actions: Sequence[Action]) -> list[Text]:
    asked, most = sum([needs_grant(state.brief, action.tool) for action in actions]), state.brief.limits.max_children
    if asked > most:
        return [say("too_many_agents", asked=asked, most=most)]
    why = grant_shortfall(replace(state, step=state.step + len(actions)), asked, at_once=asked) if asked else ""
    return [say("do_it_yourself", why=why)] if why else []


def grant_shortfall(state: RunState, among: int, *, at_once: int = 1) -> Text:
    """The reason why a share for each of `among` is too small to send `at_once` of them; empty if it is not."""
    pool = _pool(state)
    too_little = pool.steps < at_once or (pool.tokens is not None and pool.tokens < among) or pool.cost_usd == 0
    return say("too_little_left") if too_little else ""


def with_grant(state: RunState, pending: Pending) -> Pending:
    """Grants a share of what is left, divided among all unsent requests."""
    pool, among, end = _pool(state), max(1, unsent_children(state)), state.brief.limits.deadline_at
    try:
        asked = Constraints.model_validate(pending.action.arguments.get("constraints") or {})
    except ValidationError:  # its executor says what is wrong
        asked = Constraints()
    tokens, cost = asked.max_tokens, asked.max_cost_usd
    if pool.tokens is not None:
        tokens = min(pool.tokens // among, pool.tokens if tokens is None else tokens)
    if pool.cost_usd is not None:
        cost = min(pool.cost_usd / among, pool.cost_usd if cost is None else cost)
    steps = min(ceil(pool.steps / among), asked.steps or pool.steps)
    until, silent = min(asked.deadline_at or end, end), pending.requested_at + NEVER_SILENT
    grant = Grant(steps=steps, tokens=tokens, cost_usd=cost)
    return replace(pending, grant=grant, until=until, deadline_at=silent)


def unsent_children(state: RunState) -> int:
    return sum(
        [needs_grant(state.brief, one.action.tool) for one in acting_of(state.waiting).requests if not one.attempt]
    )


def _pool(state: RunState) -> Grant:
    """Three quarters of the unspent budgets, without the grants that are out."""
    limits, spent, out = state.brief.limits, state.spent, outstanding_grants(state)
    steps = limits.max_steps - state.step - spent.child_steps
    tokens, cost = limits.max_tokens, limits.max_cost_usd
    return Grant(
        steps=max(0, ceil(SHARE * steps) - out.steps),
        tokens=None if tokens is None else max(0, int(SHARE * (tokens - spent.used)) - (out.tokens or 0)),
        cost_usd=None if cost is None else max(0.0, SHARE * (cost - (spent.paid or 0.0)) - (out.cost_usd or 0.0)),
    )


def outstanding_grants(state: RunState) -> Grant:
    out = state.waiting.out if isinstance(state.waiting, Ended) else state.pendings
    grants = [one.grant for one in out if one.grant]
    return Grant(
        steps=sum([grant.steps for grant in grants]),
        tokens=sum([grant.tokens or 0 for grant in grants]),
        cost_usd=sum([grant.cost_usd or 0.0 for grant in grants]),
    )


def spent_with_grants(state: RunState) -> Spent:
    """Spending, with the whole grants of children that have not reported yet."""
    brief = state.brief
    if brief.depth >= brief.limits.max_depth:
        return state.spent
    aside = outstanding_grants(state)
    return state.spent.plus(child_steps=aside.steps, lost_tokens=aside.tokens, lost_cost_usd=aside.cost_usd)


def child_run_id(run_id: str, pending: Pending) -> str:
    """Id of the child that a request of `run_id` starts: derived from the call, so that there is only one."""
    name = f"{run_id}:{pending.step}:{pending.task}:{pending.round}:{pending.attempt}"
    instant = int(pending.requested_at.timestamp() * 1000).to_bytes(6, "big")
    return f"run_{ULID.from_bytes(instant + hashlib.sha256(name.encode()).digest()[:10])}"


def awaited_children(state: RunState) -> tuple[Pending, ...]:
    now = acting_of(state.waiting)
    stopped = {graph.step for graph in now.graphs if graph.stopped}
    return tuple([p for p in now.pendings if p.grant and p.step not in stopped])


def withdrawn_children(state: RunState) -> tuple[Pending, ...]:
    """Children that were given up, and have not reported their spending yet."""
    out, kept = state.waiting.out if isinstance(state.waiting, Ended) else state.pendings, awaited_children(state)
    return tuple(pending for pending in out if pending.grant and pending not in kept)


def charge_child(state: RunState, pending: Pending, result: ToolResult) -> RunState:
    """Charges a child's spending, or its whole grant if that is unknown. Takes over its writes in doubt, and the time
    in which it waited for people.
    """
    grant = pending.grant
    if grant is None:
        return state
    fields = (result.result.model_extra or {}) if result.result else {}
    known, named = {(doubt.tool, doubt.call) for doubt in state.doubts}, fields.get("doubts")
    listed = [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []
    doubts = [Doubt(step=pending.step, tool=str(each.get("tool")), call=str(each.get("call"))) for each in listed]
    new = [doubt for doubt in doubts if (doubt.tool, doubt.call) not in known]
    limits = state.brief.limits
    with suppress(ValidationError):  # another program may have answered for the child
        until = Constraints.model_validate({"deadline_at": fields.get("deadline_at")}).deadline_at
        if until and not limits.deadline_named:
            state = with_limits(state, deadline_at=max(limits.deadline_at, until))
    try:
        used = ChildUsage.model_validate(fields["usage"]).model_dump()
    except (KeyError, ValidationError):
        used = {"steps": grant.steps, "lost_calls": 1}
        used |= {"lost_tokens": grant.tokens or 0, "lost_cost_usd": grant.cost_usd or 0.0}
    spent = state.spent.plus(child_steps=used.pop("steps"), **used)
    return replace(state, spent=spent, doubts=(*state.doubts, *new))
