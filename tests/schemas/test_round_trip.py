"""What is written to the bus is read back as it was, and is what the published schema describes."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import subjects
from schemas.events import INBOUND, OUTBOUND
from tests.schemas import payloads, samples

ENVELOPES = {**INBOUND, **OUTBOUND}


def test_there_are_payloads_for_every_event() -> None:
    assert payloads.PAYLOADS.keys() == ENVELOPES.keys()


@pytest.mark.parametrize("event", ENVELOPES)
@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_envelope_round_trips_through_its_body(event: str, data: st.DataObject) -> None:
    route = f".{data.draw(payloads.NAMES)}" if event == subjects.TOOL_REQUEST else ""
    envelope = ENVELOPES[event](
        type=event + route,
        payload=data.draw(payloads.PAYLOADS[event]),
        dedupe_key=data.draw(st.none() | payloads.TEXTS),
    )
    assert ENVELOPES[event].model_validate_json(envelope.body()) == envelope
    samples.published(event).validate(json.loads(envelope.body()))
