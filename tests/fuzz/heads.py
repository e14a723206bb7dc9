"""Heads of HTTP requests on a connection, in one piece or in several."""

import asyncio
from functools import cache
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from groundwork.http import BoundedProtocol, HttpServer, has_printable_path, host, single_header

TURNS = 4
"""Turns of the loop after each piece, enough for an answer that waits for nothing."""


class _Wire(asyncio.Transport):
    """Transport that discards what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1234), "sockname": ("127.0.0.1", 8700)})
        self.written = 0
        self._closing = False

    def write(self, data: Any) -> None:
        self.written += len(data)

    def close(self) -> None:
        self._closing = True

    abort = close

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        """Never called."""

    resume_reading = pause_reading


async def _app(scope: Scope, _: Receive, send: Send) -> None:
    """Checks that all our servers make first."""
    assert scope["type"] == "http"
    assert "/" not in host(scope) or single_header(scope, b"host")
    has_printable_path(scope)
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def heads(data: bytes) -> None:
    """The first byte is the number of pieces of the rest. An answer is never longer than the request."""
    _runner().run(_heard(data[1:], pieces=1 + (data[0] % 4 if data else 0)))


@cache
def _runner() -> asyncio.Runner:
    """One loop for all inputs, because making one takes longer than reading a head."""
    return asyncio.Runner()


async def _heard(data: bytes, *, pieces: int) -> None:
    wire, errors = _Wire(), []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    config: uvicorn.Config = HttpServer(_app).config
    config.load()
    protocol = BoundedProtocol(config=config, server_state=ServerState(), app_state={}, _loop=loop)
    protocol.connection_made(wire)
    size = len(data) // pieces + 1
    for start in range(0, len(data), size):
        if not wire.is_closing():
            protocol.data_received(data[start : start + size])
        for _ in range(TURNS):
            await asyncio.sleep(0)
    protocol.connection_lost(None)
    assert not errors, errors
    assert wire.written <= 4096 + 64 * len(data)
