"""What the relay ingress and the stream of events are like, on the fake and on a real Ductile."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.ductile.calling import awaited, called, client, envelope, finished, logged, relayed, signed
from tests.ductile.under_test import DuctileUnderTest


def test_a_signed_event_becomes_a_job_of_the_pipeline_that_listens(ductile: DuctileUnderTest) -> None:
    answer = relayed(ductile, envelope(word="hello") | {"baggage": {"not": "allowed"}, "unknown": 1})
    assert answer.status_code == 202
    accepted = answer.json()
    assert accepted.keys() == {"status", "peer", "event_type", "receiver_event_id", "job_id"}
    assert (accepted["status"], accepted["peer"], accepted["event_type"]) == (
        "accepted",
        ductile.peer.name,
        "probe.asked",
    )
    assert finished(ductile, accepted["job_id"])["status"] == "succeeded"
    assert [(one.command, one.payload) for one in ductile.executions] == [("handle", {"word": "hello"})]
    assert logged(ductile, job_id=accepted["job_id"])[0]["submitted_by"] == f"relay:{ductile.peer.name}"


def test_an_event_that_nobody_listens_to_is_accepted_without_a_job(ductile: DuctileUnderTest) -> None:
    answer = relayed(ductile, envelope("probe.unheard"))
    assert answer.status_code == 202
    assert "job_id" not in answer.json()


def test_the_time_may_be_given_as_rfc_3339_or_in_unix_seconds(ductile: DuctileUnderTest) -> None:
    for at in (str(int(time.time())), datetime.now(UTC).isoformat(), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"):
        assert relayed(ductile, envelope("probe.unheard"), at=at).status_code == 202, at


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"peer": None}, "peer identity mismatch"),
        ({"peer": "someone-else"}, "peer identity mismatch"),
        ({"timestamp": None}, "missing relay timestamp"),
        ({"timestamp": "yesterday"}, "invalid relay timestamp"),
        ({"timestamp": "2026-01-01T00:00:00"}, "invalid relay timestamp"),
        ({"timestamp": "2026-01-01 00:00:00Z"}, "invalid relay timestamp"),
        ({"timestamp": "2020-01-01T00:00:00Z"}, "relay timestamp outside allowed clock skew"),
        ({"key_id": None}, "missing relay key id"),
        ({"key_id": "v2"}, "relay key id mismatch"),
        ({"signature": None}, "missing relay signature"),
        ({"signature": "00" * 32}, "forbidden"),
        ({"signature": "no hex"}, "forbidden"),
        ({"peer": "someone-else", "timestamp": None, "key_id": None}, "peer identity mismatch"),
        ({"timestamp": None, "key_id": None, "signature": None}, "missing relay timestamp"),
        ({"key_id": None, "signature": None}, "missing relay key id"),
    ],
)
def test_each_flaw_of_a_signed_event_is_named_the_first_of_them(
    ductile: DuctileUnderTest, changed: dict[str, str | None], error: str
) -> None:
    answer = relayed(ductile, envelope(), **changed)
    assert (answer.status_code, answer.json()) == (403, {"error": error})


def test_a_chunked_event_arrives_whole(ductile: DuctileUnderTest) -> None:
    body = json.dumps(envelope(word="hello")).encode()
    headers = signed(ductile.peer, body)
    url = ductile.url + ductile.peer.path
    answer = httpx2.post(url, content=iter([body[:10], body[10:]]), headers=headers, trust_env=False)
    assert answer.status_code == 202
    finished(ductile, answer.json()["job_id"])
    assert [one.payload for one in ductile.executions] == [{"word": "hello"}]


def test_an_unknown_peer_is_refused(ductile: DuctileUnderTest) -> None:
    answer = httpx2.post(f"{ductile.url}/ingest/peer/nobody", content=b"{}", trust_env=False)
    assert (answer.status_code, answer.json()) == (403, {"error": "unknown relay peer"})


def test_a_signature_may_say_how_it_was_made(ductile: DuctileUnderTest) -> None:
    body = json.dumps(envelope("probe.unheard")).encode()
    at = datetime.now(UTC).isoformat()
    signature = relayed(ductile, body, at=at).request.headers["X-Ductile-Signature"]
    assert relayed(ductile, body, at=at, signature=f"sha256={signature}").status_code == 202


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        (b"{no json", 400, "invalid JSON body"),
        (b'{"event": {"type": "probe.asked", "payload": [1]}}', 400, "invalid JSON body"),
        (b'{"event": {}}', 400, "event.type is required"),
        (b'{"event": {"type": "Probe.Asked"}}', 400, "event.type must use lower-case dotted form"),
        (b'{"event": {"type": "probe.asked"}, "origin": {"instance": "x"}}', 403, "origin instance mismatch"),
        (b'{"event": {"type": "probe.other"}}', 422, "event type not allowed for peer"),
        (json.dumps(envelope(word="x" * 300_000)).encode(), 413, "relay payload too large"),
    ],
    ids=["json", "payload", "no type", "type", "origin", "accept", "size"],
)
def test_each_flaw_of_an_envelope_has_its_answer(
    ductile: DuctileUnderTest, body: bytes, status: int, error: str
) -> None:
    answer = relayed(ductile, body)
    assert (answer.status_code, answer.json()) == (status, {"error": error})


def test_an_event_whose_job_succeeded_is_not_run_again(ductile: DuctileUnderTest) -> None:
    first = relayed(ductile, envelope(key="k")).json()["job_id"]
    finished(ductile, first)
    assert relayed(ductile, envelope(key=" k ")).json()["job_id"] == first
    assert relayed(ductile, envelope(key="another")).json()["job_id"] != first
    awaited(lambda: len(ductile.executions), lambda count: count == 2)


def test_without_a_key_the_id_of_the_origins_event_is_the_key(ductile: DuctileUnderTest) -> None:
    event = envelope() | {"origin": {"instance": ductile.peer.name, "event_id": "e-1"}}
    first = relayed(ductile, event).json()["job_id"]
    finished(ductile, first)
    assert relayed(ductile, event).json()["job_id"] == first
    assert relayed(ductile, envelope()).json()["job_id"] != first


def test_an_event_whose_job_failed_is_run_again(ductile: DuctileUnderTest) -> None:
    first = relayed(ductile, envelope(key="k", do="refuse")).json()["job_id"]
    finished(ductile, first)
    assert relayed(ductile, envelope(key="k", do="refuse")).json()["job_id"] != first


def test_an_event_sent_again_while_its_job_runs_is_run_again_after_it(
    measured: DuctileUnderTest, tmp_path: Path
) -> None:
    event = envelope(key="k", do="hold", until=str(tmp_path / "released"))
    first = relayed(measured, event).json()["job_id"]
    awaited(lambda: len(measured.executions), lambda count: count == 1)
    second = relayed(measured, event).json()["job_id"]
    assert second != first
    other = relayed(measured, envelope(key="other")).json()["job_id"]
    finished(measured, other)
    assert [one.job_id for one in measured.executions] == [first, other]
    (tmp_path / "released").touch()
    finished(measured, second)
    assert [one.job_id for one in measured.executions] == [first, other, second]


@contextmanager
def stream(ductile: DuctileUnderTest, last: int | None = None) -> Iterator[Iterator[dict[str, Any]]]:
    """The events as they come: {id, event, data}."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with client(ductile) as http, http.stream("GET", "/events", headers=headers) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        yield _frames(answer)


