"""Events of Ductile's relay on the wire: what is sent, how it is signed, when it was, and what an answer means."""

import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from ductile_gateway.ductile.relay_wire import (
    body_of,
    of_call,
    of_lifecycle,
    read_answer,
    read_instant,
    signed_headers,
    signed_part,
)
from ductile_gateway.ductile.settings import DuctileSettings, RelayPeerSettings
from schemas import keys
from tests.gateway.outbound_parts import an_event, read
from tests.gateway.parts import NOON, RUN
from tests.gateway.stores import asked_by

KEY = keys.call(RUN, 3, "notes", 2)
ASKED = asked_by(KEY)
BELONGS = {"run_id": RUN, "step": 3, "tool": "notes"}
PEER = RelayPeerSettings.model_validate({"peer": "agent-gateway", "secret": "a-relay-secret-for-tests"})


def test_what_is_sent_is_signed_over_method_path_time_and_body() -> None:
    body = body_of(of_lifecycle(read(an_event(callback="https://example.org/token"))), PEER.peer)
    headers = signed_headers(PEER, body, at=NOON + timedelta(microseconds=5))
    signed = b"POST\n/ingest/peer/agent-gateway\n" + headers["X-Ductile-Timestamp"].encode() + b"\n" + body
    assert headers["X-Ductile-Signature"] == hmac.new(b"a-relay-secret-for-tests", signed, hashlib.sha256).hexdigest()
    assert headers["X-Ductile-Timestamp"] == "2026-11-21T12:00:00.000005Z"
    assert (headers["X-Ductile-Peer"], headers["X-Ductile-Key-Id"]) == ("agent-gateway", "v1")
    assert signed_part("post", "/a", "1", b"x\ny") == b"POST\n/a\n1\nx\ny"


@pytest.mark.attack(29)
def test_an_ending_has_its_type_its_dedupe_key_and_our_name_and_is_whole() -> None:
    event = an_event(callback="https://example.org/token", outcome="x" * 100_000)
    envelope = json.loads(body_of(of_lifecycle(read(event)), PEER.peer))
    assert envelope["event"] == {
        "type": "agent.completed",
        "payload": {"run_id": RUN, "goal": "Find the answer — ü.", "outcome": "x" * 100_000},
        "dedupe_key": f"agentic:run:{RUN}:completed",
    }
    assert envelope["origin"]["instance"] == "agent-gateway"
    assert "example.org" not in json.dumps(envelope)


@pytest.mark.parametrize(
    "text",
    ["2026-11-21T12:00:00Z", "2026-11-21T12:00:00.000000001Z", "2026-11-21T13:00:00+01:00", "1795262400"],
)
def test_a_relay_says_the_time_as_rfc_3339_or_in_seconds(text: str) -> None:
    assert read_instant(text) == NOON


@pytest.mark.parametrize(
    "text",
    [
        *("", "nan", "1e3", " 1795262400", "1795262400.0", "179526240"),
        *("2026-11-21", "2026-11-21T12:00:00", "2026-W47-6T12:00:00Z", "2026-13-01T00:00:00Z"),
        "0001-01-01T00:00:00+09:00",
    ],
)
def test_a_time_without_zone_or_on_no_day_is_none(text: str) -> None:
    assert read_instant(text) is None


def test_a_call_is_an_event_under_its_own_key_that_says_where_it_belongs() -> None:
    body = json.loads(body_of(of_call("agentic.tool_request.save-note", ASKED, {"text": "ü"}), "agentic-gateway"))
    assert body == {
        "event": {
            "type": "agentic.tool_request.save-note",
            "payload": {"text": "ü"} | BELONGS | {"attempt": 2},
            "dedupe_key": KEY,
        },
        "origin": {"instance": "agentic-gateway", "event_id": KEY},
        "baggage": BELONGS,
    }


def test_the_same_call_is_the_same_event_to_the_byte() -> None:
    first, again = (body_of(of_call("t", ASKED, {"b": 1, "a": 2}), "p") for _ in range(2))
    assert first == again


def test_no_argument_says_where_a_call_belongs() -> None:
    lies: dict[str, JsonValue] = {
        "run_id": "run_of_another",
        "step": 9,
        "tool": "x",
        "attempt": 7,
        "wake_id": "w",
        "tool_command": "c",
    }
    assert of_call("t", ASKED, lies).payload == BELONGS | {"attempt": 2}


@pytest.mark.parametrize(
    ("status", "body", "unheard"),
    [
        (202, {"status": "accepted", "event_type": "t"}, True),
        (202, {"status": "accepted", "job_id": "j-1"}, False),
        (202, {"status": "accepted", "job_id": "../x"}, False),
        (202, {}, False),
        (202, [], False),
        (200, {"status": "accepted"}, False),
    ],
)
def test_only_an_event_that_was_accepted_without_a_job_is_unheard(status: int, body: Any, unheard: bool) -> None:
    assert read_answer(status, json.dumps(body).encode()).unheard == unheard


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"<html>", b'{"job_id": 5}', b"[" * 100000, b'{"status": "accepted", "job_id": "../x"}'],
)
def test_an_answer_that_names_no_job_has_none(body: bytes) -> None:
    assert read_answer(202, body).job_id == ""


def settings(**relay: Any) -> DuctileSettings:
    return DuctileSettings.model_validate(
        {"url": "http://localhost:1", "token": "t", "relay": {"secret": "a-relay-secret-for-tests"} | relay}
    )


def test_a_route_has_its_own_type_of_event_unless_another_is_chosen() -> None:
    chosen = settings(routes={"save-note": None, "post": "blog.post_asked"})
    assert chosen.relay
    assert chosen.relay.event_types() == {"save-note": "agentic.tool_request.save-note", "post": "blog.post_asked"}
    assert chosen.relayed() == {"save-note", "post"}
    assert chosen.secrets() == ("t", "a-relay-secret-for-tests")


@pytest.mark.parametrize(
    "routes", [{}, {"../x": None}, {"note": "Agentic.Note"}, {"note": "a..b"}, {"note": "a b"}, {"ends-": None}]
)
def test_a_route_or_type_that_ductile_would_not_take_is_refused(routes: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(routes=routes, secret="a-relay-secret-not-to-show")  # noqa: S106 - one that must not be shown
    assert "a-relay-secret" not in str(caught.value)
