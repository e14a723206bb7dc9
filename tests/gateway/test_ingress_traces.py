"""A sender's place in a trace goes on with what comes of its event, and nothing else is told as one."""

import json
from typing import Any

import pytest

from schemas.envelope import TRACEPARENT
from tests.gateway.ingress_house import INGEST, RESULT, House, an_event, signed

PLACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NO_PLACE = ("", "00-zz", f"00-{'0' * 32}-b7ad6b7169203331-01", "x" * 5000)


async def traceparent(event: dict[str, Any], headers: dict[str, str]) -> str | None:
    """That of the message which comes of the event."""
    house, body = House(), json.dumps(event).encode()
    answer = await house.post(INGEST, body, signed(body) | headers)
    assert answer.status_code == 202, answer.text
    ((*_, sent),) = house.bus.messages
    found: str | None = sent.get(TRACEPARENT)
    return found


async def test_baggage_of_a_ductile_is_handed_on_before_a_header() -> None:
    other = PLACE.replace("b7ad", "aaaa")
    event = an_event() | {"baggage": {TRACEPARENT: PLACE}}
    assert await traceparent(event, {"traceparent": other}) == PLACE
    assert await traceparent(an_event(), {"traceparent": other}) == other


@pytest.mark.parametrize("said", NO_PLACE)
async def test_what_is_no_place_in_a_trace_is_left_out(said: str) -> None:
    assert await traceparent(an_event() | {"baggage": {TRACEPARENT: said}}, {}) is None
    assert await traceparent(an_event() | {"baggage": {TRACEPARENT: {"a": said}}}, {}) is None


async def test_a_result_that_names_no_trace_has_none() -> None:
    assert await traceparent(an_event(payload=RESULT), {}) is None
