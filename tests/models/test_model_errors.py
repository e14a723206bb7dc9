"""What becomes of a run when no reply comes, or none that can be read: by what each network, API and proxy can do.

What a status leads to with every provider is in `test_model_port`; here is what a provider says in its own way.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agent_service.errors import ModelError
from tests.models import fake_anthropic, fake_openai
from tests.models.fake_anthropic import THINKING, Claude
from tests.models.fake_openai import OpenAI
from tests.models.model_house import OPENING, framing
from tests.models.wire import KEY, Delivery, Response, Served

Script = Callable[[Any], None]

GIVEN = json.dumps(OPENING)
AGAIN = ("try_again", "model_unavailable")
BAD_ANSWER = ("try_again", "model_bad_answer")
SPENT = ("pause", "model_spend_limit")
TOO_LONG = ("shrink", "prompt_too_long")
RATE_LIMIT = ("try_again", "rate_limit")


def fails(status: int, code: str = "", *, message: str = "as scripted", **headers: str) -> Script:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda fake: fake.fail(status, code, named, message=message)


def sends(body: Any, status: int = 200, content_type: str = "application/json") -> Script:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda fake: fake.send(Response(status=status, body=raw, content_type=content_type))


def says(**fields: Any) -> Script:
    """A message of Claude's that is complete but for these fields."""
    content = [THINKING, {"type": "text", "text": GIVEN}]
    return lambda fake: fake.message(**{"content": content, **fields})


def completes(**fields: Any) -> Script:
    """A completion of OpenAI's that is complete but for these fields."""
    return lambda fake: fake.complete(**{"content": GIVEN, **fields})


async def error_of(served: Served[Any], script: Script | None = None) -> ModelError:
    """What the adapter says of the answer that `script` makes."""
    if script:
        script(served.fake)
    with pytest.raises(ModelError) as caught:
        await served.model.prepare(framing()).make()
    return caught.value


def kind(error: ModelError) -> tuple[str, str]:
    return error.remedy, error.error_class


