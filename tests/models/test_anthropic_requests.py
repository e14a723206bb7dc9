"""What Claude is sent: the fields, the breakpoints, the effort and the model of each phase."""

from typing import Any

import pytest

from agent_service.core.phases import Phase
from agent_service.core.state import StepRecord, replace
from agent_service.models.prompts.prompt import compose
from agent_service.run.ports import Question
from tests.models.fake_anthropic import Claude, serve
from tests.models.model_house import framing, question, reflecting

EPHEMERAL = {"type": "ephemeral", "ttl": "5m"}


async def sent(asked: Question, **settings: Any) -> dict[str, Any]:
    """The request that is made of a question."""
    async with serve(**settings) as claude:
        claude.answer("{}")
        await claude.model.prepare(asked).make()
        (request,) = claude.requests
        return request


def marks(request: dict[str, Any]) -> list[Any]:
    """The `cache_control` of each block of the system prompt and of the message, in order."""
    return [block.get("cache_control") for block in (*request["system"], *request["messages"][0]["content"])]


def after(asked: Question, *seconds: float) -> Question:
    """The same question in a run whose steps took so long."""
    made = StepRecord(step=1, tool="t", command="c", attempt=1, status="ok", summary="", call="c", outcome="o")
    records = tuple(replace(made, step=step, seconds=took) for step, took in enumerate(seconds, start=1))
    return replace(asked, state=replace(asked.state, completed=records))


async def test_a_request_has_these_fields_and_no_other() -> None:
    request, prompt = await sent(reflecting()), compose(reflecting())
    case, note, tail = prompt.message
    assert request == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 8000,
        "system": [text(prompt.system[0]), text(prompt.system[1], EPHEMERAL)],
        "messages": [
            {"role": "user", "content": [text(case, EPHEMERAL), text(note, EPHEMERAL), text(tail)]},
        ],
        "output_config": {"format": {"type": "json_schema", "schema": prompt.schema}},
        "diagnostics": {"previous_message_id": None},
        "stream": True,
    }


async def test_the_key_goes_out_as_the_vendors_sdk_sends_it_and_no_trace_does(claude: Claude) -> None:
    claude.answer("{}")
    await claude.model.prepare(framing()).make()
    headers = claude.fake.calls[0].headers
    assert headers["authorization"].startswith("Bearer ")
    assert {"x-api-key", "traceparent", "tracestate", "baggage"}.isdisjoint(headers)


@pytest.mark.parametrize(
    ("steps", "marked"),
    [
        (0, [1, 2]),
        (1, [1, 2, 3]),
        (2, [1, 2, 4]),
        (15, [1, 2, 17]),
        (16, [1, 2, 3, 18]),
        (40, [1, 2, 27, 42]),
    ],
)
async def test_breakpoints_stand_after_the_tools_the_case_and_the_newest_note(steps: int, marked: list[int]) -> None:
    request = await sent(reflecting(steps) if steps else framing())
    assert [at for at, mark in enumerate(marks(request)) if mark] == marked
    assert request["messages"][0]["content"][-1].keys() == {"type", "text"}


@pytest.mark.parametrize(
    ("cache", "seconds", "ttl"),
    [
        ("auto", (), "5m"),
        ("auto", (10.0, 10.0), "5m"),
        ("auto", (600.0,), "1h"),
        ("auto", (10.0, 600.0, 600.0), "1h"),
        ("auto", (600.0, 10.0, 10.0), "5m"),
        ("auto", (*[600.0] * 9, *[10.0] * 5), "5m"),
        ("5m", (600.0,), "5m"),
        ("1h", (), "1h"),
    ],
)
async def test_the_cache_is_kept_as_long_as_the_tools_take(cache: str, seconds: tuple[float, ...], ttl: str) -> None:
    request = await sent(after(reflecting(), *seconds), cache=cache)
    assert {mark["ttl"] for mark in marks(request) if mark} == {ttl}


async def test_a_compaction_reads_what_the_call_before_it_left_and_leaves_nothing_new() -> None:
    before, now = await sent(reflecting(3)), await sent(question(reflecting(4).state, Phase.COMPACT))
    assert [at for at, mark in enumerate(marks(now)) if mark] == [1, 2, 5]
    assert [at for at, mark in enumerate(marks(before)) if mark] == [1, 2, 5]
    assert now["messages"][0]["content"][:4] == before["messages"][0]["content"][:4]


PHASES: dict[str, Any] = {
    "plan": {"model": "claude-opus-5-5", "effort": "max"},
    "compact": {"model": "claude-haiku-5-5", "effort": "low", "max_tokens": 2000},
}


@pytest.mark.parametrize(
    ("phase", "model", "effort", "max_tokens"),
    [
        (Phase.FRAME, "claude-fable-5-2", "medium", 9000),
        (Phase.PLAN, "claude-opus-5-5", "max", 9000),
        (Phase.REFLECT, "claude-fable-5-2", "medium", 9000),
        (Phase.COMPACT, "claude-haiku-5-5", "low", 2000),
    ],
)
async def test_each_phase_may_have_its_own_model_and_effort(
    phase: Phase, model: str, effort: str, max_tokens: int
) -> None:
    settings: dict[str, Any] = {"model": "claude-fable-5-2", "effort": "medium", "max_tokens": 9000, "phases": PHASES}
    request = await sent(question(reflecting().state, phase), **settings)
    assert (request["model"], request["max_tokens"]) == (model, max_tokens)
    assert request["output_config"]["effort"] == effort


CHANGED = {"type": "messages_changed", "cache_missed_input_tokens": 7}


@pytest.mark.parametrize(
    ("reason", "read", "told"),
    [
        (None, 0, ""),
        (CHANGED, 10, ""),
        (CHANGED, 0, "messages_changed (7 tokens)"),
        ({**CHANGED, "type": "system_changed"}, 10, "system_changed (7 tokens)"),
        ({"type": "previous_message_not_found"}, 0, "previous_message_not_found"),
    ],
    ids=["none", "a tail where the cache was read", "a tail", "the system prompt", "an unknown reply"],
)
async def test_a_miss_of_the_cache_is_told_with_its_cause(
    claude: Claude, caplog: pytest.LogCaptureFixture, reason: Any, read: int, told: str
) -> None:
    usage = {"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": read}
    claude.fake.message(usage=usage, diagnostics={"cache_miss_reason": reason})
    answer = await claude.model.prepare(reflecting()).make()
    assert answer.provenance
    assert answer.provenance.cache_miss == told
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("agent_service")]
    assert ours == (["the prompt cache was missed"] if told else [])


def text(said: str, mark: dict[str, str] | None = None) -> dict[str, Any]:
    return {"type": "text", "text": said} | ({"cache_control": mark} if mark else {})
