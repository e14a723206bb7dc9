"""The ingress on a real socket, met by requests that no well-bred sender makes. One event at most comes of each."""

import json

import pytest

from tests.gateway.ingress_house import INGEST, House, an_event, on_the_wire, signed
from tests.gateway.test_ingress_http import say

BODY = json.dumps(an_event()).encode()


def request(target: str = INGEST, *more: str, body: bytes = BODY, connection: str = "close") -> bytes:
    """A signed delivery, with more lines in its head."""
    sent = {"Host": "127.0.0.1", "Connection": connection, "Content-Length": str(len(body))} | signed(body)
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), *more]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1") + b"\r\n" + body


async def status_of(house: House, sent: bytes) -> int:
    async with on_the_wire(house) as port:
        return int((await say(port, sent)).split(b" ", 2)[1])


@pytest.mark.parametrize(
    "target",
    [
        "/webhooks/%2e%2e/x",
        "/webhooks/%2e%2e%2fingest%2fductile",
        "//ingest/ductile",
        "/ingest//ductile",
        "/ingest/./ductile",
        "/ingest/ductile;x",
        "/ingest/ductile/",
        "/ingest/ductile%00",
        "/ingest/ductile%0a",
        "/healthz/../ingest/ductile",
        "/healthz%0a",
        "/INGEST/ductile",
        "*",
    ],
)
async def test_a_path_is_taken_as_it_is_written(target: str) -> None:
    house = House()
    assert await status_of(house, request(target)) == 404
    assert house.bus.messages == []


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["Host: 127.0.0.1"], 421),
        (["X-Ductile-Peer: ductile-test"], 403),
        (["x-ductile-timestamp: 2026-11-21T12:00:00Z"], 403),
        (["Upgrade: websocket"], 202),
        (["X_Ductile_Peer: another"], 202),
        (["X-Forwarded-Host: evil.example"], 202),
    ],
)
async def test_a_head_has_one_meaning_or_none(lines: list[str], status: int) -> None:
    house = House()
    assert await status_of(house, request(INGEST, *lines)) == status
    assert len(house.bus.messages) == (status == 202)
