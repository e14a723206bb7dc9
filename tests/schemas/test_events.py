"""Inbound events: refused, tolerated and normalised."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from schemas import subjects
from schemas.events import INBOUND, OUTBOUND, RESERVED_KEYS, AgenticStart, Envelope, ToolError, envelope_of
from schemas.fields import DEEPEST, MAX_GOAL_BYTES, ToolName
from tests.schemas import samples

RUN = "run_01JZ8Q5T7W9X2Y4Z6A8B0C1D2E"
MODELS = {subject: envelope_of(subject) for subject in INBOUND | OUTBOUND}


def parse(event: str, **payload: Any) -> Any:
    """Payload of the event's sample with changed fields, as read from the bus."""
    return MODELS[event].model_validate_json(samples.changed(event, **payload)).payload


def flaws(event: str, says: str, *changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Changes that are accepted, or refused without a reason."""
    taken = []
    for change in changes:
        try:
            parse(event, **change)
        except ValidationError as error:
            taken += [] if says in str(error) else [change]
        else:
            taken.append(change)
    return taken


def test_a_null_in_a_further_field_of_a_result_is_kept() -> None:
    result = parse(subjects.TOOL_RESULT, result={"excerpt": None, "found": None}).result
    assert result.as_json() == {"found": None}


def test_an_unknown_field_is_tolerated_from_outside_and_by_readers_of_ours_who_ask_for_that() -> None:
    for event in INBOUND:
        assert parse(event, added_later={"x": 1}) == parse(event)
    for event in OUTBOUND:
        later = samples.changed(event, added_later=1)
        assert MODELS[event].model_validate_json(later, extra="ignore").payload == parse(event)


def test_what_a_tool_is_given_or_brings_back_cannot_override_the_correlation() -> None:
    for event, field in (("agentic.tool_result", "result"), ("agentic.tool_request", "tool_payload")):
        parsed = parse(event, **{field: dict.fromkeys(RESERVED_KEYS, "forged")})
        assert (parsed.run_id, parsed.step, parsed.tool, parsed.attempt) == (RUN, 1, "fetch", 1)


def test_an_error_that_is_a_text_is_its_message_and_a_fact_that_does_not_fit_is_left_out() -> None:
    for text, message in (
        ("connection refused", "connection refused"),
        ("", "no reason given"),
        ("x" * 9000, "x" * 8192),
    ):
        told = parse("agentic.tool_result", status="error", error=text).error
        assert told == ToolError(error_class="error", message=message)
    told = {"job_id": 7, "attempts": 0, "exit_code": "one", "last_error": "a\0b", "stderr": "x" * 9999 + "cause"}
    error = ToolError.model_validate({"message": "it broke"} | told)
    assert (error.message, error.job_id, error.attempts, error.exit_code, error.last_error) == ("it broke", *[None] * 4)
    assert error.stderr == "x" * 2043 + "cause"


def test_an_instant_is_normalised_to_utc_and_written_with_z() -> None:
    for text in (
        *("2026-02-16T12:00:05Z", "2026-02-16T14:00:05+02:00", "2026-02-16T00:30:05-11:30"),
        *("2026-02-16T12:00:05.000Z", "2026-02-16T12:00:05-00:00"),
    ):
        parsed = parse("agentic.tool_result", completed_at=text)
        assert parsed.completed_at == datetime(2026, 2, 16, 12, 0, 5, tzinfo=UTC), text
        assert '"completed_at":"2026-02-16T12:00:05Z"' in parsed.model_dump_json()


NO_INSTANTS: tuple[Any, ...] = (
    "2026-02-16T12:00:05", "2026-02-16", "2026-W01-1", "2026-W01-1T12:00:00Z", "20260216T120005Z",
    "2026-02-16 12:00:05Z", "2026-02-16T12:00:05Z\n", "2026-02-30T12:00:05Z", "2026-02-16T12:00:05+25:00",
    "\uff12026-02-16T12:00:05Z", "1771243205", "", 1771243205, 1771243205.5, True, None, {},
    "9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00",
)  # fmt: skip
NO_LIMITS: tuple[Any, ...] = ("10", True, 1.5, -1, 0, [], {}, 2**63)
NO_COSTS: tuple[Any, ...] = (0, -1, "much", [])
NO_IDS: tuple[Any, ...] = ("", "../x", "a.b.>", "a b", "a\n", "a\u202eb", "\uff41", "a" * 129, 5, None)


def test_what_is_no_rfc_3339_instant_no_limit_and_no_id_is_refused_by_its_field() -> None:
    instants = [{"completed_at": value} for value in NO_INSTANTS]
    assert flaws("agentic.tool_result", "completed_at", *instants) == []
    for field in ("max_loops", "max_steps", "max_tokens"):
        numbers = [{"constraints": {field: value}} for value in NO_LIMITS]
        assert flaws("agentic.start", field, *numbers) == []
    costs = [{"constraints": {"max_cost_usd": value}} for value in NO_COSTS]
    assert flaws("agentic.start", "max_cost_usd", *costs) == []
    assert flaws("agentic.cancel", "run_id", *({"run_id": value} for value in NO_IDS)) == []


def test_a_goal_may_have_32_kib_of_utf_8_and_not_one_byte_more() -> None:
    for goal in ("a" * MAX_GOAL_BYTES, "\u00e9" * (MAX_GOAL_BYTES // 2)):
        assert parse("agentic.start", goal=goal).goal == goal
        assert flaws("agentic.start", "at most 32768 bytes", {"goal": goal + "a"}) == []


WITH_NUL: list[tuple[str, dict[str, Any]]] = [
    ("agentic.start", {"callback": "a\0b"}),
    ("agentic.start", {"context": {"background": "a\0b"}}),
    ("agentic.start", {"context": {"a\0b": [1]}}),
    ("agentic.start", {"context": {"deep": [{"list": ["a\0b"]}]}}),
    ("agentic.tool_request", {"tool_payload": {"url": "a\0b"}}),
    ("agentic.tool_result", {"result": {"artifact_path": "a\0b"}}),
    ("agentic.tool_result", {"result": {"extra": {"title": "a\0b"}}}),
]


def test_values_are_nested_less_deep_than_a_journal_that_holds_them_can_be() -> None:
    least, most = (json.loads("[" * levels + "]" * levels) for levels in (DEEPEST - 1, DEEPEST + 1))
    for event, field in (("agentic.start", "context"), ("agentic.tool_result", "result")):
        assert parse(event, **{field: {"deep": least}})
        assert flaws(event, f"at most {DEEPEST} levels", {field: {"deep": most}}) == []


def test_a_nul_and_a_number_that_is_not_finite_are_refused_however_deep_they_stand() -> None:
    assert [(event, change) for event, change in WITH_NUL if flaws(event, "NUL", change)] == []
    for event, field in (("start", "context"), ("tool_request", "tool_payload"), ("tool_result", "result")):
        numbers = [{field: {"deep": [float(number)]}} for number in ("nan", "inf", "-inf")]
        assert flaws(f"agentic.{event}", "finite", *numbers) == []


def test_what_is_no_envelope_is_refused() -> None:
    bodies = ("", "null", "[]", '"x"', "42", "{}", '{"type":"agentic.start"}', "{} x", '\ufeff{"type":"a"}', "[" * 1000)
    for model in map(envelope_of, INBOUND):
        for body in bodies:
            with pytest.raises(ValidationError):
                model.model_validate_json(body)
    with pytest.raises(ValidationError):
        Envelope[AgenticStart].model_validate_json('{"type":"agentic.start","payload":[]}')


HOSTILE_NAMES = (
    "Fabric", "\uff46abric", "f\u0430bric", "fabric ", " fabric", "fabric\n", "fab\r\nPUB x 0", "fab\tric", "fabric\0",
    "", "foo.>", "*", ">", "a..b", ".a", "a.", "a.b", "$SYS.x", "$JS.API.STREAM.DELETE.S", "a" * 5000, "a" * 65, "-rf",
    "_INBOX", "../pipeline", "../system", "x/../../system", "a%2f..%2fb", "a?x", "a#x", "a\\b", "a;x", "a\u0663",
    "a\u202eb",
)  # fmt: skip


def test_no_hostile_name_becomes_a_subject_or_is_that_of_a_tool() -> None:
    for name in HOSTILE_NAMES:
        with pytest.raises(ValueError, match="not a name"):
            subjects.tool_request(name)
        with pytest.raises(ValidationError):
            TypeAdapter(ToolName).validate_python(name)
    assert {"agentic-loop", "agentic-wake", "agentic-run", "ductile-gateway"} <= subjects.OUR_OWN_ROUTES
