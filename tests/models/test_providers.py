"""Conformance suite of the port Model for every adapter and provider.

One table per kind of answer, for the fakes of all providers; special behaviour of one of them is a row too.
"""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent_service.core.phases import Action, Digest, Framing, ModelRefusal, Phase, Plan, Proof, Reflection, Unusable
from agent_service.core.phases import Verification as Verified
from agent_service.core.waiting import OpenCall, Thinking
from agent_service.errors import ModelError
from agent_service.run.ports import ModelQuestion
from tests.kit.http_server import Delivery, Response
from tests.models import fake_anthropic, fake_openai
from tests.models.fake_anthropic import THINKING
from tests.models.model_house import (
    DIGEST,
    OPENING,
    PLAN,
    TURN,
    VERIFICATION,
    framing,
    planning,
    question,
    reflecting,
    reply,
    separate,
)
from tests.models.wire import KEY, SSE, Body, Served

PROVIDERS: dict[str, Any] = {
    "claude": fake_anthropic.serve,
    "openai": fake_openai.serve,
    "ollama": fake_openai.serve_ollama,
}
each_provider = pytest.mark.parametrize("serve", PROVIDERS.values(), ids=PROVIDERS)

Script = Callable[[Any], None]
"""Tells a fake its next answer."""

FRAMED = Framing(
    goal_statement="The answer is known and written down.",
    definition_of_done=("It is found", "It is checked", "It is written down"),
    proofs=(Proof(kind="value"), Proof(kind="step"), Proof(kind="artifact")),
    constraints=("Nothing is bought",),
)
PLANNED = Plan(
    action=Action(tool="search", command="query", arguments={"text": "the answer"}),
    outline=("search", "compare", "tell"),
    expected_outcome="a page that tells it",
    rationale="nothing is known yet",
)
COMPACTING, VERIFYING = question(reflecting(3).state, Phase.COMPACT), question(reflecting(3).state, Phase.VERIFY)
DECISIONS: dict[str, tuple[ModelQuestion, Body, Any, Any]] = {
    "a fused framing and its plan": (framing(), OPENING, FRAMED, PLANNED),
    "a fused reflection and its plan": (reflecting(), TURN, Reflection, PLANNED),
    "a framing apart": (separate(framing()), OPENING, Framing, None),
    "a plan apart": (separate(planning()), reply(plan=PLAN), PLANNED, None),
    "a reflection apart": (separate(reflecting()), TURN, Reflection, None),
    "a digest": (COMPACTING, DIGEST, Digest(memory=("The answer is 42 (step:1)",)), None),
    "a verification": (VERIFYING, VERIFICATION, Verified, None),
}
"""Question, reply, and the resulting decision and plan; a class where its fields do not matter."""


@each_provider
async def test_a_reply_is_the_decision_and_the_plan_that_it_says(serve: Any) -> None:
    wrong = {}
    async with serve() as served:
        for name, (asked, said, decision, plan) in DECISIONS.items():
            served.fake.answer(said)
            answer = await served.model.prepare(asked).make()
            fits = isinstance(answer.decision, decision) if isinstance(decision, type) else answer.decision == decision
            if not fits or answer.plan != plan:
                wrong[name] = answer
    assert wrong == {}


@each_provider
async def test_a_reply_that_is_no_decision_is_paid_for_and_kept(serve: Any) -> None:
    async with serve() as served:
        for said in ("", "I think so.", json.dumps(TURN) * 2, json.dumps(TURN)[:-9], "[]", "null"):
            served.fake.answer(said)
            answer = await served.model.prepare(reflecting()).make()
            assert isinstance(answer.decision, Unusable)
            assert answer.decision.raw == said[:4000]
            assert answer.decision.reason
            assert answer.usage.input_tokens > 0
            assert answer.usage.cost_usd is not None


@each_provider
async def test_a_refusal_is_told_in_the_words_of_the_provider(serve: Any) -> None:
    async with serve() as served:
        served.fake.refuse("This is not allowed.")
        decision = (await served.model.prepare(framing()).make()).decision
    assert isinstance(decision, ModelRefusal)
    assert decision.category
    assert decision.explanation == "This is not allowed."


@each_provider
async def test_a_reply_that_was_cut_may_be_twice_as_long_the_next_time(serve: Any) -> None:
    asked = framing()
    asking = OpenCall(call=asked.call + 1, phase=asked.phase, longer=True)
    again = replace(asked, state=replace(asked.state, waiting=Thinking(asking=asking)), call=asking.call)
    async with serve() as served:
        served.fake.cut('{"framing": {"goal_st')
        served.fake.answer(OPENING)
        decision = (await served.model.prepare(asked).make()).decision
        assert isinstance(decision, Unusable)
        assert (decision.cut, decision.raw) == (True, '{"framing": {"goal_st')
        await served.model.prepare(again).make()
        assert most_tokens(served.fake.requests[1]) == 2 * most_tokens(served.fake.requests[0])


