"""Watchers of all runs, as many as one likes: what the benchmark hangs on the agent to see what they cost.

Each has a connection of its own to the stream of all runs. Some read what they are sent; the others only take it, so
that the processors are left to the agent.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from urllib.parse import urlsplit

READERS = 10
_AT = re.compile(rb'"entry":\{"seq":\d+,"at":"([^"]+)"')


class _Watcher(asyncio.Protocol):
    def __init__(self, lags: list[float] | None) -> None:
        self._lags = lags
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self._begun.done():
            self._begun.set_result(None)
        if self._lags is not None:
            now = time.time()
            self._lags += [now - datetime.fromisoformat(at.decode()).timestamp() for at in _AT.findall(data)]

    async def begun(self) -> None:
        """It is let in."""
        await self._begun


@asynccontextmanager
async def watching(url: str, number: int) -> AsyncIterator[list[float]]:
    """That many watchers, inside the context; how long events took to reach some of them, in seconds, from their
    entries' `at` (before the commit) on."""
    where = urlsplit(url)
    ask = f"GET /v1/events HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
    lags: list[float] = []
    loop, transports = asyncio.get_running_loop(), []
    for count in range(number):
        made = partial(_Watcher, lags if count < READERS else None)
        transport, watcher = await loop.create_connection(made, where.hostname or "", where.port or 80)
        transport.write(ask)
        transports.append(transport)
        await watcher.begun()
    try:
        yield lags
    finally:
        for transport in transports:
            transport.abort()
