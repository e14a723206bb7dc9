"""Requests to OpenAI and to other servers with its API, their cost, and replies that only they give."""

import logging
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import jsonschema_rs
import pytest

from agent_service.core.phases import Framing, ModelRefusal, Phase, Unusable
from tests.models import fake_openai
from tests.models.fake_openai import MODELS, Ollama, OpenAI, StreamOptions, rendered
from tests.models.model_house import OPENING, TURN, VERIFICATION, framing, question, reflecting
from tests.models.test_providers import GIVEN


@pytest.fixture
async def ollama() -> AsyncIterator[Ollama]:
    async with fake_openai.serve_ollama() as served:
        yield served


async def turn(served: OpenAI | Ollama, steps: int) -> Any:
    served.fake.answer(TURN)
    return (await served.model.prepare(reflecting(steps)).make()).usage


@pytest.mark.parametrize("model", MODELS)
async def test_openai_takes_the_strict_schema_of_every_form_stores_nothing_and_is_led_to_the_runs_cache(
    model: str,
) -> None:
    replies = ((framing(), OPENING), (question(reflecting(3).state, Phase.VERIFY), VERIFICATION))
    async with fake_openai.serve(model=model) as served:
        for asked, reply in replies:
            served.fake.answer(reply)
            assert not isinstance((await served.model.prepare(asked).make()).decision, Unusable)
            request = served.fake.requests[-1]
            assert request["response_format"]["json_schema"]["strict"]
            assert request["store"] is False
            assert request["prompt_cache_key"] == framing().state.run_id
            assert request["max_completion_tokens"] == 8000
            schema = request["response_format"]["json_schema"]["schema"]
            nothing: dict[str, Any] = {"memory": []} if reply is OPENING else {}
            assert jsonschema_rs.is_valid(schema, reply | nothing), "with null for each part that is not asked for"


async def test_other_servers_are_sent_only_what_they_all_know(ollama: Ollama) -> None:
    await turn(ollama, 1)
    (request,) = ollama.fake.requests
    assert request.keys() == {"model", "messages", "max_tokens", "response_format", "stream", "stream_options"}
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert all(isinstance(message["content"], str) for message in request["messages"])


async def test_from_gpt_5_6_on_each_turn_asks_for_all_that_the_turn_before_has_written_at_marks() -> None:
    async with fake_openai.serve(model="gpt-5.6-sol") as served:
        for steps in (1, 2, 3, 4, 9):
            await turn(served, steps)
            (system, user) = (message["content"] for message in served.fake.requests[-1]["messages"])
            marked = ["prompt_cache_breakpoint" in part for part in (*system, *user)]
            assert 2 <= sum(marked) <= 4
            assert marked[-2:] == [True, False], "what changes is not marked"
    assert served.fake.requests[0]["prompt_cache_options"] == {"mode": "explicit"}
    for before, now in pairwise(map(written, served.fake.requests[:-1])):
        assert before[-1] in now
        assert len(now[-1]) > len(before[-1])


def written(request: dict[str, Any]) -> list[str]:
    texts = [text for text, _ in rendered(request)]
    return ["".join(texts[: at + 1]) for at, (_, marked) in enumerate(rendered(request)) if marked]


@pytest.mark.parametrize("price", [None, {"input": 4.0, "output": 20.0, "cache_read": 0.4, "cache_write": 5.0}])
async def test_what_is_written_to_the_cache_and_read_from_it_has_its_own_price(price: Any) -> None:
    async with fake_openai.serve(price=price) as served:
        reserved = served.model.prepare(framing()).reserved
        costs = []
        for read, wrote in ((0, 0), (1000, 0), (0, 1000)):
            details = {"cached_tokens": read, "cache_write_tokens": wrote}
            used = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": details}
            served.fake.complete(content="{}", usage=used)
            costs.append((await served.model.prepare(framing()).make()).usage.cost_usd)
    assert costs == [pytest.approx(cost / 1_000_000) for cost in (4000 + 2000, 400 + 2000, 5000 + 2000)]
    assert reserved is not None
    dearest = (reserved.reserve.tokens - 8000) * 5.0 + 8000 * 20.0
    assert reserved.reserve.cost_usd == pytest.approx(dearest / 1_000_000)


async def test_a_filtered_reply_is_a_refusal_and_one_without_text_is_paid_for_and_repaired(ollama: Ollama) -> None:
    """A model that only thought gives no text: repeating the call for nothing would never end."""
    ollama.fake.complete(content='{"framing": ', finish_reason="content_filter")
    answer = await ollama.model.prepare(framing()).make()
    assert answer.decision == ModelRefusal(category="content_filter")
    ollama.fake.script(lambda body: ollama.fake.stream([_chunk(body, content=GIVEN, refusal="")]))
    assert isinstance((await ollama.model.prepare(framing()).make()).decision, Framing)
    for content in (None, ""):
        ollama.fake.complete(content=content)
        answer = await ollama.model.prepare(framing()).make()
        assert isinstance(answer.decision, Unusable)
        assert answer.decision.flaws
        assert answer.usage.input_tokens > 0


def _chunk(body: dict[str, Any], **delta: str) -> dict[str, Any]:
    return {"id": "c", "model": body["model"], "choices": [{"delta": delta, "finish_reason": "stop"}]}


async def test_a_prompt_that_the_server_did_not_read_to_its_end_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_openai.serve_ollama(context=500) as short, fake_openai.serve_ollama() as long:
        with caplog.at_level(logging.WARNING):
            await turn(long, 1)
            assert caplog.records == []
            await turn(short, 1)
    (warning,) = caplog.records
    assert vars(warning)["run_id"] == reflecting().state.run_id
    assert vars(warning)["tokens_read"] == 500


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
    assert len(ollama.fake.requests) == requests
    assert bool(answer.prompt_bytes) is (stream_options == "known"), "an estimate measures nothing"
