"""POST /ingest/ductile: every check in its order, and what comes of an event that passes them."""

import hashlib
import json
from typing import Any

import pytest

from schemas import keys
from tests.gateway.ingress_house import INGEST, NEXT_SECRET, NOW, RESULT, SECRET, House, an_event, error_of, signed
from tests.gateway.parts import RUN


async def test_a_signed_result_is_on_the_bus_when_it_is_answered() -> None:
    house = House()
    answer = await house.relay(an_event())
    assert (answer.status_code, answer.json()) == (
        202,
        {
            "status": "accepted",
            "peer": "ductile-test",
            "event_type": "agentic.tool_result",
            "receiver_event_id": keys.result(RUN, 1, 1),
            "job_id": RUN,
            "duplicate": False,
        },
    )
    assert house.events() == [
        {
            "type": "agentic.tool_result",
            "payload": RESULT,
            "dedupe_key": keys.result(RUN, 1, 1),
        }
    ]
    subject, key, _, headers = house.bus.messages[0]
    assert (subject, key) == ("agentic.tool_result", keys.result(RUN, 1, 1))
    assert headers["Agentic-Run-Id"] == RUN


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"without": "peer"}, "forbidden"),
        ({"peer": "another"}, "forbidden"),
        ({"without": "timestamp"}, "missing relay timestamp"),
        ({"timestamp": "noon"}, "invalid relay timestamp"),
        ({"timestamp": "2026-11-21T11:54:59Z"}, "relay timestamp outside allowed clock skew"),
        ({"timestamp": "2026-11-21T12:05:01Z"}, "relay timestamp outside allowed clock skew"),
        ({"without": "key-id"}, "missing relay key id"),
        ({"key_id": "v3"}, "forbidden"),
        ({"without": "signature"}, "missing relay signature"),
        ({"signature": ""}, "missing relay signature"),
        ({"signature": "sha256="}, "forbidden"),
        ({"signature": "0" * 64}, "forbidden"),
        ({"signature": "\u00e9"}, "forbidden"),
        ({"secret": NEXT_SECRET}, "forbidden"),
        ({"path": "/ingest/peer"}, "forbidden"),
        ({"timestamp": "noon", "key_id": "v3", "signature": ""}, "invalid relay timestamp"),
        ({"key_id": "v3", "signature": ""}, "missing relay signature"),
    ],
)
@pytest.mark.attack(20, 22)
async def test_who_does_not_sign_as_agreed_is_refused_and_learns_no_name_of_a_peer_or_key(
    changed: dict[str, Any], error: str
) -> None:
    house = House()
    answer = await house.relay(an_event(), **changed)
    assert (answer.status_code, error_of(answer)) == (403, error)
    assert house.bus.messages == []


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"", 400, "invalid JSON body"),
        (b"[]", 400, "invalid JSON body"),
        (b'{"event": []}', 400, "invalid JSON body"),
        (b'{"event": {"type": "a", "payload": []}}', 400, "invalid JSON body"),
        (b'{"event": {"type": 1}}', 400, "invalid JSON body"),
        (b"{}", 400, "event.type is required"),
        (b'{"event": {"type": " "}}', 400, "event.type is required"),
        (b'{"event": {"type": "Not.Lower"}}', 400, "event.type must use lower-case dotted form"),
        (b'{"event": {"type": "report.done"}, "origin": {"instance": "x"}}', 403, "origin instance mismatch"),
        (b'{"event": {"type": "another"}}', 422, "event type not allowed for peer"),
        (b'{"event": {"type": "report.done"}}', 422, "event type is not mapped"),
        (b'{"event": {"type": "agentic.tool_result"}}', 422, "no valid agentic.tool_result"),
        (b'{"event": {"type": "agentic.start", "payload": {"goal": " "}}}', 422, "no valid agentic.start"),
        (b'{"event": {"type": "alarm.raised"}}', 422, "the event has nothing at /payload/what"),
        (json.dumps(an_event("agentic.start", {"goal": "x" * 33_000})).encode(), 413, "the goal is longer"),
    ],
)
async def test_a_signed_body_that_is_no_event_for_us_is_refused(body: bytes, status: int, error: str) -> None:
    house = House()
    answer = await house.post(INGEST, body, signed(body))
    assert answer.status_code == status
    assert error_of(answer).startswith(error)
    assert house.bus.messages == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"event": {"type": "agentic.start", "type": "report.done"}}',
        b'{"event": {"type": "agentic.start", "payload": {"goal": NaN}}}',
        b'{"event": {"type": "agentic.start", "payload": {"goal": 1e999}}}',
        b'{"event": {"type": "agentic.start", "payload": {"goal": "\\ud800"}}}',
        b'{"event": {"type": "agentic.start", "payload": {"goal": "\xff"}}}',
        b"\xef\xbb\xbf{}",
        b"[" * 100 + b"]" * 100,
        b'{"a": 12345678901234567890123}',
    ],
)
async def test_json_that_others_could_read_otherwise_is_refused(body: bytes) -> None:
    answer = await House().post(INGEST, body, signed(body))
    assert answer.status_code == 400
    assert error_of(answer).startswith("invalid JSON body")


