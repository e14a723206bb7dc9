"""How much a model call may take and probably takes, by what the calls before it in the same run took.

No tokenizer is asked: none fits all models. A provider counted the longest prompt that a model of this run was sent; of
the next one only what it has more is unknown, and that is taken to be as dense as any text that is not made for it.
"""

from agent_service.core.events import ModelReplied
from agent_service.core.state import RunState, replace

BYTES_PER_TOKEN = 2
"""Fewer than any text has that is not made for it, so that a reserve is not too small."""
USUAL_BYTES_PER_TOKEN = 4
MARGIN = 1.1
"""How much denser than the longest prompt a shorter one may be, which repeats parts of it."""
PRUDENCE = 1.25
"""How much more than it is likely to have cost a lost call counts as."""
FIRST_REPLY, SHORTEST_REPLY = 3000, 1000
"""Tokens with which a decision can still be thought about and written down: while no reply is known, and at least."""


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
    """The most tokens that a prompt of `size` bytes can be for `model`."""
    dense = size // BYTES_PER_TOKEN
    longest, tokens = _of(state, model)
    if not longest:
        return dense
    if size <= longest:
        return min(dense, round(size * tokens / longest * MARGIN))
    return min(dense, tokens + (size - longest) // BYTES_PER_TOKEN)


def likely_prompt(state: RunState, size: int) -> int:
    """About how many tokens a prompt of `size` bytes is."""
    longest, tokens = max(state.measured.values(), default=(USUAL_BYTES_PER_TOKEN, 1))
    return round(size * tokens / longest)


def lost_prompt(state: RunState, model: str, size: int) -> int:
    """What a prompt of `size` bytes counts as when its call is lost: rather more than it is likely to be."""
    return min(most_prompt(state, model, size), round(likely_prompt(state, size) * PRUDENCE))


def least_reply(state: RunState) -> int:
    longest = state.longest_reply
    return max(SHORTEST_REPLY, longest + longest // 2) if longest else FIRST_REPLY


def _of(state: RunState, model: str) -> tuple[int, int]:
    return max((measure for name, measure in state.measured.items() if name.startswith(model)), default=(0, 0))
