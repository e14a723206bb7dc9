"""Values that are well formed and yet must not get in: stores, files and clocks downstream cannot hold them."""

from typing import Any

import pytest
from pydantic import ValidationError

from schemas.events import INBOUND, OUTBOUND
from tests.schemas import samples

MODELS = {**INBOUND, **OUTBOUND}


def parse(event: str, **payload: Any) -> Any:
    return MODELS[event].model_validate_json(samples.changed(event, **payload))


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
def test_an_instant_that_leaves_the_calendar_in_utc_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="completed_at"):
        parse("agentic.tool_result", completed_at=text)


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("agentic.start", {"callback": "a\0b"}),
        ("agentic.start", {"context": {"background": "a\0b"}}),
        ("agentic.start", {"context": {"a\0b": [1]}}),
        ("agentic.start", {"context": {"deep": [{"list": ["a\0b"]}]}}),
        ("agentic.tool_request", {"tool_payload": {"url": "a\0b"}}),
        ("agentic.tool_result", {"result": {"artifact_path": "a\0b"}}),
        ("agentic.tool_result", {"result": {"extra": {"title": "a\0b"}}}),
    ],
)
def test_a_nul_character_is_refused_however_deep_it_stands(event: str, payload: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="NUL"):
        parse(event, **payload)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("event", "field"),
    [("agentic.start", "context"), ("agentic.tool_request", "tool_payload"), ("agentic.tool_result", "result")],
)
def test_a_number_that_is_not_finite_is_refused_however_deep_it_stands(event: str, field: str, number: float) -> None:
    with pytest.raises(ValidationError, match="finite"):
        parse(event, **{field: {"deep": [number]}})


@pytest.mark.parametrize("field", ["max_steps", "max_tokens"])
def test_a_limit_fits_into_64_bits(field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        parse("agentic.start", constraints={field: 2**63})
