"""Run limits: how they are raised, which one is reached, what a call may cost, and how long a run stood still.

No tokenizer fits all models: a call is estimated from earlier calls of the run. The provider counted the longest prompt
so far; the rest is taken as dense as any text.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from agent_service.core.brief import Grant, Limits, Spent
from agent_service.core.events import ModelReplied, StoodStill
from agent_service.core.state import RunState
from agent_service.core.waiting import Acting, Ended, NeedsPerson, Pending, Reserve, Thinking
from agent_service.sentences import Text, instant, say
from schemas.events import Constraints
from schemas.values import replace

N = TypeVar("N", int, float)

FEW_CALLS = 3
"""So many, each like the average call of the run, are spared for decisions."""


_NOTHING = Grant(steps=0, tokens=0, cost_usd=0.0)


def raised(limits: Limits, constraints: Constraints) -> Limits:
    """Larger numbers of `constraints` win; nothing is ever lowered."""
    return replace(
        limits,
        max_steps=max(limits.max_steps, constraints.max_loops or constraints.max_steps or 0),
        max_reframes=max(limits.max_reframes, constraints.max_reframes or 0),
        max_tokens=_larger(limits.max_tokens, constraints.max_tokens),
        max_cost_usd=_larger(limits.max_cost_usd, constraints.max_cost_usd),
        deadline_at=max(limits.deadline_at, constraints.deadline_at or limits.deadline_at),
    )


def extend_deadline(state: RunState, since: datetime | None) -> RunState:
    granted = state.brief.limits
    if since is None or granted.deadline_named:
        return state
    later = replace(granted, deadline_at=granted.deadline_at + (state.updated_at - since))
    return replace(state, brief=replace(state.brief, limits=later))


def expires_at(limits: Limits, since: datetime, patience_s: float) -> datetime:
    patient_until = since + timedelta(seconds=patience_s)
    return min(patient_until, limits.deadline_at) if limits.deadline_named else patient_until


def with_more_attempts(state: RunState) -> RunState:
    granted = state.brief.limits
    attempts = max(granted.max_attempts_of_run, state.attempts + granted.max_attempts)
    return replace(state, brief=replace(state.brief, limits=replace(granted, max_attempts_of_run=attempts)))


def reached_before_a_call(state: RunState) -> tuple[str, Text] | None:
    limits = state.brief.limits
    if state.updated_at >= limits.deadline_at:
        return past_deadline(limits)
    tokens = _tokens_taken(state)
    if limits.max_tokens is not None and tokens >= limits.max_tokens:
        return "budget_tokens", say("tokens_spent", tokens=tokens, most=limits.max_tokens)
    return None if limits.max_cost_usd is None else _cost_reached(limits.max_cost_usd, _cost_taken(state))


def nearly_spent(state: RunState) -> bool:
    limits, spent = state.brief.limits, state.spent
    budgets = ((limits.max_tokens, spent.tokens + spent.lost_tokens), (limits.max_cost_usd, cost_so_far(spent)))
    return any(limit and used and spent.calls * (limit - used) < FEW_CALLS * used for limit, used in budgets)


def beyond_with(state: RunState, reserve: Reserve) -> tuple[str, Text] | None:
    limits, tokens = state.brief.limits, _tokens_taken(state)
    if limits.max_tokens is not None and tokens + reserve.tokens > limits.max_tokens:
        return "budget_tokens", say("tokens_too_few", tokens=tokens, most=limits.max_tokens, need=reserve.tokens)
    if limits.max_cost_usd is None:
        return None
    cost = _cost_taken(state)
    if cost is None or reserve.cost_usd is None:
        return _cost_reached(limits.max_cost_usd, None)
    if cost + reserve.cost_usd > limits.max_cost_usd:
        return "budget_cost", say("cost_too_high", cost=cost, most=limits.max_cost_usd, need=reserve.cost_usd)
    return None


def set_aside(state: RunState) -> Grant:
    if not state.brief.may_have_children:
        return _NOTHING
    return _sum(state.waiting.out if isinstance(state.waiting, Ended) else state.pendings)


def with_set_aside(state: RunState) -> Spent:
    """What was spent, with all that children may spend who have not told yet."""
    aside, spent = set_aside(state), state.spent
    lost_cost = None if spent.lost_cost_usd is None else spent.lost_cost_usd + (aside.cost_usd or 0.0)
    return replace(
        spent,
        child_steps=spent.child_steps + aside.steps,
        lost_tokens=spent.lost_tokens + (aside.tokens or 0),
        lost_cost_usd=lost_cost,
    )


def _sum(pendings: Iterable[Pending]) -> Grant:
    grants = [pending.grant for pending in pendings if pending.grant is not None]
    return Grant(
        steps=sum(grant.steps for grant in grants),
        tokens=sum(grant.tokens or 0 for grant in grants),
        cost_usd=sum(grant.cost_usd or 0.0 for grant in grants),
    )


def _tokens_taken(state: RunState) -> int:
    return state.spent.tokens + state.spent.lost_tokens + (set_aside(state).tokens or 0)


def _cost_taken(state: RunState) -> float | None:
    cost = cost_so_far(state.spent)
    return None if cost is None else cost + (set_aside(state).cost_usd or 0.0)


def with_cost_of_lost(spent: Spent, tokens: int, cost: float | None) -> Spent:
    return replace(
        spent,
        lost_calls=spent.lost_calls + 1,
        lost_tokens=spent.lost_tokens + tokens,
        lost_cost_usd=None if spent.lost_cost_usd is None or cost is None else spent.lost_cost_usd + cost,
    )


def cost_so_far(spent: Spent) -> float | None:
    """What was or perhaps was paid; null when a price is unknown."""
    if spent.cost_usd is None or spent.lost_cost_usd is None:
        return None
    return spent.cost_usd + spent.lost_cost_usd


def reached_before_a_step(state: RunState) -> tuple[str, Text] | None:
    limits = state.brief.limits
    if state.updated_at >= limits.deadline_at:
        return past_deadline(limits)
    if steps_taken(state) >= limits.max_steps:
        return "budget_steps", say("steps_used", most=limits.max_steps)
    if state.attempts >= limits.max_attempts_of_run:
        return "budget_attempts", say("attempts_used", most=limits.max_attempts_of_run)
    return None


def steps_taken(state: RunState) -> int:
    return state.step + state.spent.child_steps + set_aside(state).steps


def past_deadline(limits: Limits) -> tuple[str, Text]:
    return "budget_time", say("deadline_passed", deadline=instant(limits.deadline_at))


def budget_use(state: RunState) -> dict[str, Any]:
    limits = state.brief.limits
    return {
        "steps": state.step + state.spent.child_steps,
        "max_steps": limits.max_steps,
        "reframes": state.reframes,
        "max_reframes": limits.max_reframes,
        "tokens": state.spent.tokens,
        "max_tokens": limits.max_tokens,
        "cost_usd": state.spent.cost_usd,
        "max_cost_usd": limits.max_cost_usd,
        "lost_tokens": state.spent.lost_tokens,
        "lost_cost_usd": state.spent.lost_cost_usd,
        "deadline_at": limits.deadline_at,
    }


def _cost_reached(limit: float, spent: float | None) -> tuple[str, Text] | None:
    if spent is None:
        return "budget_cost", say("price_unknown", most=limit)
    return ("budget_cost", say("cost_spent", cost=spent, most=limit)) if spent >= limit else None


def _larger(current: N | None, asked: N | None) -> N | None:
    return current if current is None or asked is None else max(current, asked)


BYTES_PER_TOKEN = 2
"""Fewer than in any ordinary text, so that a reserve is not too small."""
USUAL_BYTES_PER_TOKEN = 4
MARGIN = 1.1
"""How much denser than the longest prompt a shorter one may be."""
PRUDENCE = 1.25
"""The factor for a lost call over its likely cost."""
FIRST_REPLY, SHORTEST_REPLY = 3000, 1000
"""Tokens enough for a decision: while no reply is known, and at least."""


def measured(state: RunState, reply: ModelReplied) -> RunState:
    usage, known = reply.usage, dict(state.measured)
    if not reply.prompt_bytes:
        return state
    if usage.input_tokens:
        known[reply.model] = max(known.get(reply.model, (0, 0)), (reply.prompt_bytes, usage.input_tokens))
    tokens = usage.input_tokens + usage.output_tokens
    return replace(
        state,
        measured=known,
        longest_reply=max(state.longest_reply, usage.output_tokens),
        dearest_token=max(state.dearest_token, (usage.cost_usd or 0.0) / tokens if tokens else 0.0),
    )


def most_prompt(state: RunState, model: str, size: int) -> int:
    dense = size // BYTES_PER_TOKEN
    longest, tokens = _of(state, model)
    if not longest:
        return dense
    if size <= longest:
        return min(dense, round(size * tokens / longest * MARGIN))
    return min(dense, tokens + (size - longest) // BYTES_PER_TOKEN)


def likely_prompt(state: RunState, size: int) -> int:
    longest, tokens = max(state.measured.values(), default=(USUAL_BYTES_PER_TOKEN, 1))
    return round(size * tokens / longest)


def lost_prompt(state: RunState, model: str, size: int) -> int:
    return min(most_prompt(state, model, size), round(likely_prompt(state, size) * PRUDENCE))


def least_reply(state: RunState) -> int:
    longest = state.longest_reply
    return max(SHORTEST_REPLY, longest + longest // 2) if longest else FIRST_REPLY


def _of(state: RunState, model: str) -> tuple[int, int]:
    return max((measure for name, measure in state.measured.items() if name.startswith(model)), default=(0, 0))


def on_stood_still(state: RunState, event: StoodStill) -> RunState | Text:
    if state.stood_until and state.stood_until >= event.at:
        return say("stop_known")
    since = max(event.since, state.accepted_at)
    if event.at <= since:
        return say("accepted_afterwards")
    known = replace(state, stood_until=event.at)
    match state.waiting:
        case NeedsPerson(held=Acting() as held) as waiting:  # the pause itself counts against nothing else
            return replace(known, waiting=replace(waiting, held=held.with_later_answers(event.at - since)))
        case NeedsPerson():
            return say("stands_still_already")
        case Acting() as acting:
            later = acting.with_later_answers(event.at - since).with_later_graphs(event.at - since)
            known = replace(known, waiting=later)
        case Thinking(still_since=datetime() as held_since) as waiting:  # its time stood still already
            overlap = event.at - max(since, held_since)
            known = replace(known, waiting=replace(waiting, still_since=held_since + overlap))
    return replace(extend_deadline(known, since), summary=say("stood_still", by=event.by, reason=event.reason))