@pytest.mark.attack(29)
async def test_an_event_that_comes_again_is_accepted_again_and_published_once() -> None:
    house = House()
    first = (await house.relay(an_event())).json()
    house.clock.pass_by(60)
    again = await house.relay(an_event(), timestamp="2026-11-21T12:01:00Z")
    assert (again.status_code, again.json()) == (202, first | {"duplicate": True})
    assert len(house.bus.messages) == 1


async def test_an_event_is_known_by_its_dedupe_key_else_by_its_origin_else_by_its_body() -> None:
    house = House()
    named = an_event("agentic.start", {"goal": "Find it."})
    for event in (named, named | {"origin": {"event_id": "event-2", "job_id": "job-1"}}, named | {"origin": {}}):
        for _ in range(2):
            assert (await house.relay(event)).status_code == 202
    keyed = {"event": {"type": "agentic.start", "payload": {"goal": "Find it."}, "dedupe_key": "night 12"}}
    for job in ("job-1", "job-2"):
        await house.relay(keyed | {"origin": {"job_id": job, "event_id": job}})
    ids = [
        "job-1:event-1",
        "job-1:event-2",
        hashlib.sha256(json.dumps(named | {"origin": {}}).encode()).hexdigest(),
        "night 12",
    ]
    wanted = [f"agentic:start:ductile-test:{name}" for name in ids]
    wanted[3] = f"agentic:start:sha256-{hashlib.sha256(b'ductile-test:night 12').hexdigest()}"
    assert [key for _, key, _, _ in house.bus.messages] == wanted


SAID = {"goal": "Find it.", "context": {"tone": "dry", "run_id": "run_other"}, "constraints": {"max_steps": 3}}
RESERVED = {"run_id": "run_other", "wake_id": "other", "callback": "http://169.254.169.254/"}
BAGGAGE = {"run_id": RUN, "step": 2, "tool": "fetch", "attempt": 3}
FAILED = {"run_id": RUN, "step": 1, "tool": "fetch", "status": "error", "completed_at": NOW}


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        (
            # A start from outside names neither its run nor whom to call back.
            an_event("agentic.start", SAID | RESERVED | {"by": "root"}),
            {"goal": "Find it.", "context": {"tone": "dry"}, "constraints": {"max_steps": 3}, "by": "ductile-test"},
        ),
        (
            # What answers a step is named by the baggage, and never by the payload.
            an_event(
                "report.done", {"title": "A page", **RESERVED}, baggage=BAGGAGE | {"status": "error", "more": "x"}
            ),
            BAGGAGE
            | {"status": "ok", "result": {"title": "A page", "callback": RESERVED["callback"]}, "completed_at": NOW},
        ),
        (
            an_event("alarm.raised", {"what": "the pump"}),
            {"goal": "Look into the pump.", "context": {}, "constraints": {}, "by": "ductile-test"},
        ),
        (
            # Ductile knows best what of an event strangers wrote.
            an_event("agentic.start", {"goal": "Find it.", "untrusted": True}),
            {"goal": "Find it.", "context": {}, "constraints": {}, "untrusted": True, "by": "ductile-test"},
        ),
        # It does so of a result too, in its fields or in what its step brought.
        (an_event(payload=RESULT | {"untrusted": True}), RESULT | {"untrusted": True}),
        (
            an_event("report.done", {"text": "hello", "untrusted": "true"}, baggage=BAGGAGE),
            BAGGAGE
            | {
                "status": "ok",
                "result": {"text": "hello", "untrusted": "true"},
                "completed_at": NOW,
                "untrusted": True,
            },
        ),
        (
            an_event("person.answered", {"run": RUN, "words": "the blue one"}),
            {
                "run_id": RUN,
                "signal_id": "ductile-test:job-1:event-1",
                "kind": "answer",
                "message": "the blue one",
                "by": "ductile-test",
            },
        ),
        *(
            (an_event(payload=RESULT | {"result": brought}), RESULT | {"result": put})
            for brought, put in (("done", {"summary": "done"}), ([1], {"output": [1]}))
        ),
        (an_event(payload=FAILED | {"status": "ok", "result": None}), FAILED | {"status": "ok"}),
        (
            an_event(payload=FAILED | {"error": "no such page"}),
            FAILED | {"error": {"error_class": "tool_error", "message": "no such page", "retryable": False}},
        ),
    ],
)
async def test_an_event_becomes_what_its_type_its_mapping_or_its_baggage_says(event: Any, payload: Any) -> None:
    house = House()
    assert (await house.relay(event)).status_code == 202
    assert house.events()[0]["payload"] == payload
    assert ("Agentic-Run-Id" in house.bus.messages[0][3]) == ("run_id" in payload)


@pytest.mark.attack(35)
async def test_an_old_secret_of_a_peer_is_taken_until_its_time_is_over() -> None:
    old = {"id": "v1", "secret": SECRET, "until": "2026-11-21T12:00:01Z"}
    agreed = {"keys": [old, {"id": "v2", "secret": NEXT_SECRET}], "accept": ["agentic.tool_result"]}
    house = House(peers={"ductile-test": agreed})
    assert (await house.relay(an_event())).status_code == 202
    house.clock.pass_by(1)
    assert (await house.relay(an_event())).status_code == 403
    assert (await house.relay(an_event(), secret=NEXT_SECRET, key_id="v2")).status_code == 202
