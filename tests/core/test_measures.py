"""Estimates of a model call from earlier calls."""

from agent_service.core.events import ModelReplied, ModelUsage
from agent_service.core.limits import (
    likely_prompt_tokens,
    lost_prompt_tokens,
    max_prompt_tokens,
    measures,
    min_reply_tokens,
)
from agent_service.core.state import RunState
from schemas.values import replace
from tests.core.cues import a_framing_run, framing


def after(*calls: tuple[int, int, int], model: str = "claude", cost_usd: float | None = 0.01) -> RunState:
    """A run after calls with these bytes, input tokens and output tokens."""
    state = a_framing_run().state
    for size, tokens, said in calls:
        usage = ModelUsage(input_tokens=tokens, output_tokens=said, cost_usd=cost_usd)
        reply = ModelReplied(
            at=state.updated_at, call=1, model=model, usage=usage, decision=framing(), prompt_bytes=size
        )
        state = replace(state, **measures(state, reply))
    return state


def test_an_unknown_prompt_is_taken_at_two_bytes_a_token() -> None:
    assert max_prompt_tokens(after(), "claude", 10_000) == 5000


def test_of_a_longer_prompt_only_what_is_new_is_taken_at_its_bytes() -> None:
    assert max_prompt_tokens(after((10_000, 2500, 100)), "claude", 12_000) == 2500 + 1000


def test_a_model_that_answers_under_a_more_precise_name_is_known() -> None:
    assert max_prompt_tokens(after((10_000, 2500, 100), model="claude-20261021"), "claude", 10_000) == 2750
    assert max_prompt_tokens(after((10_000, 2500, 100), model="gpt"), "claude", 10_000) == 5000


def test_a_prompt_is_likely_to_be_as_dense_as_the_longest() -> None:
    assert likely_prompt_tokens(after(), 8000) == 2000
    assert likely_prompt_tokens(after((9000, 3000, 100)), 6000) == 2000


def test_a_lost_prompt_counts_as_a_quarter_more_than_it_is_likely_to_be_and_at_most_as_what_was_set_aside() -> None:
    assert lost_prompt_tokens(after(), "claude", 8000) == 2500
    assert lost_prompt_tokens(after((10_000, 2500, 100)), "claude", 10_000) == 2750
    assert lost_prompt_tokens(after((10_000, 2500, 100)), "claude", 12_000) == 3500


def test_a_reply_needs_room_for_half_more_than_the_longest() -> None:
    assert min_reply_tokens(after()) == 3000
    assert min_reply_tokens(after((9000, 3000, 100))) == 1000
    assert min_reply_tokens(after((9000, 3000, 2000), (9000, 3000, 100))) == 3000
