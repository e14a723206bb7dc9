"""Requests to Claude and their cost: fields, breakpoints, models of phases, prices."""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from agent_service.core.brief import Spent
from agent_service.core.phases import Framing, Phase, Unusable
from agent_service.core.state import StepRecord
from agent_service.core.waiting import CallReserve
from agent_service.errors import ModelError
from agent_service.models.anthropic_model import Claude as Adapter
from agent_service.models.estimates import FIRST_REPLY
from agent_service.models.prompts.prompt import compose
from agent_service.models.settings import ModelSettings
from agent_service.run.ports import ModelQuestion
from schemas.values import replace
from tests.models.fake_anthropic import Claude, serve
from tests.models.model_house import OPENING, TURN, framing, question, reflecting

EPHEMERAL = {"type": "ephemeral", "ttl": "5m"}


async def sent(asked: ModelQuestion, **settings: Any) -> dict[str, Any]:
    async with serve(**settings) as claude:
        claude.fake.answer("{}")
        await claude.model.prepare(asked).make()
        (request,) = claude.fake.requests
        return request


def marks(request: dict[str, Any]) -> list[Any]:
    """The `cache_control` of each block of the system prompt and of the message, in order."""
    return [block.get("cache_control") for block in (*request["system"], *request["messages"][0]["content"])]


def marked(request: dict[str, Any]) -> list[int]:
    return [at for at, mark in enumerate(marks(request)) if mark]


def text(said: str, mark: dict[str, str] | None = None) -> dict[str, Any]:
    return {"type": "text", "text": said} | ({"cache_control": mark} if mark else {})


async def test_a_request_has_these_fields_and_no_other_and_is_signed_as_the_vendors_sdk_does(claude: Claude) -> None:
    claude.fake.answer("{}")
    await claude.model.prepare(reflecting()).make()
    (request,), prompt = claude.fake.requests, compose(reflecting())
    case, note, tail = prompt.message
    assert request == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 8000,
        "system": [text(prompt.system[0]), text(prompt.system[1], EPHEMERAL)],
        "messages": [{"role": "user", "content": [text(case, EPHEMERAL), text(note, EPHEMERAL), text(tail)]}],
        "output_config": {"format": {"type": "json_schema", "schema": prompt.schema}},
        "diagnostics": {"previous_message_id": None},
        "stream": True,
    }
    headers = claude.fake.calls[0].headers
    assert headers["authorization"].startswith("Bearer ")
    assert {"x-api-key", "traceparent", "tracestate", "baggage"}.isdisjoint(headers)


MARKED = {0: [1, 2], 1: [1, 2, 3], 2: [1, 2, 4], 15: [1, 2, 17], 16: [1, 2, 3, 18], 40: [1, 2, 27, 42]}


async def test_breakpoints_stand_after_the_tools_the_case_and_the_newest_note() -> None:
    for steps, places in MARKED.items():
        request = await sent(reflecting(steps) if steps else framing())
        assert (steps, marked(request)) == (steps, places)
        assert request["messages"][0]["content"][-1].keys() == {"type", "text"}


async def test_the_cache_is_kept_as_long_as_the_tools_take() -> None:
    made = StepRecord(step=1, tool="t", command="c", attempt=1, status="ok", summary="", call="c", outcome="o")
    asked = reflecting()
    for cache, seconds, ttl in (
        ("auto", (), "5m"),
        ("auto", (600.0,), "1h"),
        ("auto", (10.0, 600.0, 600.0), "1h"),
        ("auto", (*[600.0] * 9, *[10.0] * 5), "5m"),
        ("5m", (600.0,), "5m"),
        ("1h", (), "1h"),
    ):
        steps = tuple(replace(made, step=step, seconds=took) for step, took in enumerate(seconds, start=1))
        request = await sent(replace(asked, state=replace(asked.state, completed=steps)), cache=cache)
        assert {mark["ttl"] for mark in marks(request) if mark} == {ttl}, (cache, seconds)


async def test_a_compaction_reads_what_the_call_before_it_left_and_leaves_nothing_new() -> None:
    before, now = await sent(reflecting(3)), await sent(question(reflecting(4).state, Phase.COMPACT))
    assert marked(now) == marked(before) == [1, 2, 5]
    assert now["messages"][0]["content"][:4] == before["messages"][0]["content"][:4]


