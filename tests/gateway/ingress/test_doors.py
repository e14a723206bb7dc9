"""The ingress as an HTTP server: its limits, malformed requests, and failures of the bus."""

import asyncio
import json

import pytest

from tests.gateway.ingress.kit import INGEST, Ingress, an_event, error_of, on_the_wire, signed
from tests.gateway.parts import MemoryBus

BODY = json.dumps(an_event()).encode()


def delivery(target: str = INGEST, *more: str, body: bytes = BODY) -> bytes:
    """A signed delivery on the wire, with more lines in its head."""
    sent = {"Host": "127.0.0.1", "Connection": "close", "Content-Length": str(len(body))} | signed(body)
    if "Transfer-Encoding: chunked" in more:
        del sent["Content-Length"]
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), *more]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n" + body


async def status_of(ingress: Ingress, *parts: bytes) -> int:
    """Status of the answer to raw bytes."""
    async with on_the_wire(ingress) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for part in parts:
            writer.write(part)
            await writer.drain()
        try:
            return int((await asyncio.wait_for(reader.read(), 10)).split(b" ", 2)[1])
        finally:
            writer.close()


async def test_a_body_beyond_the_limit_is_refused_before_its_signature_is_looked_at() -> None:
    ingress = Ingress(max_body_bytes=1024)
    answer = await ingress.post(INGEST, b"x" * 1025, signed(b"another body"))
    assert (answer.status_code, error_of(answer)) == (413, "the body has more than 1024 bytes")
    assert (await ingress.post(INGEST, b"x" * 1024, signed(b"another body"))).status_code == 403
    chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
    assert await status_of(ingress, delivery(INGEST, "Transfer-Encoding: chunked", body=chunk), chunk) == 413


async def test_a_bus_that_does_not_answer_in_time_is_a_bus_that_is_away() -> None:
    class DeafBus(MemoryBus):
        async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
            del subject, body, key, headers
            await asyncio.Event().wait()

    assert (await Ingress(bus=DeafBus(), within_s=0.05).relay(an_event())).status_code == 503


NOWHERE = """
    /webhooks/%2e%2e/x /webhooks/%2e%2e%2fingest%2fductile //ingest/ductile /ingest//ductile /ingest/./ductile
    /ingest/ductile;x /ingest/ductile/ /ingest/ductile%00 /ingest/ductile%0a /healthz/../ingest/ductile /healthz%0a
    /INGEST/ductile *
"""


@pytest.mark.parametrize(
    ("target", "line", "status"),
    [
        *((target, "X-Nothing: 1", 404) for target in NOWHERE.split()),
        (INGEST, "Host: 127.0.0.1", 421),
        (INGEST, "X-Ductile-Peer: ductile-test", 403),
        (INGEST, "x-ductile-timestamp: 2026-11-21T12:00:00Z", 403),
        (INGEST, "Upgrade: websocket", 202),
        (INGEST, "X_Ductile_Peer: another", 202),
        (INGEST, "X-Forwarded-Host: evil.example", 202),
    ],
)
async def test_a_path_is_taken_as_it_is_written_and_a_head_has_one_meaning_or_none(
    target: str, line: str, status: int
) -> None:
    ingress = Ingress()
    assert await status_of(ingress, delivery(target, line)) == status
    assert len(ingress.bus.messages) == (status == 202)
