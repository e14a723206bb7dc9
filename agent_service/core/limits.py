"""Limits of a run: which one is reached, how they are raised, what a call may cost, and how long a run stood still.

No tokenizer fits all models: a call is estimated from earlier calls of the run. The provider counted the longest prompt
so far; the rest is taken as dense as any text.
"""

from datetime import datetime, timedelta
from typing import Any, TypeVar

from agent_service.core.brief import Grant, Limits, Spent
from agent_service.core.events import ModelReplied, ModelUsage, StoodStill
from agent_service.core.facts import LimitsRaised
from agent_service.core.state import RunState, with_facts
from agent_service.core.waiting import Acting, Ended, NeedsPerson, Reserve, Thinking
from agent_service.sentences import Text, instant, say
from schemas.events import Constraints
from schemas.values import replace

N = TypeVar("N", int, float)
Reached = tuple[str, Text]
"""The class of the ending, and why."""
FEW_CALLS = 3
"""So many, each like the average call of the run, are spared for decisions."""
RAISED = {
    "budget_steps": "max_steps",
    "budget_reframes": "max_reframes",
    "budget_tokens": "max_tokens",
    "budget_cost": "max_cost_usd",
    "budget_time": "deadline_at",
}
"""The limits that a person can raise, by the class of the ending."""
_TOKENS = "budget_tokens", "tokens_spent", "tokens_too_few"
_COST = "budget_cost", "cost_spent", "cost_too_high"

# Which one is reached


def reached_before_a_call(state: RunState, reserve: Reserve | None = None) -> Reached | None:
    """By now, or by a call that takes all of its `reserve`."""
    limits = state.brief.limits
    if state.updated_at >= limits.deadline_at:
        return past_deadline(limits)
    if limits.max_tokens is None and limits.max_cost_usd is None:
        return None
    taken, (tokens, cost) = with_set_aside(state), (reserve.tokens, reserve.cost_usd) if reserve else (0, 0.0)
    by_tokens = _reached(_TOKENS, taken.tokens + taken.lost_tokens, tokens, limits.max_tokens)
    return by_tokens or _reached(_COST, cost_so_far(taken), cost, limits.max_cost_usd)


def _reached(
    words: tuple[str, str, str], taken: float | None, need: float | None, most: float | None
) -> Reached | None:
    ending_class, spent, too_much = words
    if most is None:
        return None
    if taken is None or need is None:
        return ending_class, say("price_unknown", most=most)
    if taken >= most:
        return ending_class, say(spent, taken=taken, most=most)
    return (ending_class, say(too_much, taken=taken, most=most, need=need)) if taken + need > most else None


def reached_before_a_step(state: RunState) -> Reached | None:
    limits = state.brief.limits
    if state.updated_at >= limits.deadline_at:
        return past_deadline(limits)
    if steps_taken(state) >= limits.max_steps:
        return "budget_steps", say("steps_used", most=limits.max_steps)
    if state.attempts >= limits.max_attempts_of_run:
        return "budget_attempts", say("attempts_used", most=limits.max_attempts_of_run)
    return None


def steps_taken(state: RunState) -> int:
    return state.step + with_set_aside(state).child_steps


def past_deadline(limits: Limits) -> Reached:
    return "budget_time", say("deadline_passed", deadline=instant(limits.deadline_at))


def nearly_spent(state: RunState) -> bool:
    limits, spent = state.brief.limits, state.spent
    budgets = ((limits.max_tokens, spent.tokens + spent.lost_tokens), (limits.max_cost_usd, cost_so_far(spent)))
    return any(limit and used and spent.calls * (limit - used) < FEW_CALLS * used for limit, used in budgets)


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


# What is spent


def with_reply(spent: Spent, usage: ModelUsage) -> Spent:
    return replace(
        spent,
        calls=spent.calls + 1,
        input_tokens=spent.input_tokens + usage.input_tokens,
        output_tokens=spent.output_tokens + usage.output_tokens,
        cost_usd=added(spent.cost_usd, usage.cost_usd),
        cache_read_tokens=spent.cache_read_tokens + usage.cache_read_tokens,
    )


