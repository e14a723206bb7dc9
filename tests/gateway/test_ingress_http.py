"""The ingress as an HTTP server: its door, its probes, and bodies as the wire brings them."""

import asyncio
import contextlib
import json
import socket
from pathlib import Path

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ductile_gateway.ingress.http import untold
from ductile_gateway.ingress.server import serve_ingress
from ductile_gateway.ingress.settings import IngressSettings
from ductile_gateway.store.deliveries import SqliteDeliveries
from ductile_gateway.tools.catalog import Offers
from groundwork.service.errors import Misconfigured
from tests.gateway.ingress_house import INGEST, PEERS, House, an_event, error_of, on_the_wire, signed
from tests.gateway.parts import MemoryArtifacts, MemoryBus, StoppedClock
from tests.gateway.stores import opened

BODY = json.dumps(an_event()).encode()
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ["goal", "context", "constraints", "run_id", "step", "tool", "attempt", "status", "result", "error"]
PAYLOADS = st.dictionaries(st.sampled_from([*FIELDS, "completed_at", "what"]), JSON_VALUES, max_size=8)
TYPES = st.sampled_from(PEERS["ductile-test"]["accept"])


async def say(port: int, *parts: bytes, then_close: bool = False) -> bytes:
    """Send bytes as they are; all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
    if then_close:
        writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


def head(length: str, **headers: str) -> bytes:
    sent = {"Host": "127.0.0.1", "Connection": "close"} | signed(BODY) | headers
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in sent.items())
    return f"POST {INGEST} HTTP/1.1\r\n{lines}{length}\r\n\r\n".encode()


async def test_every_event_is_counted_by_how_it_came_and_what_came_of_it() -> None:
    house = House()
    for _ in range(2):
        await house.relay(an_event())
    await house.relay(an_event("never.agreed"))
    await house.post("/webhooks/nobody", BODY, {})
    house.deliveries.down = True
    another = {"instance": "ductile-test", "job_id": "job-2", "event_id": "event-2"}
    await house.relay(an_event(origin=another))
    assert house.outcomes == {
        ("relay", "accepted"): 1,
        ("relay", "duplicate"): 1,
        ("relay", "refused"): 1,
        ("relay", "put_off"): 1,
        ("webhook", "refused"): 1,
    }


async def test_the_probes_say_whether_the_bus_is_there() -> None:
    house = House()
    assert (await house.get("/healthz")).json() == {"alive": True}
    assert (await house.get("/readyz")).status_code == 200
    house.connected = False
    answer = await house.get("/readyz", {"Host": "10.0.0.7"})
    assert (answer.status_code, answer.json()["ready"]) == (503, False)
    assert (await house.get("/healthz")).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "", "127.0.0.1.evil.example", "127.0.0.1:x"])
async def test_another_host_is_turned_away(host: str) -> None:
    house = House()
    answer = await house.post(INGEST, BODY, signed(BODY) | {"Host": host})
    assert answer.status_code == 421
    assert house.bus.messages == []


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/openapi.json", "/ingest/ductile/", "/ingest", "/webhooks/", "/webhooks/a/b"]
)
async def test_there_is_nothing_else(path: str) -> None:
    answer = await House().get(path)
    assert (answer.status_code, error_of(answer)) == (404, "there is nothing at this path")


@pytest.mark.parametrize("path", [INGEST, "/webhooks/known"])
async def test_events_are_posted(path: str) -> None:
    assert (await House().get(path)).status_code == 405


async def test_a_body_beyond_the_limit_is_refused_before_its_signature_is_looked_at() -> None:
    house = House(max_body_bytes=1024)
    answer = await house.post(INGEST, b"x" * 1025, signed(b"another body"))
    assert (answer.status_code, error_of(answer)) == (413, "the body has more than 1024 bytes")
    assert (await house.post(INGEST, b"x" * 1024, signed(b"another body"))).status_code == 403


async def test_more_deliveries_than_may_be_in_hand_are_told_to_come_again() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    class SlowBus(MemoryBus):
        async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
            asked.set()
            await answered.wait()
            await super().publish(subject, body, key=key, headers=headers)

    house = House(bus=SlowBus(), max_in_hand=1)
    first = asyncio.ensure_future(house.relay(an_event()))
    await asked.wait()
    second = await house.relay(an_event())
    assert (second.status_code, second.headers["Retry-After"]) == (503, "1")
    assert (await house.get("/healthz")).status_code == 200
    answered.set()
    assert (await first).status_code == 202
    assert (await house.relay(an_event())).status_code == 202


async def test_a_bus_that_does_not_answer_in_time_is_a_bus_that_is_away() -> None:
    class DeafBus(MemoryBus):
        async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
            del subject, body, key, headers
            await asyncio.Event().wait()

    assert (await House(bus=DeafBus(), answer_within_s=0.05).relay(an_event())).status_code == 503


async def test_a_body_in_chunks_without_end_is_refused_at_the_limit() -> None:
    house = House(max_body_bytes=1024)
    async with on_the_wire(house) as port:
        chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
        answer = await say(port, head("Transfer-Encoding: chunked"), chunk, chunk)
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(("length", "status"), [("99999", 413), ("9" * 19, 413), ("9" * 20, 400)])
async def test_a_length_beyond_the_limit_is_refused_without_the_body(length: str, status: int) -> None:
    async with on_the_wire(House(max_body_bytes=1024)) as port:
        answer = await say(port, head(f"Content-Length: {length}"), BODY)
    assert answer.startswith(b"HTTP/1.1 %d" % status)


async def test_a_body_that_is_cut_off_is_no_event() -> None:
    house = House()
    async with on_the_wire(house) as port:
        await say(port, head(f"Content-Length: {len(BODY)}"), BODY[:50], then_close=True)
        answer = await say(port, head(f"Content-Length: {len(BODY)}"), BODY)
    assert answer.startswith(b"HTTP/1.1 202")
    assert len(house.bus.messages) == 1


async def test_a_body_shorter_than_what_was_signed_is_forbidden() -> None:
    async with on_the_wire(House()) as port:
        answer = await say(port, head("Content-Length: 50"), BODY[:50])
    assert answer.startswith(b"HTTP/1.1 403")


async def test_without_senders_serving_is_at_once_done(tmp_path: Path, unused_port: int) -> None:
    with socket.create_server(("127.0.0.1", unused_port)):
        await asyncio.wait_for(serve(IngressSettings(port=unused_port), tmp_path), 5)


async def test_what_is_served_can_be_stopped_and_started_again(tmp_path: Path, unused_port: int) -> None:
    settings = IngressSettings.model_validate({"peers": PEERS, "port": unused_port})
    for _ in range(2):
        serving = asyncio.ensure_future(serve(settings, tmp_path))
        assert (await when_up(f"http://127.0.0.1:{unused_port}/readyz")).status_code == 200
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving


async def test_a_port_that_is_taken_is_said_so(tmp_path: Path, unused_port: int) -> None:
    taken = IngressSettings.model_validate({"peers": PEERS, "port": unused_port})
    with socket.create_server(("127.0.0.1", unused_port)), pytest.raises(Misconfigured, match=str(unused_port)):
        await serve(taken, tmp_path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=st.binary(max_size=200) | JSON_VALUES.map(lambda value: json.dumps(value).encode()))
async def test_no_body_breaks_the_ingress(body: bytes) -> None:
    answer = await House().post(INGEST, body, signed(body))
    assert answer.status_code in {400, 403, 422}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(event_type=TYPES, payload=PAYLOADS, baggage=PAYLOADS, key=JSON_VALUES)
async def test_no_event_breaks_the_ingress(event_type: str, payload: object, baggage: object, key: object) -> None:
    house = House()
    event = {"type": event_type, "payload": payload, "dedupe_key": key}
    answer = await house.relay({"event": event, "baggage": baggage})
    assert answer.status_code in {202, 400, 413, 422}
    assert len(house.events()) == (answer.status_code == 202)


async def serve(settings: IngressSettings, store: Path) -> None:
    bus, artifacts = MemoryBus(), MemoryArtifacts()
    clock = StoppedClock()
    async with opened(store, SqliteDeliveries) as record:
        await serve_ingress(
            settings,
            deliveries=record,
            bus=bus,
            artifacts=artifacts,
            find_offer=Offers().find,
            clock=clock,
            connected=lambda: True,
            told=untold,
        )


async def when_up(url: str) -> httpx2.Response:
    async with asyncio.timeout(10), httpx2.AsyncClient(trust_env=False) as client:
        while True:
            with contextlib.suppress(httpx2.TransportError):
                return await client.get(url)
            await asyncio.sleep(0.02)
