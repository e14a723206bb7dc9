"""Token estimates of a model call, from earlier calls of the run.

No tokenizer fits all models. The provider counted the longest prompt so far; the rest is taken as dense as any text.
"""

from agent_service.core.events import ModelReplied
from agent_service.core.state import RunState, replace

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
