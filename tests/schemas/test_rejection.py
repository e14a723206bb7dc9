"""What is told of a refused message: whatever can be read of it, names only, and never of a rejection itself."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import subjects
from schemas.envelope import rejection
from tests.schemas.samples import JSON

AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
RUN = "run_01JZ8Q5T7W9X2Y4Z6A8B0C1D2E"
KEY = f"agentic:run:{RUN}:step:3:result"
NOTHING = {"msg_id": None, "dedupe_key": None, "run_id": None, "step": None, "repeat_as": None}


@dataclass
class Message:
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    subject: str = subjects.TOOL_RESULT
    stream_seq: int = 41


def told(body: object, **headers: str) -> dict[str, Any]:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    event, _ = rejection(Message(sent, headers), stream="AGENTIC", reason="no", source="/me", at=AT)
    found = event.payload.model_dump()
    assert (found.pop("subject"), found.pop("stream_seq"), found.pop("reason")) == (subjects.TOOL_RESULT, 41, "no")
    return found


@pytest.mark.parametrize(
    "body",
    [
        {"type": subjects.TOOL_RESULT, "payload": {"run_id": RUN, "step": 3, "status": "?"}, "dedupe_key": KEY},
        {"type": 7, "payload": {"run_id": RUN, "step": 3, "dedupe_key": KEY}},
        {"specversion": "0.3", "data": {"run_id": RUN, "step": 3, "dedupe_key": KEY}},
        {"run_id": RUN, "step": 3, "dedupe_key": KEY, "status": []},
    ],
)
def test_what_it_relates_to_is_read_from_every_form_though_the_rest_is_wrong(body: dict[str, Any]) -> None:
    assert told(body) == NOTHING | {"dedupe_key": KEY, "run_id": RUN, "step": 3}


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"[" * 100_000, b"\xff", {"payload": "x"}, {"payload": {"run_id": "../x", "step": 0}}, {"step": True}]
    + [{"dedupe_key": key} for key in (7, "", "a b", "a\nb", "é", "x" * 513)],
)
def test_what_is_no_name_is_not_repeated(body: object) -> None:
    assert told(body, **{"Nats-Msg-Id": "a b", "Agentic-Run-Id": "a b"}) == NOTHING


def test_it_is_told_in_the_trace_of_what_was_refused() -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    sent = Message(json.dumps({"run_id": RUN}).encode(), {"traceparent": trace})
    _, headers = rejection(sent, stream="AGENTIC", reason="no", source="/me", at=AT)
    assert headers == {
        "traceparent": trace,
        "Agentic-Run-Id": RUN,
        "ce-specversion": "1.0",
        "ce-id": "agentic:rejected:AGENTIC:41",
        "ce-type": "agent.rejected",
        "ce-source": "/me",
        "ce-time": "2026-11-21T12:00:00Z",
    }


@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(), st.dictionaries(st.text(), st.text()))
def test_whatever_was_refused_is_told(body: bytes, headers: dict[str, str]) -> None:
    assert set(told(body, **headers)) == set(NOTHING)
