"""The ingress as an HTTP server: its door, its probes, and bodies as the wire brings them."""

import asyncio
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.ingress_house import INGEST, PEERS, House, an_event, error_of, on_the_wire, signed
from tests.gateway.parts import MemoryBus

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


async def test_a_body_beyond_the_limit_is_refused_before_its_signature_is_looked_at() -> None:
    house = House(max_body_bytes=1024)
    answer = await house.post(INGEST, b"x" * 1025, signed(b"another body"))
    assert (answer.status_code, error_of(answer)) == (413, "the body has more than 1024 bytes")
    assert (await house.post(INGEST, b"x" * 1024, signed(b"another body"))).status_code == 403


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


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(event_type=TYPES, payload=PAYLOADS, baggage=PAYLOADS, key=JSON_VALUES)
async def test_no_event_breaks_the_ingress(event_type: str, payload: object, baggage: object, key: object) -> None:
    house = House()
    event = {"type": event_type, "payload": payload, "dedupe_key": key}
    answer = await house.relay({"event": event, "baggage": baggage})
    assert answer.status_code in {202, 400, 413, 422}
    assert len(house.events()) == (answer.status_code == 202)
