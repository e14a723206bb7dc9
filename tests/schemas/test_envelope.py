"""Accepted forms of messages, rejections, and literal keys and headers."""

import base64
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import envelope, keys, subjects
from schemas.envelope import Misshapen, rejection, to_envelope
from schemas.events import INBOUND, Envelope, Rejected, envelope_of
from tests.schemas import samples
from tests.schemas.samples import JSON, PATHS

START = {"goal": "count", "context": {"tone": "warm"}}
EVENT = {"specversion": "1.0", "id": "order-7", "source": "/shop", "type": subjects.START, "data": START}
HEADERS = {f"ce-{name}": str(value) for name, value in EVENT.items() if name != "data"}
BASE64 = base64.b64encode(json.dumps(START).encode()).decode()
AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
RUN = "run_01JZ8Q5T7W9X2Y4Z6A8B0C1D2E"
KEY = f"agentic:run:{RUN}:step:3:result"
NOTHING = {"msg_id": None, "dedupe_key": None, "run_id": None, "step": None, "repeat_as": None}
TRACE = "019fd172e8fc4f45f0cc4a10596068a9"


def read(body: object, headers: dict[str, str] | None = None, *, subject: str = subjects.START) -> Any:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return json.loads(to_envelope(subject, sent, headers or {}))


@pytest.mark.parametrize("path", [path for path in PATHS if samples.event_of(path) in INBOUND], ids=samples.title)
def test_an_enveloped_body_stays_as_it_is_and_a_payload_alone_is_what_its_subject_says(path: Path) -> None:
    headers = HEADERS | {"ce-type": "com.example.other", "content-type": "application/cloudevents+json"}
    assert to_envelope(samples.event_of(path), path.read_bytes(), headers) == path.read_bytes()
    subject, payload = samples.event_of(path), samples.body(path)["payload"]
    assert read(payload, subject=subject) == {"type": subject, "payload": payload, "dedupe_key": None}
    assert envelope_of(subject).model_validate(read(payload, subject=subject)).payload


def test_a_cloudevent_carries_a_start_and_names_it_by_its_source_and_id() -> None:
    for body, headers in (
        (EVENT, {"content-type": "application/cloudevents+json"}),
        (EVENT, {}),
        (EVENT, HEADERS | {"ce-id": "another"}),
        ({**EVENT, "data": None, "data_base64": BASE64}, {}),
        (START, HEADERS),
        (START, {name.title(): value for name, value in HEADERS.items()}),
    ):
        told = {"type": subjects.START, "payload": START, "dedupe_key": "/shop order-7"}
        assert read(body, headers) == told, (body, headers)
    assert read(EVENT | {"id": "agentic:start:7"})["dedupe_key"] == "agentic:start:7", "a key of the contract"


def test_a_cloudevent_that_carries_nothing_for_its_subject_says_why() -> None:
    for body, flaw in (
        (EVENT | {"specversion": "0.3"}, "specversion"),
        (EVENT | {"type": "com.example.order"}, "type is not the subject"),
        (EVENT | {"id": ""}, "id is not a text"),
        (EVENT | {"id": 7}, "id is not a text"),
        ({name: value for name, value in EVENT.items() if name != "source"}, "source is not a text"),
        (EVENT | {"data": "aGk="}, "data is not a JSON object"),
        (EVENT | {"data_base64": "@"}, "data is not a JSON object"),
        (EVENT | {"data_base64": 7}, "data is not a JSON object"),
    ):
        with pytest.raises(Misshapen, match=flaw):
            read(body)


def refused(body: bytes, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    asked = subjects.TOOL_RESULT, body, headers, 41
    _, told, _, described = rejection(*asked, stream="AGENTIC", reason="no", source="/me", at=AT)
    return told, described


def told(body: object, /, **headers: str) -> dict[str, Any]:
    event, _ = refused(body if isinstance(body, bytes) else json.dumps(body).encode(), headers)
    found = Envelope[Rejected].model_validate_json(event).payload.model_dump()
    assert (found.pop("subject"), found.pop("stream_seq"), found.pop("reason")) == (subjects.TOOL_RESULT, 41, "no")
    return found


def test_what_a_refused_message_relates_to_is_read_from_every_form_and_what_is_no_name_is_not_repeated() -> None:
    for body in (
        {"type": subjects.TOOL_RESULT, "payload": {"run_id": RUN, "step": 3, "status": "?"}, "dedupe_key": KEY},
        {"type": 7, "payload": {"run_id": RUN, "step": 3, "dedupe_key": KEY}},
        {"specversion": "0.3", "data": {"run_id": RUN, "step": 3, "dedupe_key": KEY}},
        {"run_id": RUN, "step": 3, "dedupe_key": KEY, "status": []},
    ):
        assert told(body) == NOTHING | {"dedupe_key": KEY, "run_id": RUN, "step": 3}, body
    nameless: list[object] = [b"", b"[]", b"[" * 100_000, b"\xff", {"payload": "x"}, {"step": True}]
    nameless += [{"payload": {"run_id": "../x", "step": 0}}]
    for nothing in nameless + [{"dedupe_key": key} for key in (7, "", "a b", "a\nb", "é", "x" * 513)]:
        assert told(nothing, **{"Nats-Msg-Id": "a b", "Agentic-Run-Id": "a b"}) == NOTHING, nothing


def test_a_refusal_is_told_in_the_trace_of_what_was_refused() -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    _, headers = refused(json.dumps({"run_id": RUN}).encode(), {"traceparent": trace})
    assert headers == {
        "traceparent": trace,
        "Agentic-Run-Id": RUN,
        "ce-specversion": "1.0",
        "ce-source": "/me",
        "ce-id": "agentic:rejected:AGENTIC:41",
        "ce-type": "agent.rejected",
        "ce-time": "2026-11-21T12:00:00Z",
    }


@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(), st.dictionaries(st.text(), st.text()))
def test_whatever_was_refused_is_told(body: bytes, headers: dict[str, str]) -> None:
    assert set(told(body, **headers)) == set(NOTHING)


def of_event(dedupe_key: str = "agentic:run:r:completed") -> dict[str, str]:
    about: dict[str, Any] = {"source": "agentic-loop", "at": AT, "run_id": "r", "trace_id": TRACE}
    return envelope.event_headers("agent.completed", dedupe_key=dedupe_key, **about)


def test_headers_carry_the_trace_of_the_run_and_the_cloud_event_the_same_on_every_try() -> None:
    first, second = of_event()["traceparent"], of_event("agentic:run:r:accepted")["traceparent"]
    assert re.fullmatch(f"00-{TRACE}-(?!0{{16}})[0-9a-f]{{16}}-01", first)
    assert (first != second, first.split("-")[1] == second.split("-")[1]) == (True, True)
    assert of_event() == of_event()
    assert {name: value for name, value in of_event().items() if name.startswith("ce-")} == {
        "ce-specversion": "1.0",
        "ce-id": "agentic:run:r:completed",
        "ce-type": "agent.completed",
        "ce-source": "agentic-loop",
        "ce-time": "2026-11-21T12:00:00Z",
    }


def test_the_key_of_a_result_tells_what_it_answers() -> None:
    assert keys.task_of_result(keys.result(RUN, 3, 2, "task-1.again", 2), RUN, 3) == ("task-1.again", 2)
    assert keys.task_of_result(keys.result(RUN, 3, 1) + keys.LATE_SUFFIX, RUN, 3) == (None, None)
    for other in (keys.result(RUN, 4, 1), keys.request(RUN, 3, 1), "mine", ""):
        assert keys.task_of_result(other, RUN, 3) is None