def set_aside(state: RunState) -> Grant:
    out = state.waiting.out if isinstance(state.waiting, Ended) else state.pendings
    grants = [one.grant for one in out if one.grant] if state.brief.may_have_children else []
    return Grant(
        steps=sum([grant.steps for grant in grants]),
        tokens=sum([grant.tokens or 0 for grant in grants]),
        cost_usd=sum([grant.cost_usd or 0.0 for grant in grants]),
    )


def with_set_aside(state: RunState) -> Spent:
    """What was spent, with all that children may spend who have not told yet."""
    spent = state.spent
    if not state.brief.may_have_children:
        return spent
    aside = set_aside(state)
    return replace(
        spent,
        child_steps=spent.child_steps + aside.steps,
        lost_tokens=spent.lost_tokens + (aside.tokens or 0),
        lost_cost_usd=added(spent.lost_cost_usd, aside.cost_usd),
    )


def with_cost_of_lost(spent: Spent, tokens: int, cost: float | None) -> Spent:
    return replace(
        spent,
        lost_calls=spent.lost_calls + 1,
        lost_tokens=spent.lost_tokens + tokens,
        lost_cost_usd=added(spent.lost_cost_usd, cost),
    )


def cost_so_far(spent: Spent) -> float | None:
    """What was or perhaps was paid; null when a price is unknown."""
    return added(spent.cost_usd, spent.lost_cost_usd)


def added(one: N | None, other: N | None) -> N | None:
    """Unknown where one of them is."""
    return None if one is None or other is None else one + other


# How they are raised


def raised(state: RunState, more: Constraints) -> RunState:
    """Larger numbers win; nothing is ever lowered."""
    limits = state.brief.limits
    asked = {name: getattr(more, name) for name in RAISED.values()} | {"max_steps": more.max_loops or more.max_steps}
    both = {name: (getattr(limits, name), number) for name, number in asked.items()}
    larger: dict[str, Any] = {name: max(pair) for name, pair in both.items() if None not in pair}
    changed = with_limits(state, **larger)
    return with_facts(changed, LimitsRaised(limits=changed.brief.limits))


def with_limits(state: RunState, **changed: Any) -> RunState:
    return replace(state, brief=replace(state.brief, limits=replace(state.brief.limits, **changed)))


def extend_deadline(state: RunState, since: datetime | None) -> RunState:
    granted = state.brief.limits
    if since is None or granted.deadline_named:
        return state
    return with_limits(state, deadline_at=granted.deadline_at + (state.updated_at - since))


def expires_at(limits: Limits, since: datetime, patience_s: float) -> datetime:
    patient_until = since + timedelta(seconds=patience_s)
    return min(patient_until, limits.deadline_at) if limits.deadline_named else patient_until


def with_more_attempts(state: RunState) -> RunState:
    granted = state.brief.limits
    return with_limits(
        state, max_attempts_of_run=max(granted.max_attempts_of_run, state.attempts + granted.max_attempts)
    )


def on_stood_still(state: RunState, event: StoodStill) -> RunState | Text:
    """Everything was stopped, and goes on: what ran out meanwhile has as much time as before."""
    since = max(event.since, state.accepted_at)
    if state.stood_until and state.stood_until >= event.at:
        return say("stop_known")
    if event.at <= since:
        return say("accepted_afterwards")
    known, by = replace(state, stood_until=event.at), event.at - since
    match state.waiting:
        case NeedsPerson(held=Acting() as held) as waiting:  # the pause itself counts against nothing else
            return replace(known, waiting=replace(waiting, held=held.later(by, answers=True)))
        case NeedsPerson():
            return say("stands_still_already")
        case Acting() as acting:
            known = replace(known, waiting=acting.later(by).later(by, answers=True))
        case Thinking(still_since=datetime() as held_since) as waiting:  # its time stood still already
            overlap = event.at - max(since, held_since)
            known = replace(known, waiting=replace(waiting, still_since=held_since + overlap))
    return replace(extend_deadline(known, since), summary=say("stood_still", by=event.by, reason=event.reason))


# What a call takes


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
