"""What is sent: Standard Webhooks to callbacks, the relay's envelope to Ductile."""

import base64
import hashlib
import hmac
import json
from datetime import timedelta

import pytest

from ductile_gateway.ductile.relay_envelope import Peer, envelope_body, read_reply
from ductile_gateway.ductile.relay_envelope import signed_headers as relay_headers
from ductile_gateway.outbound.callbacks import callback_body, retry_after_s, signed_headers, signing_key, webhook_id
from ductile_gateway.outbound.lifecycle import Unreadable, read_event
from tests.gateway.outbound_parts import KEY, SECRET, an_event, read
from tests.gateway.parts import NOON, RUN

PEER = Peer("agent-gateway", "v1", b"relay secret", "/ingest/peer/agent-gateway")


def test_the_signature_is_that_of_the_standards_own_example() -> None:
    # From the reference implementations of Standard Webhooks.
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    at = NOON.fromtimestamp(1614265330, NOON.tzinfo)
    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', [key], at=at)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert headers["webhook-timestamp"] == "1614265330"


def test_during_a_change_of_secrets_both_sign() -> None:
    old, new = b"o" * 24, b"n" * 24
    headers = signed_headers("key", b"{}", [new, old], at=NOON)
    signed = f"key.{headers['webhook-timestamp']}.{{}}".encode()
    expected = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in (new, old)]
    assert headers["webhook-signature"] == " ".join(f"v1,{signature}" for signature in expected)


def test_the_id_is_the_dedupe_key_without_a_dot() -> None:
    assert webhook_id("agentic:run:r:completed") == "agentic:run:r:completed"
    assert "." not in webhook_id("agentic:run:r.1:completed")
    assert webhook_id("a.b") != webhook_id("a.c")


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!!!", "whsec_c2hvcnQ=", KEY.decode(), "whsec_" + "A" * 200])
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="whsec_"):
        signing_key(secret)


def test_a_secret_is_the_base64_of_its_key() -> None:
    assert signing_key(SECRET) == KEY


def test_a_receiver_is_told_the_event_and_when_and_not_where_others_are_told() -> None:
    body = json.loads(callback_body(read(an_event(callback="https://example.org/token"))))
    assert body["type"] == "agent.completed"
    assert body["timestamp"] == "2026-11-21T12:00:00Z"
    assert body["data"] == {"run_id": RUN, "goal": "Find the answer — ü.", "outcome": "42"}


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("soon", 0),
        ("-5", 0),
        ("90", 90),
        ("9" * 400, 999999999),
        ("Sat, 21 Nov 2026 12:01:00 GMT", 60),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(header: str | None, seconds: float) -> None:
    assert retry_after_s(header, now=NOON) == seconds


def test_what_is_relayed_is_signed_over_method_path_time_and_body() -> None:
    body = envelope_body(read(an_event(callback="https://example.org/token")), PEER.name)
    headers = relay_headers(PEER, body, at=NOON + timedelta(microseconds=5))
    signed = b"POST\n/ingest/peer/agent-gateway\n" + headers["X-Ductile-Timestamp"].encode() + b"\n" + body
    assert headers["X-Ductile-Signature"] == hmac.new(PEER.secret, signed, hashlib.sha256).hexdigest()
    assert headers["X-Ductile-Timestamp"] == "2026-11-21T12:00:00.000005Z"
    assert (headers["X-Ductile-Peer"], headers["X-Ductile-Key-Id"]) == ("agent-gateway", "v1")


def test_what_is_relayed_has_its_type_its_dedupe_key_and_our_name() -> None:
    envelope = json.loads(envelope_body(read(an_event(callback="https://example.org/token")), PEER.name))
    assert envelope["event"] == {
        "type": "agent.completed",
        "payload": {"run_id": RUN, "goal": "Find the answer — ü.", "outcome": "42"},
        "dedupe_key": f"agentic:run:{RUN}:completed",
    }
    assert envelope["origin"]["instance"] == "agent-gateway"
    assert "example.org" not in json.dumps(envelope)


def test_a_peer_shows_no_secret() -> None:
    assert "relay secret" not in repr(PEER)


@pytest.mark.parametrize("body", [b"", b"[]", b"<html>", b'{"job_id": 5}', b"[" * 100000])
def test_an_answer_of_ductile_that_names_no_job_has_none(body: bytes) -> None:
    assert read_reply(202, body).job_id == ""


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"type": "agent.failed", "payload": {"run_id": "r"}, "dedupe_key": "k"}',
        b'{"type": "agent.completed", "payload": {"run_id": "r"}}',
        b'{"type": "agent.completed", "payload": {"run_id": "r"}, "dedupe_key": "a\\r\\nb"}',
        b'{"type": "agent.completed", "payload": {"run_id": "r r"}, "dedupe_key": "k"}',
        b'{"type": "agent.completed", "payload": [], "dedupe_key": "k"}',
        b'{"type": "agent.completed", "payload": {"run_id": "r", "step": NaN}, "dedupe_key": "k"}',
        b'{"type": "agent.completed", "payload": {"run_id": "r", "step": 1e999}, "dedupe_key": "k"}',
        b'{"type": "agent.completed", "payload": {"run_id": "r", "goal": "\\ud800"}, "dedupe_key": "k"}',
    ],
)
def test_a_message_that_is_no_event_of_a_run_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        read_event("agent.completed", body, at=NOON)


def test_an_event_of_a_newer_agent_is_passed_on_with_all_that_it_says() -> None:
    event = an_event()
    event["payload"]["mood"] = "cheerful"
    assert read(event).payload["mood"] == "cheerful"