OF_CLAUDE: dict[str, tuple[Script, tuple[str, str]]] = {
    "409": (fails(409), AGAIN),
    "422": (fails(422), ("fail", "model_bad_request")),
    "429 for ever": (fails(429, retry_after="inf"), RATE_LIMIT),
    "429 with nonsense": (fails(429, retry_after="-1"), RATE_LIMIT),
    "spend limit": (fails(429, "enforced_spend_limit_reached"), SPENT),
    "contract's limit": (fails(429, "contract_spend_limit_reached"), SPENT),
    "no credit": (fails(400, message="Your credit balance is too low to access the Anthropic API."), SPENT),
    "too long": (fails(400, message="prompt is too long: 1200000 tokens > 1000000 maximum"), TOO_LONG),
    "499": (fails(499), AGAIN),
    "529": (fails(529), ("try_again", "overloaded")),
}
OF_OPENAI: dict[str, tuple[Script, tuple[str, str]]] = {
    "rate limit": (fails(429, "rate_limit_exceeded"), RATE_LIMIT),
    "quota": (fails(429, "insufficient_quota"), SPENT),
    "billing": (fails(429, "billing_hard_limit_reached"), SPENT),
    "a quota by its type": (sends({"error": {"message": "", "type": "insufficient_quota", "code": "x"}}, 429), SPENT),
    "too long by its code": (fails(400, "context_length_exceeded"), TOO_LONG),
    "longer than a minute's tokens": (
        fails(
            429, "400", message="Request too large for gpt-5.4 on tokens per min (TPM): Limit 30000, Requested 31284."
        ),
        TOO_LONG,
    ),
    "too many in a minute": (
        fails(429, "400", message="Rate limit reached for gpt-5.4 on tokens per min (TPM): Limit 30000, Used 29000."),
        ("try_again", "rate_limit"),
    ),
    "too long for vLLM": (fails(400, message="This model's maximum context length is 4096 tokens. However"), TOO_LONG),
    "too long for llama.cpp": (
        fails(400, message="request (26528 tokens) exceeds the available context size (16384 tokens)"),
        TOO_LONG,
    ),
    "forbidden": (fails(400, "invalid_prompt"), ("escalate", "model_refused")),
    "unknown parameter": (fails(400, "unsupported_parameter"), ("fail", "model_bad_request")),
}
NO_MESSAGES: dict[str, Script] = {
    "an empty object": sends({}),
    "null": sends(None),
    "a list": sends([]),
    "text": sends(b"hello", content_type="text/plain"),
    "a page": sends(b"<html>", content_type="text/html"),
    "no JSON": sends(b"hello"),
    "nothing": sends(b""),
    "no UTF-8": sends(b'{"id": "\xff"}'),
    "JSON without a bottom": sends(b"[" * 100_000),
    "no content": says(without=("content",)),
    "content that is text": says(content="text"),
    "content without blocks": says(content=[None]),
    "a block without a type": says(content=[{"text": "x"}]),
    "no stop_reason": says(stop_reason=None),
    "no usage": says(without=("usage",)),
    "usage without numbers": says(usage={}),
    "usage in words": says(usage={"input_tokens": "many", "output_tokens": 1}),
    "no model": says(without=("model",)),
    "no id": says(without=("id",)),
}
NO_COMPLETIONS: dict[str, Script] = {
    **{
        str(body): sends(body)
        for body in (b"", b"{}", b"[]", b"null", b'"yes"', b"<html>", b'{"choices": []}', b"\xff")
    },
    "no choice": sends({"id": "1", "model": "m", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
    "no choices": completes(without=("choices",)),
    "no usage": completes(without=("usage",)),
    "no end": completes(finish_reason=None),
}


@pytest.fixture
async def openai() -> AsyncIterator[OpenAI]:
    async with fake_openai.serve() as served:
        yield served


@pytest.mark.parametrize("case", OF_CLAUDE)
async def test_what_claude_says_leads_to_what_is_to_be_done(claude: Claude, case: str) -> None:
    script, expected = OF_CLAUDE[case]
    error = await error_of(claude, script)
    assert (*kind(error), error.retry_after_s) == (*expected, None)


@pytest.mark.parametrize("case", OF_OPENAI)
async def test_what_openai_says_leads_to_what_is_to_be_done(openai: OpenAI, case: str) -> None:
    script, expected = OF_OPENAI[case]
    assert kind(await error_of(openai, script)) == expected


@pytest.mark.parametrize("case", NO_MESSAGES)
async def test_an_answer_that_is_no_message_is_asked_for_again(claude: Claude, case: str) -> None:
    error = await error_of(claude, NO_MESSAGES[case])
    assert (kind(error), error.retry_after_s, len(str(error)) < 600) == (BAD_ANSWER, None, True)


@pytest.mark.parametrize("case", NO_COMPLETIONS)
async def test_an_answer_that_is_no_completion_is_asked_for_again(openai: OpenAI, case: str) -> None:
    assert kind(await error_of(openai, NO_COMPLETIONS[case])) == BAD_ANSWER


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (fails(401), "agent.model.api_key"),
        (fails(404), "agent.model.model"),
        (fails(402), "raise the limit at the provider, then resume the run"),
        (fails(429, "enforced_spend_limit_reached"), "HTTP 429 enforced_spend_limit_reached: as scripted"),
        (fails(500, message="x" * 100_000), "(request req_0001)"),
    ],
)
async def test_what_a_person_can_mend_is_told_in_short(claude: Claude, script: Script, told: str) -> None:
    error = str(await error_of(claude, script))
    assert told in error
    assert len(error) < 1000


@pytest.mark.parametrize("serve", [fake_anthropic.serve, fake_openai.serve])
@pytest.mark.parametrize(
    ("delivery", "error_class"), [("never", "model_timeout"), ("slow", "model_timeout"), ("cut", "model_unreachable")]
)
async def test_a_server_that_says_nothing_or_half_of_it_is_asked_again(
    serve: Any, delivery: Delivery, error_class: str
) -> None:
    async with serve(timeout_s=0.2) as served:
        error = await error_of(served, lambda fake: fake.send(Response(body=GIVEN.encode(), delivery=delivery)))
    assert kind(error) == ("try_again", error_class)
    assert len(served.requests) == 1


@pytest.mark.parametrize("serve", [fake_anthropic.serve, fake_openai.serve_ollama])
async def test_a_server_that_is_not_there_is_asked_again(serve: Any) -> None:
    async with serve() as served:
        served.fake.close()
        error = await error_of(served)
    assert kind(error) == ("try_again", "model_unreachable")
    assert "no connection: ConnectError" in str(error)


CUT = "the reply was cut at 8000 tokens, thinking included"
FULL = "the reply was cut at the end of the model's window, thinking included"


async def test_a_wrong_key_is_not_told_even_when_the_server_repeats_it() -> None:
    wrong = f"{KEY}-of-another-account"
    async with fake_openai.serve(api_key=wrong) as served:
        error = await error_of(served)
    assert kind(error) == ("fail", "model_auth")
    assert "Incorrect API key provided" in str(error)
    assert wrong not in str(error)