def _frames(answer: httpx2.Response) -> Iterator[dict[str, Any]]:
    frame: dict[str, Any] = {}
    for line in answer.iter_lines():
        name, _, value = line.partition(": ")
        if line:
            frame[name] = json.loads(value) if name in ("id", "data") else value
        elif "event" in frame:
            yield frame
            frame = {}


def of_job(events: Iterator[dict[str, Any]], job_id: str, last: str) -> list[str]:
    """The events of a job in their order, up to the last."""
    found: list[str] = []
    while last not in found:
        event = next(events)
        found += [event["event"]] if event["data"].get("job_id") == job_id else []
    return found


def test_the_stream_tells_how_a_job_goes_and_nothing_of_its_result(ductile: DuctileUnderTest) -> None:
    with stream(ductile) as events:
        job_id = called(ductile, word="secret-word")
        seen: list[dict[str, Any]] = []
        while not seen or seen[-1]["event"] != "job.completed":
            seen.append(next(events))
    mine = [event for event in seen if event["data"].get("job_id") == job_id]
    assert mine[0]["event"] == "job.enqueued"
    assert "job.started" in [event["event"] for event in mine]
    assert mine[-1]["data"]["status"] == "succeeded"
    assert "secret-word" not in json.dumps(seen)


def test_what_happened_before_is_replayed_from_the_id_on(ductile: DuctileUnderTest) -> None:
    job_id = called(ductile)
    finished(ductile, job_id)
    with stream(ductile) as events:
        first = next(event for event in events if event["data"].get("job_id") == job_id)
    with stream(ductile, last=first["id"]) as events:
        assert next(events)["id"] == first["id"] + 1
        assert "job.enqueued" not in of_job(events, job_id, "job.completed")


def test_a_retry_and_its_end_are_told(ductile: DuctileUnderTest) -> None:
    with stream(ductile) as events:
        stumbling = of_job(events, called(ductile, do="stumble"), "job.failed")
    assert stumbling.count("job.started") == 4
    assert stumbling.count("job.retry_scheduled") == 3


def test_ids_begin_anew_after_a_restart(ductile: DuctileUnderTest) -> None:
    for _ in range(3):
        finished(ductile, called(ductile))
    with stream(ductile) as events:
        before = next(events)["id"]
    ductile.kill()
    ductile.start()
    called(ductile)
    with stream(ductile) as events:
        assert next(events)["id"] == before == 1
    with stream(ductile, last=10_000) as events:
        job_id = called(ductile)
        assert of_job(events, job_id, "job.enqueued") == ["job.enqueued"]


def test_the_token_of_the_stream_may_stand_in_its_address(ductile: DuctileUnderTest) -> None:
    def code(path: str) -> int:
        with httpx2.stream("GET", f"{ductile.url}{path}?token={ductile.token}", trust_env=False) as answer:
            return answer.status_code

    called(ductile)
    assert (code("/events"), code("/jobs")) == (200, 401)