async def test_each_phase_may_have_its_own_model_and_effort() -> None:
    own: dict[str, Any] = {
        "plan": {"model": "claude-opus-5-5", "effort": "max"},
        "compact": {"model": "claude-haiku-5-5", "effort": "low", "max_tokens": 2000},
    }
    settings: dict[str, Any] = {"model": "claude-fable-5-2", "effort": "medium", "max_tokens": 9000, "phases": own}
    for phase, wanted in {
        Phase.FRAME: ("claude-fable-5-2", "medium", 9000),
        Phase.PLAN: ("claude-opus-5-5", "max", 9000),
        Phase.COMPACT: ("claude-haiku-5-5", "low", 2000),
    }.items():
        request = await sent(question(reflecting().state, phase), **settings)
        assert (request["model"], request["output_config"]["effort"], request["max_tokens"]) == wanted


async def test_a_reply_that_fills_the_models_window_is_a_cut_reply_that_is_paid_for(claude: Claude) -> None:
    content = [{"type": "text", "text": '{"reflection": {"summary": "half'}]
    usage = {"input_tokens": 900, "output_tokens": 70}
    claude.fake.message(content=content, stop_reason="model_context_window_exceeded", usage=usage)
    answer = await claude.model.prepare(reflecting()).make()
    assert isinstance(answer.decision, Unusable)
    assert answer.decision.cut
    assert "the end of the model's window" in answer.decision.reason
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (900, 70)


async def test_a_look_at_the_model_tells_its_retirement_and_what_is_no_model(
    claude: Claude, monkeypatch: pytest.MonkeyPatch
) -> None:
    for found, told in (
        ({"id": "x", "lifecycle": "active"}, ""),
        ({"id": "x"}, ""),
        ({"id": "x", "lifecycle": "deprecated", "retires_at": "2027-01-01"}, "x is deprecated, and retires at 2027-"),
        ({"error": "no such page"}, "it is no model"),
        ("<html>", "it is no model, but '<html>'"),
    ):
        monkeypatch.setattr(claude.fake, "respond", Mock(return_value=claude.fake.json(found)))
        try:
            said = "; ".join(await claude.model.check())
        except ModelError as error:
            said = str(error)
        assert (told in said, bool(said)) == (True, bool(told))


async def test_a_miss_of_the_cache_is_told_with_its_cause(claude: Claude, caplog: pytest.LogCaptureFixture) -> None:
    changed = {"type": "messages_changed", "cache_missed_input_tokens": 7}
    for reason, read, told in (
        (None, 0, ""),
        (changed, 10, ""),
        (changed, 0, "messages_changed (7 tokens)"),
        ({**changed, "type": "system_changed"}, 10, "system_changed (7 tokens)"),
        ({"type": "previous_message_not_found"}, 0, "previous_message_not_found"),
    ):
        caplog.clear()
        usage = {"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": read}
        claude.fake.message(usage=usage, diagnostics={"cache_miss_reason": reason})
        answer = await claude.model.prepare(reflecting()).make()
        assert answer.provenance
        assert (answer.provenance.cache_miss, "cache was missed" in caplog.text) == (told, bool(told))


TOO_LARGE = "The compiled grammar is too large, which would cause performance issues. Simplify your tool schemas."


async def test_a_grammar_that_is_too_large_is_left_out_from_then_on_for_these_tools(claude: Claude) -> None:
    claude.fake.fail(400, message=TOO_LARGE)
    for said in (OPENING, OPENING, TURN):
        claude.fake.answer(said)
    decisions = [(await claude.model.prepare(asked).make()).decision for asked in (framing(), framing())]
    assert [type(decision) for decision in decisions] == [Framing, Framing]
    other = reflecting()
    brief = replace(other.state.brief, skills=())
    await claude.model.prepare(replace(other, state=replace(other.state, brief=brief))).make()
    forms = ["format" in request.get("output_config", {}) for request in claude.fake.requests]
    assert forms == [True, False, False, True]


async def test_calls_that_are_refused_for_the_same_grammar_at_the_same_time_are_all_made_again(claude: Claude) -> None:
    for _ in range(2):
        claude.fake.fail(400, message=TOO_LARGE)
    for _ in range(2):
        claude.fake.answer(OPENING)
    calls = [claude.model.prepare(framing()) for _ in range(2)]
    answers = await asyncio.gather(*(call.make() for call in calls))
    assert [type(answer.decision) for answer in answers] == [Framing, Framing]


# What a call cost: by the API's count of tokens and the price list, or our own


MODEL = "claude-sonnet-5-5"
M = 1_000_000
OWN = {"input": 7, "output": 11, "cache_read": 1, "cache_write": 3}


