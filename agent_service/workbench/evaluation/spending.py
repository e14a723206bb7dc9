"""Rules of spending: no limit is exceeded, and what was paid is counted. Pure; see `violations`."""

from collections.abc import Iterator

from agent_service.core.events import ModelReplied
from agent_service.core.state import RunState, Spent
from agent_service.workbench.evaluation.observed import Moment, Observed

PENNY = 1e-9
"""Sums of floats may differ by so many USD."""


def budgets_hold(seen: Observed) -> Iterator[str]:
    for moment in seen.moments:
        yield from (f"entry {moment.seq}: {what}" for what in _counts(moment.state))
        if isinstance(moment.event, ModelReplied) and moment.before:
            yield from (f"entry {moment.seq}: {what}" for what in _call(moment, moment.before))
    for request in seen.requests:
        limits = seen.moments[-1].state.brief.limits
        if request.at >= limits.deadline_at:
            yield f"step {request.asked.step} was asked for after the deadline"


def what_is_spent_is_counted(seen: Observed) -> Iterator[str]:
    if not seen.moments:
        return
    spent = seen.moments[-1].state.spent
    usages = [moment.event.usage for moment in seen.moments if isinstance(moment.event, ModelReplied)]
    paid = [usage.cost_usd for usage in usages]
    tokens = sum(usage.input_tokens + usage.output_tokens for usage in usages)
    if (spent.calls, spent.tokens) != (len(usages), tokens):
        counted = f"{spent.calls} calls and {spent.tokens} tokens are counted"
        yield f"{counted}, the journal holds {len(usages)} and {tokens}"
    known = [cost for cost in paid if cost is not None]
    if (len(known) < len(paid)) != (spent.cost_usd is None):
        yield "an unknown price is counted as a known one, or the other way round"
    elif spent.cost_usd is not None and abs(sum(known) - spent.cost_usd) > PENNY:
        yield f"{spent.cost_usd} USD are counted, the journal holds {sum(known)}"


def _counts(state: RunState) -> Iterator[str]:
    limits = state.brief.limits
    counted = (
        ("steps", state.step, limits.max_steps),
        ("reframes", state.reframes, limits.max_reframes),
        ("attempts", state.attempts, limits.max_attempts_of_run),
        ("attempts of a step", state.pending.attempt if state.pending else 0, limits.max_attempts),
    )
    for what, used, most in counted:
        if used > most:
            yield f"{used} {what}, and {most} are allowed"


def _call(moment: Moment, before: RunState) -> Iterator[str]:
    """A call may be made while something is left; one whose reserve was set aside may not go beyond what is left."""
    limits, reserved = before.brief.limits, bool(before.reserve)
    used, cost = _tokens(before.spent), _cost(before.spent)
    if limits.max_tokens is not None:
        if used >= limits.max_tokens:
            yield f"a call was made with {used} of {limits.max_tokens} tokens spent"
        elif reserved and _tokens(moment.state.spent) > limits.max_tokens:
            yield f"{_tokens(moment.state.spent)} of {limits.max_tokens} tokens are spent"
    if limits.max_cost_usd is not None:
        if cost is None or cost >= limits.max_cost_usd:
            yield f"a call was made with {cost} of {limits.max_cost_usd} USD spent"
        elif reserved and (_cost(moment.state.spent) or 0.0) > limits.max_cost_usd + PENNY:
            yield f"{_cost(moment.state.spent)} of {limits.max_cost_usd} USD are spent"


def _tokens(spent: Spent) -> int:
    return spent.tokens + spent.lost_tokens


def _cost(spent: Spent) -> float | None:
    return None if spent.cost_usd is None or spent.lost_cost_usd is None else spent.cost_usd + spent.lost_cost_usd
