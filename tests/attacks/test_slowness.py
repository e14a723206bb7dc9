"""Many almost idle connections harm only the client that holds them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.attacks.services import TOKENS, Services

MANY = 850
"""More than either service accepts."""
SOON_S = 3.0
WAKER = f"Authorization: Bearer {TOKENS['waker']}\r\n"
OF_A_WAKE = f"POST /v1/wake HTTP/1.1\r\nHost: 127.0.0.1\r\n{WAKER}Content-Type: application/json\r\n"


@asynccontextmanager
async def holding(url: str, begun: str, many: int = MANY) -> AsyncIterator[None]:
    """Holds that many connections that have begun a request."""
    port = int(url.rpartition(":")[2])
    writers = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(many)]
    try:
        for writer in writers:
            writer.write(begun.encode())
        yield
    finally:
        for writer in writers:
            writer.close()


async def soon(method: str, url: str, *, body: bytes = b"", headers: dict[str, str] | None = None) -> int:
    """Status of another client's request, which must be answered soon."""
    began = time.monotonic()
    async with httpx2.AsyncClient(trust_env=False, timeout=10) as client:
        answer = await client.request(method, url, content=body, headers=headers or {})
    assert time.monotonic() - began < SOON_S
    return answer.status_code


@pytest.mark.parametrize(
    "begun", ["", "GET /", f"{OF_A_WAKE}Content-Length: 1000\r\n\r\n{{"], ids=["silence", "heads", "bodies"]
)
async def test_slow_callers_of_the_api_keep_out_neither_probes_nor_others(services: Services, begun: str) -> None:
    operator = {"Authorization": f"Bearer {TOKENS['operator']}", "Content-Type": "application/json"}
    async with holding(services.api, begun):
        assert await soon("GET", f"{services.api}/healthz") == 200
        assert await soon("GET", f"{services.api}/readyz") == 200
        assert await soon("POST", f"{services.api}/v1/wake", body=b'{"goal": "echo x"}', headers=operator) == 202