def reported(plain: int = 0, output: int = 0, read: int = 0, write_5m: int = 0, write_1h: int = 0) -> dict[str, Any]:
    return {
        "input_tokens": plain,
        "output_tokens": output,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write_5m + write_1h,
        "cache_creation": {"ephemeral_5m_input_tokens": write_5m, "ephemeral_1h_input_tokens": write_1h},
    }


@pytest.mark.parametrize(
    ("usage", "price", "cost"),
    [
        (reported(plain=M), None, 2.0),
        (reported(read=M), None, 0.1),
        (reported(write_5m=M), None, 2.5),
        (reported(write_1h=M), None, 4.0),
        (reported(100_000, 10_000, 500_000, 30_000, 20_000), OWN, 0.7 + 0.11 + 0.5 + 0.15),
        (reported(100_000, 10_000, 500_000, 30_000, 20_000), {"input": 7, "output": 11}, 0.7 + 0.11 + 3.5 + 0.35),
        (reported(100_000, 10_000, 500_000), {"input": 0, "output": 0}, 0),
    ],
    ids=["plain", "read", "for 5m", "for 1h", "own", "own, the cache as input", "free"],
)
async def test_each_kind_of_token_has_its_price_in_the_list_of_november_2026_or_in_the_settings(
    usage: dict[str, Any], price: Any, cost: float
) -> None:
    """Also where a proxy calls the model otherwise."""
    async with serve(**({"price": price} if price else {})) as claude:
        for name in (MODEL, f"bedrock/{MODEL}"):
            claude.fake.message(usage=usage, model=name)
            assert (await claude.model.prepare(framing()).make()).usage.cost_usd == pytest.approx(cost)


# The reserve of a call: all that it may spend and, near the end of a budget, less rather than nothing


def reserve(*, spent: int = 0, known: int = 0, model: str = MODEL, price: Any = None, **limits: float) -> CallReserve:
    """Reserve of a run that spent that many tokens and whose provider has counted a prompt of `known` bytes, four a
    token."""
    asked = reflecting()
    granted = replace(asked.state.brief.limits, **limits)  # type: ignore[arg-type] # a limit of its own type
    measured: dict[str, Any] = (
        {"measured": {f"{MODEL}-20261021": (known, known // 4)}, "longest_reply": 200} if known else {}
    )
    brief = replace(asked.state.brief, limits=granted)
    asking = replace(asked, state=replace(asked.state, brief=brief, spent=Spent(input_tokens=spent), **measured))
    chosen = {"provider": "anthropic", "model": model, "max_tokens": 8000, "price": price}
    reserved = Adapter(None, ModelSettings.model_validate(chosen), "anthropic").prepare(asking).reserved
    assert reserved is not None
    return reserved.reserve


def prompt_of(found: CallReserve) -> int:
    return found.tokens - found.reply_tokens


BYTES = 2 * prompt_of(reserve())
"""The first prompt of a run reserves the most tokens that its bytes can have."""


def test_the_reply_shrinks_to_what_the_money_allows_and_is_never_too_short_to_hold_a_decision() -> None:
    whole = reserve()
    assert whole.reply_tokens == 8000
    assert whole.cost_usd is not None
    assert whole.cost_usd > 8000 * 10 / 1_000_000
    found = reserve(max_cost_usd=whole.cost_usd - 0.03)
    assert FIRST_REPLY < found.reply_tokens < 8000
    assert found.cost_usd == pytest.approx(whole.cost_usd - 0.03, abs=0.0001)
    assert (found.cost_usd or 1) <= whole.cost_usd - 0.03
    assert reserve(max_tokens=10).reply_tokens == FIRST_REPLY
    assert reserve(max_cost_usd=0.000001).reply_tokens == FIRST_REPLY


def test_a_call_without_a_price_is_estimated_in_tokens_and_a_cache_written_for_nothing_makes_none_free() -> None:
    unknown = reserve(model="claude-unheard-of-9")
    assert (unknown.cost_usd, unknown.tokens > 8000) == (None, True)
    prices = ({"input": 3, "output": 15, "cache_write": write} for write in (0, 3, None))
    assert len({reserve(price=price).cost_usd for price in prices}) == 1


def test_the_last_call_that_fits_is_made() -> None:
    """It gets half of what its bytes alone would need, once the run's own calls are known."""
    left = BYTES // 4 + 1500
    found = reserve(known=BYTES, spent=1000, max_tokens=1000 + left)
    assert found.tokens <= left
    assert found.reply_tokens >= 1000
