"""What is refused at the door, what is tolerated, and what is normalised."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from schemas.events import INBOUND, OUTBOUND, RESERVED_KEYS, AgenticStart, Envelope, ToolError
from schemas.fields import MAX_GOAL_BYTES
from tests.schemas import samples

RUN = "run_01JZ8Q5T7W9X2Y4Z6A8B0C1D2E"
MODELS = {**INBOUND, **OUTBOUND}
SECOND = datetime(2026, 2, 16, 12, 0, 5, tzinfo=UTC)


def parse(event: str, **payload: Any) -> Any:
    """The payload of the event's sample with these fields changed, as it is read from the bus."""
    return MODELS[event].model_validate_json(samples.changed(event, **payload)).payload


def raw(payload: str) -> Any:
    return Envelope[AgenticStart].model_validate_json(f'{{"type":"agentic.start","payload":{payload}}}').payload


@pytest.mark.parametrize("event", INBOUND)
def test_an_unknown_field_from_outside_is_tolerated_and_dropped(event: str) -> None:
    assert parse(event, added_later={"x": 1}) == parse(event)


@pytest.mark.parametrize("event", OUTBOUND)
def test_a_reader_of_what_we_send_can_ask_for_tolerance(event: str) -> None:
    later = samples.changed(event, added_later=1)
    assert MODELS[event].model_validate_json(later, extra="ignore").payload == parse(event)


def test_what_a_tool_brings_back_cannot_override_the_correlation() -> None:
    forged = dict.fromkeys(RESERVED_KEYS, "forged")
    parsed = parse("agentic.tool_result", result=forged)
    assert (parsed.run_id, parsed.step, parsed.tool, parsed.attempt) == (RUN, 1, "fetch", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [("connection refused", "connection refused"), ("", "no reason given"), ("x" * 9000, "x" * 8192)],
)
def test_an_error_that_is_a_text_is_its_message(text: str, message: str) -> None:
    told = parse("agentic.tool_result", status="error", error=text).error
    assert told == ToolError(error_class="error", message=message)


def test_what_a_tool_is_given_cannot_override_the_correlation() -> None:
    forged = dict.fromkeys(RESERVED_KEYS, "forged")
    parsed = parse("agentic.tool_request", tool_payload=forged)
    assert (parsed.run_id, parsed.step, parsed.tool, parsed.attempt) == (RUN, 1, "fetch", 1)


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-16T12:00:05Z",
        "2026-02-16T14:00:05+02:00",
        "2026-02-16T00:30:05-11:30",
        "2026-02-16T12:00:05.000Z",
        "2026-02-16T12:00:05-00:00",
    ],
)
def test_an_instant_is_normalised_to_utc_and_written_with_z(text: str) -> None:
    parsed = parse("agentic.tool_result", completed_at=text)
    assert parsed.completed_at == SECOND
    assert '"completed_at":"2026-02-16T12:00:05Z"' in parsed.model_dump_json()


@pytest.mark.parametrize(
    "value",
    [
        "2026-02-16T12:00:05",
        "2026-02-16",
        "2026-W01-1",
        "2026-W01-1T12:00:00Z",
        "20260216T120005Z",
        "2026-02-16 12:00:05Z",
        "2026-02-16T12:00:05Z\n",
        "2026-02-30T12:00:05Z",
        "2026-02-16T12:00:05+25:00",
        "\uff12026-02-16T12:00:05Z",
        "1771243205",
        "",
        1771243205,
        1771243205.5,
        True,
        None,
        {},
    ],
)
def test_anything_but_an_rfc_3339_instant_with_a_zone_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="completed_at"):
        parse("agentic.tool_result", completed_at=value)


@pytest.mark.parametrize("goal", ["a" * MAX_GOAL_BYTES, "\u00e9" * (MAX_GOAL_BYTES // 2)])
def test_a_goal_may_have_32_kib_of_utf_8_and_not_one_byte_more(goal: str) -> None:
    assert parse("agentic.start", goal=goal).goal == goal
    with pytest.raises(ValidationError, match="at most 32768 bytes"):
        parse("agentic.start", goal=goal + "a")


@pytest.mark.parametrize("value", ["10", True, 1.5, -1, 0, [], {}])
@pytest.mark.parametrize("field", ["max_loops", "max_steps", "max_tokens"])
def test_a_limit_is_a_whole_number_from_1_on(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        parse("agentic.start", constraints={field: value})


@pytest.mark.parametrize("value", [0, -1, "much", []])
def test_a_cost_limit_is_a_number_above_0(value: object) -> None:
    with pytest.raises(ValidationError, match="max_cost_usd"):
        parse("agentic.start", constraints={"max_cost_usd": value})


@pytest.mark.parametrize("value", ["", "../x", "a.b.>", "a b", "a\n", "a\u202eb", "\uff41", "a" * 129, 5, None])
def test_an_id_outside_its_alphabet_or_length_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="run_id"):
        parse("agentic.cancel", run_id=value)


@pytest.mark.parametrize(
    "body", ["", "null", "[]", '"x"', "42", "{}", '{"type":"agentic.start"}', "{} x", '\ufeff{"type":"a"}', "[" * 1000]
)
@pytest.mark.parametrize("model", INBOUND.values(), ids=list(INBOUND))
def test_what_is_no_envelope_is_refused(model: type[BaseModel], body: str) -> None:
    with pytest.raises(ValidationError):
        model.model_validate_json(body)


def test_a_fact_about_a_failed_call_that_does_not_fit_is_left_out_and_the_error_is_taken() -> None:
    told = {
        "message": "it broke",
        "job_id": 7,
        "attempts": 0,
        "exit_code": "one",
        "last_error": "a\0b",
        "stderr": "x" * 9999,
    }
    error = ToolError.model_validate(told)
    assert (error.message, error.job_id, error.attempts, error.exit_code, error.last_error) == ("it broke", *[None] * 4)
    assert error.stderr == "x" * 2048
