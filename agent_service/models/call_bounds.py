"""The most that one model call may take, in tokens and USD, told before it is made: the same for all providers. Pure.

Nothing is counted by a tokenizer: none fits all models, and a bound that is too high is given back when the call ends.
"""

import json
from collections.abc import Callable

from agent_service.core.limits import cost_so_far
from agent_service.core.state import Reserve, RunState
from agent_service.models.prices import Prices
from agent_service.models.prompts.prompt import compose
from agent_service.models.settings import MOST_REPLY_TOKENS, ModelSettings
from agent_service.ports import Estimate, Question

BYTES_PER_TOKEN = 2
"""Fewer than any text has that is not made for it, so that a reserve is not too small."""


LEAST_REPLY = 3000
"""Tokens with which a decision can still be thought about and written down."""


def reply_tokens(settings: ModelSettings, question: Question) -> int:
    """The most tokens of the reply, thinking included: what was set aside for it."""
    asking = question.state.asking
    reserved = asking.reserve.reply_tokens if asking and asking.reserve else 0
    return reserved or _usual(settings, question)


def estimated(question: Question, settings: ModelSettings, prices: Prices, *, kept_1h: bool = False) -> Estimate:
    """What the call is made with, and its bounds. `kept_1h`: the provider is asked to keep the prompt for an hour."""
    prompt = compose(question)
    model = str(settings.of(question.phase).model)
    tokens = (prompt.size() + len(json.dumps(prompt.schema))) // BYTES_PER_TOKEN

    def cost_usd(reply: int) -> float | None:
        return prices.most_usd(model, prompt=tokens, reply=reply, kept_1h=kept_1h)

    reply = _affordable(question.state, tokens, _usual(settings, question), cost_usd)
    return Estimate(
        model=model,
        reserve=Reserve(tokens=tokens + reply, cost_usd=cost_usd(reply), reply_tokens=reply),
        prompt_hash=prompt.template_hash,
        schema_hash=prompt.schema_hash,
    )


def _usual(settings: ModelSettings, question: Question) -> int:
    """As configured; twice as many where the last reply was cut."""
    most = settings.of(question.phase).max_tokens or settings.max_tokens
    asking = question.state.asking
    return min(2 * most, MOST_REPLY_TOKENS) if asking and asking.longer else most


def _affordable(state: RunState, prompt: int, usual: int, cost_usd: Callable[[int], float | None]) -> int:
    """A shorter reply where the budget is nearly spent, so that what is left of it can still be used."""
    limits, spent = state.brief.limits, state.spent
    rooms = [usual]
    if limits.max_tokens is not None:
        rooms.append(limits.max_tokens - spent.tokens - spent.lost_tokens - prompt)
    paid, least, most = cost_so_far(spent), cost_usd(0), cost_usd(usual)
    if limits.max_cost_usd is not None and paid is not None and least is not None and most is not None and most > least:
        rooms.append(int(usual * (limits.max_cost_usd - paid - least) / (most - least)))
    return max(min(rooms), min(usual, LEAST_REPLY))
