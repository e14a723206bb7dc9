"""The forms in which others may send: all of them are one envelope, and no form is guessed where there is a doubt."""

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import subjects
from schemas.envelope import Misshapen, enveloped
from schemas.events import INBOUND
from tests.schemas import samples
from tests.schemas.samples import JSON, PATHS

START = {"goal": "count", "context": {"tone": "warm"}}
EVENT = {"specversion": "1.0", "id": "order-7", "source": "/shop", "type": subjects.START, "data": START}
HEADERS = {f"ce-{name}": str(value) for name, value in EVENT.items() if name != "data"}


def read(body: object, headers: dict[str, str] | None = None, *, subject: str = subjects.START) -> Any:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return json.loads(enveloped(subject, sent, headers or {}))


@pytest.mark.parametrize("path", [path for path in PATHS if samples.event_of(path) in INBOUND], ids=samples.title)
def test_an_enveloped_body_stays_as_it_is_whatever_its_headers_say(path: Any) -> None:
    headers = HEADERS | {"ce-type": "com.example.other", "content-type": "application/cloudevents+json"}
    assert enveloped(samples.event_of(path), path.read_bytes(), headers) == path.read_bytes()


@pytest.mark.parametrize("path", [path for path in PATHS if samples.event_of(path) in INBOUND], ids=samples.title)
def test_a_payload_alone_is_what_its_subject_says(path: Any) -> None:
    subject, payload = samples.event_of(path), samples.body(path)["payload"]
    assert read(payload, subject=subject) == {"type": subject, "payload": payload, "dedupe_key": None}
    assert INBOUND[subject].model_validate(read(payload, subject=subject)).payload


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (EVENT, {"content-type": "application/cloudevents+json"}),
        (EVENT, {}),
        (EVENT, HEADERS | {"ce-id": "another"}),
        ({**EVENT, "data": None, "data_base64": base64.b64encode(json.dumps(START).encode()).decode()}, {}),
        (START, HEADERS),
        (START, {name.title(): value for name, value in HEADERS.items()}),
    ],
)
def test_a_cloudevent_carries_a_start_and_names_it_by_its_source_and_id(body: object, headers: dict[str, str]) -> None:
    assert read(body, headers) == {
        "type": subjects.START,
        "payload": START,
        "dedupe_key": "/shop order-7",
    }


def test_the_id_of_a_cloudevent_that_is_a_key_of_the_contract_is_the_key() -> None:
    assert read(EVENT | {"id": "agentic:start:7"})["dedupe_key"] == "agentic:start:7"


@pytest.mark.parametrize(
    ("body", "flaw"),
    [
        (EVENT | {"specversion": "0.3"}, "specversion"),
        (EVENT | {"type": "com.example.order"}, "type is not the subject"),
        (EVENT | {"id": ""}, "id is not a text"),
        (EVENT | {"id": 7}, "id is not a text"),
        ({name: value for name, value in EVENT.items() if name != "source"}, "source is not a text"),
        (EVENT | {"data": "aGk="}, "data is not a JSON object"),
        (EVENT | {"data_base64": "@"}, "data is not a JSON object"),
    ],
)
def test_a_cloudevent_that_carries_nothing_for_its_subject_says_why(body: object, flaw: str) -> None:
    with pytest.raises(Misshapen, match=flaw):
        read(body)


FIELDS = st.sampled_from(
    ["specversion", "id", "source", "type", "data", "data_base64", "payload", "dedupe_key", "goal"]
)
VALUES = JSON | st.sampled_from(["1.0", subjects.START])


@given(st.dictionaries(FIELDS, VALUES), st.dictionaries(FIELDS.map("ce-{}".format), st.text()))
def test_whatever_comes_is_read_or_refused(body: dict[str, Any], headers: dict[str, str]) -> None:
    with contextlib.suppress(Misshapen):
        assert isinstance(read(body, headers), dict)
