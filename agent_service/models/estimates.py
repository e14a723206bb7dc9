"""Estimates of a model call from earlier calls of the run: no tokenizer fits all models.

The provider has counted the longest prompt so far; whatever exceeds it is taken as dense as any text.
"""

from agent_service.core.state import RunState

BYTES_PER_TOKEN = 2
"""Fewer than in any ordinary text, so that a reserve is not too small."""
USUAL_BYTES_PER_TOKEN = 4
MARGIN = 1.1
"""Factor by which a shorter prompt may be denser than the longest one."""
PRUDENCE = 1.25
"""Factor from the likely to the charged cost of a lost call."""
FIRST_REPLY, SHORTEST_REPLY = 3000, 1000
"""Tokens that suffice for a decision: while no reply is known, and at least."""


def max_prompt_tokens(state: RunState, model: str, size: int) -> int:
    known = [measure for name, measure in state.measured.items() if name.startswith(model)]
    longest, tokens = max(known, default=(0, 0))
    if not longest or size > longest:
        return min(size // BYTES_PER_TOKEN, tokens + (size - longest) // BYTES_PER_TOKEN)
    return min(size // BYTES_PER_TOKEN, round(size * tokens / longest * MARGIN))


def likely_prompt_tokens(state: RunState, size: int) -> int:
    longest, tokens = max(state.measured.values(), default=(USUAL_BYTES_PER_TOKEN, 1))
    return round(size * tokens / longest)


def lost_prompt_tokens(state: RunState, model: str, size: int) -> int:
    return min(max_prompt_tokens(state, model, size), round(likely_prompt_tokens(state, size) * PRUDENCE))


def min_reply_tokens(state: RunState) -> int:
    longest = state.longest_reply
    return max(SHORTEST_REPLY, longest + longest // 2) if longest else FIRST_REPLY
