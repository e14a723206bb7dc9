"""Events of Ductile's relay on the wire: what is sent, how it is signed, when it was, and what an answer means."""

import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any

import pytest

from ductile_gateway.ductile.relay_wire import (
    body_of,
    of_call,
    of_lifecycle,
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
    body = body_of(of_lifecycle(read(an_event(has_callback=True))), PEER.peer)
    headers = signed_headers(PEER, body, at=NOON + timedelta(microseconds=5))
    signed = b"POST\n/ingest/peer/agent-gateway\n" + headers["X-Ductile-Timestamp"].encode() + b"\n" + body
    assert headers["X-Ductile-Signature"] == hmac.new(b"a-relay-secret-for-tests", signed, hashlib.sha256).hexdigest()
    assert headers["X-Ductile-Timestamp"] == "2026-11-21T12:00:00.000005Z"
    assert (headers["X-Ductile-Peer"], headers["X-Ductile-Key-Id"]) == ("agent-gateway", "v1")
    assert signed_part("post", "/a", "1", b"x\ny") == b"POST\n/a\n1\nx\ny"


@pytest.mark.attack(29)
def test_an_ending_has_its_type_its_dedupe_key_and_our_name_and_is_whole() -> None:
    event = an_event(has_callback=True, outcome="x" * 100_000)
    envelope = json.loads(body_of(of_lifecycle(read(event)), PEER.peer))
    assert envelope["event"] == {
        "type": "agent.completed",
        "payload": {"run_id": RUN, "goal": "Find the answer — ü.", "outcome": "x" * 100_000},
        "dedupe_key": f"agentic:run:{RUN}:completed",
    }
    assert envelope["origin"]["instance"] == "agent-gateway"


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


def settings(**relay: Any) -> DuctileSettings:
    return DuctileSettings.model_validate(
        {"url": "http://localhost:1", "token": "t", "relay": {"secret": "a-relay-secret-for-tests"} | relay}
    )
