"""Remaining budgets of a run, worded for its model. Pure.

A note is added when a fifth of any budget is left, at the last step, and when hardly another call fits.
"""

from collections.abc import Iterator
from datetime import datetime

from agent_service.core.limits import SHORTEST_REPLY, likely_prompt_tokens, min_reply_tokens, steps_taken
from agent_service.core.phases import Phase
from agent_service.core.state import RunState
from schemas.values import dataclass

SHORT = 0.8
TO_THE_END = "say `done` if every item is met, else `ask` or `escalate`, with what was found and what is open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """`left`: rest of each budget. `note`: what is scarce and how to act; empty if nothing is."""

    left: tuple[str, ...]
    note: str


_Left = tuple[str, float, bool]
"""Rest of a budget, its used share, and true if it is always shown."""


def budget_of(state: RunState, phase: Phase, now: datetime, *, prompt_bytes: int) -> Budget:
    """`prompt_bytes`: estimated size of the prompt that holds it."""
    calls = calls_after(state, prompt_bytes)
    budgets = tuple(_budgets(state, now, calls))
    short = tuple(words for words, used, _ in budgets if used >= SHORT)
    return Budget(
        left=tuple(words for words, used, always in budgets if always or used >= SHORT),
        note=_note(state, phase, short, last=calls == 0),
    )


def calls_after(state: RunState, prompt_bytes: int) -> int | None:
    """Estimated number of model calls that fit after this one; None if unlimited or unknown."""
    limits, spent, cost = state.brief.limits, state.spent, state.spent.paid
    prompt, rooms = likely_prompt_tokens(state, prompt_bytes), []
    least = prompt + (min_reply_tokens(state) if state.longest_reply else SHORTEST_REPLY)
    if limits.max_tokens is not None:
        left = limits.max_tokens - spent.tokens - spent.lost_tokens
        rooms.append(_fits(left, prompt + (state.longest_reply or SHORTEST_REPLY), least))
    if limits.max_cost_usd is not None and cost and spent.calls:
        rooms.append(_fits(limits.max_cost_usd - cost, cost / spent.calls, least * state.dearest_token))
    return min(rooms, default=None)


def _fits(left: float, takes: float, needs: float) -> int:
    after = left - takes
    return 0 if after < needs else 1 + int((after - needs) / takes)


def _note(state: RunState, phase: Phase, short: tuple[str, ...], *, last: bool) -> str:
    if not short or phase in (Phase.COMPACT, Phase.VERIFY):
        return ""
    if phase is not Phase.FRAME and steps_taken(state) >= state.brief.limits.max_steps:
        return f"No step is left, so no action can be carried out: {TO_THE_END}."
    if phase is not Phase.FRAME and last:
        return f"No model call fits into the budget after this one: {TO_THE_END}."
    return f"Little is left ({'; '.join(short)}): finish what matters most, or end while you can still say why."


def _budgets(state: RunState, now: datetime, calls: int | None) -> Iterator[_Left]:
    limits, taken, tokens, cost = state.brief.limits, steps_taken(state), state.spent.used, state.spent.paid
    left = max(0, limits.max_steps - taken)
    is_last = (taken and left <= 1) or not limits.max_steps
    yield f"{left} of {limits.max_steps} steps", 1.0 if is_last else taken / limits.max_steps, True
    lasts_s = (limits.deadline_at - state.accepted_at).total_seconds()
    left_s = max(0.0, (limits.deadline_at - now).total_seconds())
    words = f"{round(left_s / 60)} minutes" if left_s >= 90 else f"{round(left_s)} seconds"
    yield words, 1 - left_s / lasts_s if lasts_s > 0 else 1.0, True
    shares = [0.0]
    if limits.max_tokens is not None:
        shares.append(tokens / limits.max_tokens)
        yield f"{max(0, limits.max_tokens - tokens)} of {limits.max_tokens} tokens", shares[-1], True
    if limits.max_cost_usd is not None and cost is not None:
        shares.append(cost / limits.max_cost_usd)
        yield f"{max(0.0, limits.max_cost_usd - cost):.4f} of {limits.max_cost_usd:.4f} USD", shares[-1], True
    if calls is not None:
        number = {0: "no", 1: "about one"}.get(calls, f"about {calls}")
        more = f"{number} more model call{'s' if calls > 1 else ''} after this one"
        yield more, 1.0 if calls <= 1 else max(shares), False
    for what, used, most in (
        ("reframes", state.reframes, limits.max_reframes),
        ("tool attempts", state.attempts, limits.max_attempts_of_run),
        ("questions to people", state.questions, limits.max_questions),
    ):
        if used:
            yield f"{max(0, most - used)} of {most} {what}", used / max(1, most), False
