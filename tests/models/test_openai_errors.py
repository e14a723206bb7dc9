"""OpenAI's adapter: what is to be done when no reply comes, or none that can be read."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent_service.errors import ModelError
from tests.models import fake_ollama, fake_openai
from tests.models.fake_openai import ServedOpenAI
from tests.models.model_house import KEY, OPENING, framing
from tests.models.wire import Response

GIVEN = json.dumps(OPENING)


async def error_of(served: ServedOpenAI) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await served.model.prepare(framing()).make()
    return raised.value


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{}", b"[]", b"null", b'"yes"', b"<html>", b'{"choices": []}', b"\xff"),
        b'{"id": "1", "model": "m", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}',
    ],
)
async def test_an_answer_that_is_no_completion_is_asked_for_again(served: ServedOpenAI, body: bytes) -> None:
    served.fake.send(Response(body=body))
    error = await error_of(served)
    assert (error.remedy, error.error_class) == ("try_again", "model_bad_answer")


@pytest.mark.parametrize("lacking", ["choices", "usage"])
async def test_an_incomplete_completion_is_asked_for_again(served: ServedOpenAI, lacking: str) -> None:
    served.fake.complete(content=GIVEN, without=(lacking,))
    error = await error_of(served)
    assert (error.remedy, error.error_class) == ("try_again", "model_bad_answer")
    assert lacking in str(error)


async def test_a_completion_without_an_end_is_asked_for_again(served: ServedOpenAI) -> None:
    served.fake.complete(content=GIVEN, finish_reason=None)
    assert (await error_of(served)).remedy == "try_again"


@pytest.mark.parametrize(
    ("status", "code", "remedy", "error_class"),
    [
        (429, "rate_limit_exceeded", "try_again", "rate_limit"),
        (429, "insufficient_quota", "pause", "model_spend_limit"),
        (429, "billing_hard_limit_reached", "pause", "model_spend_limit"),
        (400, "context_length_exceeded", "shrink", "prompt_too_long"),
        (400, "invalid_prompt", "escalate", "model_refused"),
        (400, "unsupported_parameter", "fail", "model_bad_request"),
        (401, "invalid_api_key", "fail", "model_auth"),
        (403, "", "fail", "model_auth"),
        (404, "model_not_found", "fail", "model_not_found"),
        (409, "", "try_again", "model_unavailable"),
        (500, "", "try_again", "model_unavailable"),
        (503, "", "try_again", "overloaded"),
    ],
)
async def test_an_error_says_what_to_do(
    served: ServedOpenAI, status: int, code: str, remedy: str, error_class: str
) -> None:
    served.fail(status, code)
    error = await error_of(served)
    assert (error.remedy, error.error_class) == (remedy, error_class)
    assert f"HTTP {status} {code}".strip() in str(error)
    assert "as scripted" in str(error)
    assert "(request req_0001)" in str(error)
    assert len(served.requests) == 1


@pytest.mark.parametrize(
    ("status", "message", "remedy"),
    [
        (429, "Request too large for gpt-5.4 on tokens per min (TPM): Limit 30000, Requested 31284.", "shrink"),
        (429, "Rate limit reached for gpt-5.4 on tokens per min (TPM): Limit 30000, Used 29000.", "try_again"),
        (400, "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens", "shrink"),
        (400, "request (26528 tokens) exceeds the available context size (16384 tokens)", "shrink"),
    ],
)
async def test_a_prompt_that_is_too_long_is_known_by_what_servers_say(
    served: ServedOpenAI, status: int, message: str, remedy: str
) -> None:
    served.fake.fail(status, "400", message=message)
    assert (await error_of(served)).remedy == remedy


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"object": "error", "message": "it broke", "type": "BadRequestError", "code": 400}, id="vLLM"),
        pytest.param({"error": "it broke"}, id="a text"),
        pytest.param({"error": {"message": "it broke", "type": ["x"], "code": {}}}, id="other types"),
        pytest.param({"error": {"message": "it broke", "type": {}, "param": 1}}, id="no code"),
        pytest.param({"error": {"message": "it broke"}}, id="OpenAI"),
        pytest.param("it broke", id="no object"),
    ],
)
async def test_what_a_server_says_is_told_however_it_says_it(served: ServedOpenAI, body: Any) -> None:
    served.fake.send(Response(status=400, body=json.dumps(body).encode()))
    error = await error_of(served)
    assert "it broke" in str(error)
    assert "400 400" not in str(error)


async def test_a_quota_is_used_up_whatever_the_code_says(served: ServedOpenAI) -> None:
    told = {"message": "spent", "type": "insufficient_quota", "code": "project_spend_limit_exceeded"}
    served.fake.send(Response(status=429, body=json.dumps({"error": told}).encode()))
    assert (await error_of(served)).remedy == "pause"


async def test_the_wish_of_a_server_that_is_asked_too_often_is_passed_on(served: ServedOpenAI) -> None:
    served.fail(429, "rate_limit_exceeded", {"retry-after": "7.5"})
    assert (await error_of(served)).retry_after_s == 7.5


async def test_a_key_is_not_told_even_when_the_server_repeats_it() -> None:
    wrong = f"{KEY}-of-another-account"
    async with fake_openai.serve(api_key=wrong) as served:
        error = await error_of(served)
    assert (error.remedy, error.error_class) == ("fail", "model_auth")
    assert "Incorrect API key provided" in str(error)
    assert wrong not in str(error)


async def test_a_model_that_was_not_pulled_is_named_with_what_to_do() -> None:
    async with fake_ollama.serve(model="llama9") as served:
        error = await error_of(served)
    assert (error.remedy, error.error_class) == ("fail", "model_not_found")
    assert 'model "llama9" not found, try pulling it first' in str(error)
    assert "agent.model.model" in str(error)


async def test_a_base_url_without_its_path_is_told_so(ollama: ServedOpenAI) -> None:
    async with fake_ollama.serve(base_url=ollama.fake.base_url.removesuffix("/v1")) as served:
        error = await error_of(served)
    assert error.remedy == "fail"
    assert "404 page not found" in str(error)
    assert "agent.model.base_url" in str(error)


async def test_a_server_that_is_not_there_is_asked_again() -> None:
    async with fake_ollama.serve() as gone:
        url = gone.fake.base_url
    async with fake_ollama.serve(base_url=url) as served:
        error = await error_of(served)
    assert (error.remedy, error.error_class) == ("try_again", "model_unreachable")
    assert "no connection" in str(error)


@pytest.mark.parametrize(
    ("delivery", "error_class"), [("never", "model_timeout"), ("slow", "model_timeout"), ("cut", "model_unreachable")]
)
async def test_a_server_that_says_nothing_or_half_of_it_is_asked_again(delivery: Any, error_class: str) -> None:
    async with fake_openai.serve(timeout_s=0.2) as served:
        served.fake.send(Response(body=GIVEN.encode(), delivery=delivery))
        error = await error_of(served)
    assert (error.remedy, error.error_class) == ("try_again", error_class)
    assert len(served.requests) == 1


@pytest.fixture
async def served() -> AsyncIterator[ServedOpenAI]:
    """Against OpenAI."""
    async with fake_openai.serve() as served:
        yield served


@pytest.fixture
async def ollama() -> AsyncIterator[ServedOpenAI]:
    async with fake_ollama.serve() as served:
        yield served