@each_provider
@pytest.mark.parametrize("asked", [framing(), planning(), reflecting(1), reflecting(12)])
async def test_a_call_spends_no_more_than_its_estimate_and_is_made_as_it_says(serve: Any, asked: ModelQuestion) -> None:
    async with serve() as served:
        served.fake.answer("x" * 10_000)
        call = served.model.prepare(asked)
        reserved, answer = call.reserved, await call.make()
        (request,) = served.fake.requests
    assert reserved is not None
    assert answer.provenance is not None
    assert answer.usage.input_tokens + answer.usage.output_tokens <= reserved.reserve.tokens
    assert answer.usage.cost_usd is not None
    assert reserved.reserve.cost_usd is not None
    assert answer.usage.cost_usd <= reserved.reserve.cost_usd
    assert request["model"] == reserved.model
    assert most_tokens(request) == reserved.reserve.reply_tokens
    assert answer.provenance.prompt_hash == reserved.prompt_hash
    assert answer.provenance.schema_hash == reserved.schema_hash


def most_tokens(request: Body) -> int:
    most = request.get("max_tokens") or request["max_completion_tokens"]
    assert isinstance(most, int)
    return most


# What becomes of a run when no reply comes, or none that can be read


GIVEN = json.dumps(OPENING)
AGAIN = ("try_again", "model_unavailable")
BAD_ANSWER = ("try_again", "model_bad_answer")
SPENT = ("pause", "model_spend_limit")
TOO_LONG = ("shrink", "prompt_too_long")
RATE_LIMIT = ("try_again", "rate_limit")
BAD_REQUEST = ("fail", "model_bad_request")


def fails(status: int, code: str = "", *, message: str = "as scripted", **headers: str) -> Script:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda fake: fake.fail(status, code, named, message=message)


def sends(body: Any, status: int = 200, content_type: str = "application/json") -> Script:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda fake: fake.send(Response(status=status, body=raw, content_type=content_type))


def says(**fields: Any) -> Script:
    content = [THINKING, {"type": "text", "text": GIVEN}]
    return lambda fake: fake.message(**{"content": content, **fields})


def completes(**fields: Any) -> Script:
    return lambda fake: fake.complete(**{"content": GIVEN, **fields})


def breaks_off(error: str) -> Script:
    told: list[Body] = [{"type": "error", "error": {"type": error, "message": "no more"}}]
    return lambda fake: fake.script(lambda _: fake.stream(told))


