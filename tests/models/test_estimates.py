"""Estimates of a model call from earlier calls."""

from agent_service.core.events import ModelReplied, ModelUsage
from agent_service.core.limits import charged
from agent_service.core.state import RunState
from agent_service.models import estimates
from tests.core.cues import framing
from tests.core.words import run_at

ONE = (10_000, 2500, 100)


def after(*calls: tuple[int, int, int], model: str = "claude-20261021") -> RunState:
    """A run after calls with these bytes, input tokens and output tokens."""
    state = run_at("run framing").state
    for size, tokens, said in calls:
        usage, at = ModelUsage(input_tokens=tokens, output_tokens=said, cost_usd=0.01), state.updated_at
        reply = ModelReplied(at=at, call=1, model=model, usage=usage, decision=framing(), prompt_bytes=size)
        state = charged(state, reply)
    return state


PROMPTS = {
    "unknown: two bytes a token": (after(), 10_000, 5000, 3125),
    "longer: only what is new at its bytes": (after(ONE), 12_000, 3500, 3500),
    "a model that answers under a more precise name": (after(ONE), 10_000, 2750, 2750),
    "another model": (after(ONE, model="gpt"), 10_000, 5000, 3125),
}


def test_a_prompt_has_at_most_as_many_tokens_and_a_lost_one_a_quarter_more_than_is_likely() -> None:
    for which, (state, size, most, lost) in PROMPTS.items():
        assert estimates.max_prompt_tokens(state, "claude", size) == most, which
        assert estimates.lost_prompt_tokens(state, "claude", size) == lost, which


def test_a_prompt_is_likely_to_be_as_dense_as_the_longest() -> None:
    assert estimates.likely_prompt_tokens(after(), 8000) == 2000
    assert estimates.likely_prompt_tokens(after((9000, 3000, 100)), 6000) == 2000


def test_a_reply_needs_room_for_half_more_than_the_longest() -> None:
    known = [after(), after((9000, 3000, 100)), after((9000, 3000, 2000), (9000, 3000, 100))]
    assert [estimates.min_reply_tokens(state) for state in known] == [3000, 1000, 3000]
