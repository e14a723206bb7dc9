"""What becomes of a run when Claude does not answer, by everything that the network and the API can do."""

import json
import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from agent_service.core.phases import Framing, Refusal, Unusable
from agent_service.errors import ModelError
from tests.models.fake_anthropic import THINKING, FakeAnthropic, ServedAnthropic, serve
from tests.models.model_house import KEY, OPENING, framing
from tests.models.wire import Delivery, Response

Script = Callable[[FakeAnthropic], None]


def fails(status: int, code: str = "", *, message: str = "as scripted", **headers: str) -> Script:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda fake: fake.fail(status, code, named, message=message)


def sends(body: Any, status: int = 200, content_type: str = "application/json", **headers: str) -> Script:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda fake: fake.send(Response(status=status, body=raw, content_type=content_type, headers=named))


def says(**fields: Any) -> Script:
    """A message that is complete but for these fields."""
    text = {"type": "text", "text": json.dumps(OPENING)}
    return lambda fake: fake.message(**{"content": [THINKING, text], **fields})


async def error_of(claude: ServedAnthropic, script: Script) -> ModelError:
    """What the adapter says of the answer that `script` makes."""
    script(claude.fake)
    with pytest.raises(ModelError) as caught:
        await claude.model.prepare(framing()).make()
    return caught.value


STATUSES: dict[str, tuple[Script, tuple[str, str, float | None]]] = {
    "400": (fails(400), ("fail", "model_bad_request", None)),
    "401": (fails(401), ("fail", "model_auth", None)),
    "402": (fails(402), ("pause", "model_spend_limit", None)),
    "403": (fails(403), ("fail", "model_auth", None)),
    "404": (fails(404), ("fail", "model_not_found", None)),
    "408": (fails(408), ("try_again", "model_unavailable", None)),
    "409": (fails(409), ("try_again", "model_unavailable", None)),
    "413": (fails(413), ("shrink", "prompt_too_long", None)),
    "422": (fails(422), ("fail", "model_bad_request", None)),
    "429": (fails(429), ("try_again", "rate_limit", None)),
    "429 with a time": (fails(429, retry_after="37"), ("try_again", "rate_limit", 37.0)),
    "429 with a fraction": (fails(429, retry_after="0.5"), ("try_again", "rate_limit", 0.5)),
    "429 with a date": (fails(429, retry_after="Wed, 21 Oct 2026 07:28:00 GMT"), ("try_again", "rate_limit", None)),
    "429 with nonsense": (fails(429, retry_after="-1"), ("try_again", "rate_limit", None)),
    "429 for ever": (fails(429, retry_after="inf"), ("try_again", "rate_limit", None)),
    "spend limit": (fails(429, "enforced_spend_limit_reached"), ("pause", "model_spend_limit", None)),
    "contract's limit": (fails(429, "contract_spend_limit_reached"), ("pause", "model_spend_limit", None)),
    "no credit": (fails(400, message="Your credit balance is too low to access the Anthropic API."),
                  ("pause", "model_spend_limit", None)),
    "too long": (fails(400, message="prompt is too long: 1200000 tokens > 1000000 maximum"),
                 ("shrink", "prompt_too_long", None)),
    "499": (fails(499), ("try_again", "model_unavailable", None)),
    "500": (fails(500), ("try_again", "model_unavailable", None)),
    "503": (fails(503), ("try_again", "overloaded", None)),
    "504": (fails(504), ("try_again", "model_unavailable", None)),
    "529": (fails(529), ("try_again", "overloaded", None)),
    "529 with a time": (fails(529, retry_after="9"), ("try_again", "overloaded", 9.0)),
}  # fmt: skip


@pytest.mark.parametrize("case", STATUSES)
async def test_a_status_says_what_to_do(claude: ServedAnthropic, case: str) -> None:
    script, expected = STATUSES[case]
    error = await error_of(claude, script)
    assert (error.remedy, error.error_class, error.retry_after_s) == expected
    assert case[:3] in str(error) or not case[:3].isdigit()
    assert "(request req_0001)" in str(error)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (fails(401), "agent.model.api_key"),
        (fails(404), "agent.model.model"),
        (fails(402), "raise the limit at the provider, then resume the run"),
        (fails(429, "enforced_spend_limit_reached"), "HTTP 429 enforced_spend_limit_reached: as scripted"),
    ],
)
async def test_what_a_person_can_mend_is_told(claude: ServedAnthropic, script: Script, told: str) -> None:
    assert told in str(await error_of(claude, script))


ODD_ERRORS = [[], "x", {"error": "x"}, {"error": {"type": {}, "message": []}}, {"error": {"type": "a", "message": 5}}]


@pytest.mark.parametrize("body", [*ODD_ERRORS, b"<html>bad gateway</html>", b"", b"\xff\xfe"], ids=str)
async def test_an_error_that_is_not_the_apis_own_is_an_error_all_the_same(claude: ServedAnthropic, body: Any) -> None:
    error = await error_of(claude, sends(body, status=502))
    assert (error.remedy, error.error_class) == ("try_again", "model_unavailable")


