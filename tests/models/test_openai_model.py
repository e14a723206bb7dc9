"""OpenAI's adapter: what it asks of OpenAI and of other servers, what that costs, and what it makes of their replies.

What it has in common with other adapters is in `test_model_port`.
"""

import json
import logging
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from agent_service.core.phases import Phase, Refusal, Unusable
from agent_service.run.ports import Question
from tests.models import fake_openai, openai_rules
from tests.models.fake_openai import Ollama, OpenAI
from tests.models.model_house import (
    OPENING,
    TURN,
    VERIFICATION,
    framing,
    question,
    reflecting,
)
from tests.models.openai_rules import rendered

VERIFYING = question(reflecting(3).state, Phase.VERIFY)
FORMS: dict[str, tuple[Question, dict[str, Any]]] = {
    "decision": (framing(), OPENING),
    "verification": (VERIFYING, VERIFICATION),
}
GIVEN = json.dumps(OPENING, indent=2)


@pytest.mark.parametrize("model", openai_rules.MODELS)
@pytest.mark.parametrize("form", FORMS)
async def test_openai_takes_the_strict_schema_of_every_form_from_every_model(model: str, form: str) -> None:
    asked, reply = FORMS[form]
    async with fake_openai.serve(model=model) as served:
        served.answer(reply)
        answer = await served.model.prepare(asked).make()
    assert not isinstance(answer.decision, Unusable)
    assert served.requests[0]["response_format"]["json_schema"]["strict"]
    assert served.requests[0]["response_format"]["json_schema"]["name"] == form


@pytest.mark.parametrize("model", openai_rules.MODELS)
async def test_openai_is_told_to_store_nothing_and_where_to_look_for_the_run(model: str) -> None:
    async with fake_openai.serve(model=model) as served:
        served.answer(OPENING)
        await served.model.prepare(framing()).make()
    (request,) = served.requests
    assert request["store"] is False
    assert request["prompt_cache_key"] == framing().state.run_id
    assert request["max_completion_tokens"] == 8000


async def test_other_servers_are_sent_only_what_they_all_know(ollama: Ollama) -> None:
    ollama.answer(OPENING)
    await ollama.model.prepare(framing()).make()
    (request,) = ollama.requests
    assert request.keys() == {"model", "messages", "max_tokens", "response_format", "stream", "stream_options"}
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert all(isinstance(message["content"], str) for message in request["messages"])


@pytest.mark.parametrize("model", ["gpt-5.6-sol", "gpt-6-astra"])
async def test_with_marks_each_turn_asks_for_all_that_the_turn_before_has_written(model: str) -> None:
    """From GPT-5.6 on what ends at a mark is written, and found where the same ends at a mark again."""
    async with fake_openai.serve(model=model) as served:
        for steps in (1, 2, 3, 4):
            await _turn(served, steps)
    for before, now in pairwise(map(written, served.requests)):
        assert before[-1] in now
        assert len(now[-1]) > len(before[-1])


def written(request: dict[str, Any]) -> list[str]:
    """The beginnings of a prompt that end at a mark."""
    texts = [text for text, _ in rendered(request)]
    return ["".join(texts[: at + 1]) for at, (_, marked) in enumerate(rendered(request)) if marked]


async def test_from_gpt_5_6_on_at_most_four_marks_are_set_and_none_on_what_changes(served: OpenAI) -> None:
    for steps in (1, 2, 7):
        served.answer(TURN)
        await served.model.prepare(reflecting(steps)).make()
        (system, user) = (message["content"] for message in served.requests[-1]["messages"])
        marked = ["prompt_cache_breakpoint" in part for part in (*system, *user)]
        assert 2 <= sum(marked) <= 4
        assert not marked[-1]
        assert marked[-2]
    assert served.requests[0]["prompt_cache_options"] == {"mode": "explicit"}


@pytest.mark.parametrize("price", [None, {"input": 4.0, "output": 20.0, "cache_read": 0.4, "cache_write": 5.0}])
async def test_what_is_written_to_the_cache_and_read_from_it_has_its_own_price(price: Any) -> None:
    async with fake_openai.serve(price=price) as served:
        estimate = served.model.prepare(framing()).estimate
        costs = []
        for read, wrote in ((0, 0), (1000, 0), (0, 1000)):
            details = {"cached_tokens": read, "cache_write_tokens": wrote}
            used = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": details}
            served.fake.complete(content="{}", usage=used)
            costs.append((await served.model.prepare(framing()).make()).usage.cost_usd)
    assert costs == [pytest.approx(cost / 1_000_000) for cost in (4000 + 2000, 400 + 2000, 5000 + 2000)]
    assert estimate is not None
    assert estimate.reserve.cost_usd == pytest.approx(
        ((estimate.reserve.tokens - 8000) * 5.0 + 8000 * 20.0) / 1_000_000
    )


async def test_a_filtered_reply_is_a_refusal(served: OpenAI) -> None:
    served.fake.complete(content='{"framing": ', finish_reason="content_filter")
    answer = await served.model.prepare(framing()).make()
    assert answer.decision == Refusal(category="content_filter")


@pytest.mark.parametrize("content", [None, ""])
async def test_a_reply_without_text_is_paid_for_and_repaired(ollama: Ollama, content: str | None) -> None:
    """As where a server parses thoughts, and the model only thought: asking again for nothing would never end."""
    ollama.fake.complete(content=content)
    answer = await ollama.model.prepare(framing()).make()
    assert answer.decision == Unusable(reason="the reply holds no text", flaws=("the reply holds no text",))
    assert answer.usage.input_tokens > 0


async def test_a_prompt_that_the_server_did_not_read_to_its_end_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async with fake_openai.serve_ollama(context=500) as short, fake_openai.serve_ollama() as long:
        with caplog.at_level(logging.WARNING):
            await _turn(long, 1)
            assert caplog.records == []
            await _turn(short, 1)
    (warning,) = caplog.records
    assert "longer context" in warning.getMessage()
    assert vars(warning)["run_id"] == reflecting().state.run_id
    assert vars(warning)["tokens_read"] == 500


async def _turn(served: OpenAI | Ollama, steps: int) -> Any:
    served.answer(TURN)
    return (await served.model.prepare(reflecting(steps)).make()).usage


@pytest.fixture
async def served() -> AsyncIterator[OpenAI]:
    """Against OpenAI."""
    async with fake_openai.serve() as served:
        yield served


@pytest.fixture
async def ollama() -> AsyncIterator[Ollama]:
    async with fake_openai.serve_ollama() as served:
        yield served