Told = tuple[str, str] | tuple[str, str, float]
"""Remedy, class of the error, and seconds until a retry."""
BY_EACH: dict[str, tuple[Script, Told]] = {
    "400": (fails(400), BAD_REQUEST),
    "401": (fails(401), ("fail", "model_auth")),
    "402": (fails(402), SPENT),
    "403": (fails(403), ("fail", "model_auth")),
    "404": (fails(404), ("fail", "model_not_found")),
    "413": (fails(413), TOO_LONG),
    "429": (fails(429), RATE_LIMIT),
    "429 for 17 s": (fails(429, retry_after="17"), (*RATE_LIMIT, 17.0)),
    "429 for years": (fails(429, retry_after="100000000"), RATE_LIMIT),
    "429 with nonsense": (fails(429, retry_after="-1"), RATE_LIMIT),
    "500": (fails(500), AGAIN),
    "503 for 3 s": (fails(503, retry_after="3"), ("try_again", "overloaded", 3.0)),
    "overloaded in a stream": (breaks_off("overloaded_error"), ("try_again", "overloaded")),
    "a rate limit in a stream": (breaks_off("rate_limit_error"), RATE_LIMIT),
    "an error in a stream": (breaks_off("api_error"), AGAIN),
    "a status in a stream": (breaks_off("400"), BAD_REQUEST),
    "an empty object": (sends({}), BAD_ANSWER),
    "no JSON": (sends(b"hello"), BAD_ANSWER),
    "no UTF-8": (sends(b'{"id": "\xff"}'), BAD_ANSWER),
    "JSON without a bottom": (sends(b"[" * 100_000), BAD_ANSWER),
}
TOO_LONG_FOR_CLAUDE = "exceed context limit: 199000 + 8000 > 200000, decrease input length or `max_tokens`"
BY_CLAUDE: dict[str, tuple[Script, Told]] = {
    "422": (fails(422), BAD_REQUEST),
    "529": (fails(529), ("try_again", "overloaded")),
    "spend limit": (fails(429, "enforced_spend_limit_reached"), SPENT),
    "no credit": (fails(400, message="Your credit balance is too low to access the Anthropic API."), SPENT),
    "too long": (fails(400, message="prompt is too long: 1200000 tokens > 1000000 maximum"), TOO_LONG),
    "too long with its reply": (fails(400, message=f"input length and `max_tokens` {TOO_LONG_FOR_CLAUDE}"), TOO_LONG),
    "no content": (says(without=("content",)), BAD_ANSWER),
    "content that is text": (says(content="text"), BAD_ANSWER),
    "a block without a type": (says(content=[{"text": "x"}]), BAD_ANSWER),
    "no stop_reason": (says(stop_reason=None), BAD_ANSWER),
    "no usage": (says(without=("usage",)), BAD_ANSWER),
    "usage in words": (says(usage={"input_tokens": "many", "output_tokens": 1}), BAD_ANSWER),
    "no model": (says(without=("model",)), BAD_ANSWER),
}
LIMIT = "for gpt-5.4 on tokens per min (TPM): Limit 30000,"
NO_CHOICE = {"id": "1", "model": "m", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
BY_OPENAI: dict[str, tuple[Script, Told]] = {
    "rate limit": (fails(429, "rate_limit_exceeded"), RATE_LIMIT),
    "quota": (fails(429, "insufficient_quota"), SPENT),
    "a quota by its type": (sends({"error": {"message": "", "type": "insufficient_quota", "code": "x"}}, 429), SPENT),
    "too long by its code": (fails(400, "context_length_exceeded"), TOO_LONG),
    "more than a minute's": (fails(429, "400", message=f"Request too large {LIMIT} Requested 31284."), TOO_LONG),
    "many in a minute": (fails(429, "400", message=f"Rate limit reached {LIMIT} Used 29000."), RATE_LIMIT),
    "forbidden": (fails(400, "invalid_prompt"), ("escalate", "model_refused")),
    "unknown parameter": (fails(400, "unsupported_parameter"), BAD_REQUEST),
    "no choice": (sends(NO_CHOICE), BAD_ANSWER),
    "no usage": (completes(without=("usage",)), BAD_ANSWER),
    "no end": (completes(finish_reason=None), BAD_ANSWER),
}
TOO_LONG_FOR_VLLM = "This model's maximum context length is 4096 tokens. However"
TOO_LONG_FOR_LLAMA = "request (26528 tokens) exceeds the available context size (16384 tokens)"
BY_OTHERS: dict[str, tuple[Script, Told]] = {
    "too long for vLLM": (fails(400, message=TOO_LONG_FOR_VLLM), TOO_LONG),
    "too long for llama.cpp": (fails(400, message=TOO_LONG_FOR_LLAMA), TOO_LONG),
}


async def error_of(served: Served[Any], script: Script | None = None) -> ModelError:
    if script:
        script(served.fake)
    with pytest.raises(ModelError) as caught:
        await served.model.prepare(framing()).make()
    return caught.value


def kind(error: ModelError) -> tuple[str, str]:
    return error.remedy, error.error_class


@pytest.mark.parametrize(
    ("serve", "own"), [*zip(PROVIDERS.values(), (BY_CLAUDE, BY_OPENAI, BY_OTHERS), strict=True)], ids=PROVIDERS
)
async def test_an_answer_that_is_no_reply_says_what_becomes_of_the_run(serve: Any, own: Any) -> None:
    wrong = {}
    async with serve() as served:
        for name, (script, (remedy, error_class, *seconds)) in {**BY_EACH, **own}.items():
            error = await error_of(served, script)
            told = (*kind(error), error.retry_after_s)
            if told != (remedy, error_class, *(seconds or [None])) or len(str(error)) > 600:
                wrong[name] = (told, str(error))
    assert wrong == {}


async def test_no_answer_adapter_or_error_shows_a_key() -> None:
    for serve in PROVIDERS.values():
        async with serve() as served:
            served.fake.answer(OPENING)
            answer = await served.model.prepare(framing()).make()
            assert KEY not in f"{answer!r} {served.model!r} {served.fake.requests}"
    wrong = f"{KEY}-of-another-account"
    async with fake_openai.serve(api_key=wrong) as served:
        error = await error_of(served)
    assert kind(error) == ("fail", "model_auth")
    assert "Incorrect API key provided" in str(error)
    assert wrong not in str(error)


# Silence, and streams that break off


def goes_out(served: Served[Any], delivery: Delivery, text: str = GIVEN) -> threading.Event:
    """The next reply is `text`, delivered this way; the event is set once it is requested."""
    asked = threading.Event()

    def noted(body: Body) -> Response:
        asked.set()
        said: Response = served.fake.reply(body, text)
        return replace(said, delivery=delivery)

    served.fake.script(noted)
    return asked


@each_provider
async def test_a_reply_that_takes_longer_than_the_limit_is_heard_as_long_as_something_comes(serve: Any) -> None:
    async with serve(timeout_s=1.0) as served:
        goes_out(served, "paced")
        begin = asyncio.get_running_loop().time()
        answer = await served.model.prepare(framing()).make()
        assert asyncio.get_running_loop().time() - begin > 1.0
    assert isinstance(answer.decision, Framing)


@each_provider
@pytest.mark.parametrize(("delivery", "error_class"), [("stalls", "model_timeout"), ("cut", "model_unreachable")])
async def test_a_reply_that_breaks_off_is_charged_what_it_said(
    serve: Any, delivery: Delivery, error_class: str
) -> None:
    async with serve(timeout_s=0.5) as served:
        said = GIVEN + " " * 40_000
        goes_out(served, delivery, said)
        error = await error_of(served)
        most = served.model.prepare(framing()).reserved
    assert kind(error) == ("try_again", error_class)
    assert error.lost is not None
    assert most is not None
    tokens, cost_usd = error.lost
    assert len(said) // 4 // 3 < tokens < most.reserve.tokens
    assert cost_usd is not None


async def test_what_claude_has_thought_unseen_is_charged_as_in_a_lost_call(claude: Served[Any]) -> None:
    def until_it_has_thought(body: Body) -> Response:
        whole: Response = claude.fake.reply(body, GIVEN)
        return replace(whole, body=whole.body.partition(b"event: content_block_stop")[0])

    claude.fake.script(until_it_has_thought)
    error = await error_of(claude)
    assert error.lost is not None
    assert claude.fake.billed + 2500 < error.lost[0] < claude.fake.billed + 3500


SILENT: dict[Delivery, str] = {"never": "model_timeout", "cut": "model_unreachable"}


@each_provider
async def test_a_call_counts_as_lost_where_it_was_made_and_said_nothing_usable_and_only_there(serve: Any) -> None:
    async with serve(timeout_s=0.3) as served:
        for delivery, error_class in SILENT.items():
            served.fake.send(Response(body=GIVEN.encode(), delivery=delivery))
            error = await error_of(served)
            assert kind(error) == ("try_again", error_class)
        served.fake.send(Response(delivery="never"))
        reserved = served.model.prepare(framing()).reserved
        assert reserved is not None
        assert (await error_of(served)).lost == reserved.reserve.if_lost
        for unread in (sends(b"", content_type=SSE), sends({"id": "m", "content": "of a server that streams nothing"})):
            assert (await error_of(served, unread)).lost == reserved.reserve.if_lost
        for unpaid in (fails(503), sends(b"<html>", content_type="text/html")):
            assert (await error_of(served, unpaid)).lost is None
        assert len(served.fake.requests) == 7
    async with serve() as served:
        served.fake.close()
        error = await error_of(served)
    assert (kind(error), error.lost) == (("try_again", "model_unreachable"), None)
    assert "no connection: ConnectError" in str(error)


@each_provider
async def test_a_reply_without_an_end_is_cut_where_no_model_would_go_on_and_is_paid_for(serve: Any) -> None:
    async with serve(max_tokens=256) as served:
        served.fake.answer("y" * 100_000)
        answer = await served.model.prepare(framing()).make()
    assert isinstance(answer.decision, Unusable)
    assert answer.decision.cut
    assert "it breaks off after 8208" in answer.decision.reason
    assert 2000 < answer.usage.output_tokens < 2500


@each_provider
async def test_the_last_line_of_a_stream_counts_without_its_end(serve: Any) -> None:
    async with serve() as served:
        served.fake.script(lambda body: _bare(served.fake.reply(body, GIVEN)))
        assert isinstance((await served.model.prepare(framing()).make()).decision, Framing)


def _bare(whole: Response) -> Response:
    events = [event for event in whole.body.split(b"\n\n") if b"[DONE]" not in event and b"message_stop" not in event]
    return replace(whole, body=b"\n\n".join(events).rstrip())


@each_provider
@pytest.mark.parametrize("delivery", ["never", "stalls", "paced"])
async def test_a_call_that_is_given_up_ends_at_once(serve: Any, delivery: Delivery) -> None:
    async with serve(timeout_s=60) as served:
        asked = goes_out(served, delivery, GIVEN * 10)
        call = asyncio.create_task(served.model.prepare(framing()).make())
        assert await asyncio.to_thread(asked.wait, 30)
        call.cancel()
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.CancelledError):
                await call