async def test_a_long_error_is_told_in_short(claude: ServedAnthropic) -> None:
    assert len(str(await error_of(claude, fails(500, message="x" * 100_000)))) < 1000


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


@pytest.mark.parametrize("case", NO_MESSAGES)
async def test_an_answer_that_is_no_message_is_asked_for_again(claude: ServedAnthropic, case: str) -> None:
    error = await error_of(claude, NO_MESSAGES[case])
    assert (error.remedy, error.error_class, error.retry_after_s) == ("try_again", "model_bad_answer", None)
    assert len(str(error)) < 600


async def test_what_is_missing_in_an_answer_is_named(claude: ServedAnthropic) -> None:
    error = await error_of(claude, says(without=("usage", "model")))
    assert str(error) == "the answer cannot be read: it is no complete message: model, usage"


@pytest.mark.parametrize(
    "script",
    [
        says(stop_reason="something_new"),
        says(content=[{"type": "hologram", "x": 1}, {"type": "text", "text": json.dumps(OPENING)}]),
        says(service="new"),
        says(diagnostics={"cache_miss_reason": {"type": "something_new"}}),
        says(usage={"input_tokens": 1, "output_tokens": 1, "cache_creation": {"ephemeral_1d_input_tokens": 1}}),
    ],
    ids=["stop reason", "block", "field", "diagnosis", "time to live"],
)
async def test_what_newer_versions_may_add_does_no_harm(claude: ServedAnthropic, script: Script) -> None:
    script(claude.fake)
    assert isinstance((await claude.model.prepare(framing()).make()).decision, Framing)


async def test_a_connection_cut_in_the_middle_is_no_answer(claude: ServedAnthropic) -> None:
    error = await error_of(claude, lambda fake: fake.deliver("cut"))
    assert (error.remedy, error.error_class) == ("try_again", "model_unreachable")
    assert "peer closed connection" in str(error)


async def test_a_server_that_is_not_there_is_no_answer(claude: ServedAnthropic) -> None:
    claude.fake.close()
    with pytest.raises(ModelError, match="no connection: ConnectError") as caught:
        await claude.model.prepare(framing()).make()
    assert (caught.value.remedy, caught.value.error_class) == ("try_again", "model_unreachable")


@pytest.mark.parametrize("delivery", ["never", "slow"])
async def test_no_answer_is_waited_for_longer_than_was_said(delivery: Delivery) -> None:
    async with serve(timeout_s=0.2) as claude:
        claude.fake.deliver(delivery)
        with pytest.raises(ModelError, match="no answer") as caught:
            await claude.model.prepare(framing()).make()
    assert (caught.value.remedy, caught.value.error_class) == ("try_again", "model_timeout")


async def test_a_refusal_is_a_decision_with_its_category(claude: ServedAnthropic) -> None:
    claude.refuse("This is not allowed.")
    decision = (await claude.model.prepare(framing()).make()).decision
    assert decision == Refusal(category="cyber", explanation="This is not allowed.")


async def test_a_refusal_without_details_is_a_refusal(claude: ServedAnthropic) -> None:
    claude.fake.message(content=[], stop_reason="refusal")
    assert (await claude.model.prepare(framing()).make()).decision == Refusal(category="refusal")


async def test_a_reply_cut_before_any_text_is_told_with_its_limit(claude: ServedAnthropic) -> None:
    claude.fake.message(content=[THINKING], stop_reason="max_tokens")
    decision = (await claude.model.prepare(framing()).make()).decision
    assert decision == Unusable(reason="the reply was cut at 8000 tokens, thinking included", cut=True)


async def test_a_prompt_beyond_the_window_is_shortened(claude: ServedAnthropic) -> None:
    error = await error_of(claude, says(stop_reason="model_context_window_exceeded"))
    assert (error.remedy, error.error_class) == ("shrink", "prompt_too_long")


@pytest.mark.parametrize("content", [[], [THINKING], [{"type": "text", "text": None}]])
async def test_a_reply_without_text_is_unusable(claude: ServedAnthropic, content: list[Any]) -> None:
    claude.fake.message(content=content)
    assert (await claude.model.prepare(framing()).make()).decision == Unusable(reason="the reply holds no text")


async def test_the_key_is_told_to_nobody(claude: ServedAnthropic, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = []
    for script in (*(script for script, _ in STATUSES.values()), *NO_MESSAGES.values()):
        error = await error_of(claude, script)
        told.append("".join(traceback.format_exception(error)))
    error = await error_of(claude, fails(401, message=f"invalid bearer token: {KEY}"))
    assert "invalid bearer token: ***" in str(error)
    assert KEY not in f"{error} {told} {caplog.text} {[vars(record) for record in caplog.records]} {claude.model!r}"
