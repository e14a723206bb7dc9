"""Replies as they are streamed: silence ends a call and length does not, and what was said of it is charged."""

import asyncio
import threading
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from agent_service.core.phases import Framing
from tests.models import fake_anthropic, fake_openai
from tests.models.fake_anthropic import Claude
from tests.models.fake_openai import StreamOptions
from tests.models.model_house import OPENING, TURN, framing, reflecting
from tests.models.test_model_errors import GIVEN, error_of, kind
from tests.models.wire import Body, Delivery, Response, Served

SERVING = [fake_anthropic.serve, fake_openai.serve, fake_openai.serve_ollama]
Serving = Any


def goes_out(served: Served[Any], delivery: Delivery, text: str = GIVEN) -> None:
    """The next reply says `text`, in this way."""
    served.fake.script(lambda body: replace(served.fake.reply(body, text), delivery=delivery))


def serving_of(serve: Serving, timeout_s: float) -> AbstractAsyncContextManager[Served[Any]]:
    served: AbstractAsyncContextManager[Served[Any]] = serve(timeout_s=timeout_s)
    return served


@pytest.mark.parametrize("serve", SERVING)
async def test_a_reply_that_takes_longer_than_the_limit_is_heard_as_long_as_something_comes(serve: Serving) -> None:
    async with serving_of(serve, 1.5) as served:
        goes_out(served, "paced")
        begin = asyncio.get_running_loop().time()
        answer = await served.model.prepare(framing()).make()
        assert asyncio.get_running_loop().time() - begin > 1.5
    assert isinstance(answer.decision, Framing)


@pytest.mark.parametrize("serve", SERVING)
@pytest.mark.parametrize(("delivery", "error_class"), [("stalls", "model_timeout"), ("cut", "model_unreachable")])
async def test_a_reply_that_breaks_off_is_charged_what_it_said(
    serve: Serving, delivery: Delivery, error_class: str
) -> None:
    async with serving_of(serve, 0.4) as served:
        said = GIVEN + " " * 40_000
        goes_out(served, delivery, said)
        error = await error_of(served)
        most = served.model.prepare(framing()).estimate
    assert kind(error) == ("try_again", error_class)
    assert error.lost is not None
    assert most is not None
    tokens, cost_usd = error.lost
    assert len(said) // 4 // 3 < tokens < most.reserve.tokens
    assert cost_usd is not None


async def test_what_claude_has_thought_unseen_is_charged_as_in_a_lost_call(claude: Claude) -> None:
    def until_it_has_thought(body: Body) -> Response:
        whole = claude.fake.reply(body, GIVEN)
        return replace(whole, body=whole.body.partition(b"event: content_block_stop")[0])

    claude.fake.script(until_it_has_thought)
    error = await error_of(claude)
    assert error.lost is not None
    assert claude.fake.billed + 2500 < error.lost[0] < claude.fake.billed + 3500


@pytest.mark.parametrize("serve", SERVING)
async def test_a_call_of_which_nothing_is_known_but_that_it_was_made_counts_as_lost(serve: Serving) -> None:
    async with serving_of(serve, 0.3) as served:
        served.fake.send(Response(delivery="never"))
        error = await error_of(served)
        estimate = served.model.prepare(framing()).estimate
        assert estimate is not None
        assert error.lost == estimate.reserve.if_lost
        served.fake.fail(503)
        assert (await error_of(served)).lost is None
        served.fake.send(Response(body=b"<html>", content_type="text/html"))
        assert (await error_of(served)).lost is None
        served.fake.close()
        assert (await error_of(served)).lost is None


@pytest.mark.parametrize(
    ("kind_of_error", "expected"),
    [
        ("overloaded_error", ("try_again", "overloaded")),
        ("rate_limit_error", ("try_again", "rate_limit")),
        ("api_error", ("try_again", "model_unavailable")),
        ("400", ("fail", "model_bad_request")),
    ],
)
@pytest.mark.parametrize("serve", SERVING)
async def test_an_error_in_the_middle_of_a_stream_leads_to_what_its_status_would(
    serve: Serving, kind_of_error: str, expected: tuple[str, str]
) -> None:
    async with serving_of(serve, 5) as served:
        told: list[Body] = [{"type": "error", "error": {"type": kind_of_error, "message": "no more"}}]
        served.fake.script(lambda _: served.fake.stream(told))
        error = await error_of(served)
    assert kind(error) == expected
    assert "no more" in str(error)


@pytest.mark.parametrize(("stream_options", "requests"), [("known", 2), ("ignored", 2), ("refused", 3)])
async def test_a_server_that_does_not_say_what_a_stream_costs_is_estimated(
    stream_options: StreamOptions, requests: int
) -> None:
    async with fake_openai.serve_ollama(stream_options=stream_options, price={"input": 1, "output": 1}) as ollama:
        ollama.fake.policy = OPENING
        await ollama.model.prepare(framing()).make()
        answer = await ollama.model.prepare(framing()).make()
    assert isinstance(answer.decision, Framing)
    assert len(GIVEN) // 8 < answer.usage.output_tokens < len(GIVEN)
    assert answer.usage.input_tokens > 1000
    assert answer.usage.cost_usd
    assert len(ollama.requests) == requests
    assert bool(answer.prompt_bytes) is (stream_options == "known"), "an estimate measures nothing"


TOO_LARGE = "The compiled grammar is too large, which would cause performance issues. Simplify your tool schemas."


async def test_a_grammar_that_is_too_large_is_left_out_from_then_on_for_these_tools(claude: Claude) -> None:
    claude.fake.fail(400, message=TOO_LARGE)
    for said in (OPENING, OPENING, TURN):
        claude.answer(said)
    decisions = [(await claude.model.prepare(asked).make()).decision for asked in (framing(), framing())]
    assert [type(decision) for decision in decisions] == [Framing, Framing]
    forms = ["format" in request.get("output_config", {}) for request in claude.requests]
    assert forms == [True, False, False]
    other = reflecting()
    brief = replace(other.state.brief, skills=())
    await claude.model.prepare(replace(other, state=replace(other.state, brief=brief))).make()
    assert "format" in claude.requests[-1]["output_config"]


@pytest.mark.parametrize("serve", SERVING)
@pytest.mark.parametrize("delivery", ["never", "stalls", "paced"])
async def test_a_call_that_is_given_up_ends_at_once(serve: Serving, delivery: Delivery) -> None:
    async with serving_of(serve, 60) as served:
        asked = threading.Event()

        def noted(body: Body) -> Response:
            asked.set()
            said: Response = served.fake.reply(body, GIVEN * 10)
            return replace(said, delivery=delivery)

        served.fake.script(noted)
        call = asyncio.create_task(served.model.prepare(framing()).make())
        assert await asyncio.to_thread(asked.wait, 30)
        call.cancel()
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.CancelledError):
                await call
