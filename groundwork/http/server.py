"""uvicorn on an existing socket, without signal handlers and logs, and with limits that it lacks.

Limits apply to request heads, connections, pipelining and slow readers, which are refused (400) or disconnected. At the
limit of connections, the one that has waited longest for its client is dropped.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from groundwork.service.machine import set_within

CLOSE_WITHIN_S = 3
ANSWERED_WITHIN_S = 1.0
"""Time for requests that `stopping` ended to be answered."""

log = logging.getLogger(__name__)


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn takes a protocol class and no limits."""

    max_head_bytes: ClassVar[int] = 32 * 1024
    head_within_s: ClassVar[float] = 10.0
    """Counted from the connection, or the previous response."""
    max_connections: ClassVar[int] = 800
    """Below 1024, the usual limit of open files."""
    max_pipelined: ClassVar[int] = 32
    take_within_s: ClassVar[float] = 30.0
    """Time for a client to read the next part of a response."""

    _patience: asyncio.TimerHandle | None = None
    """Running while the client has to act; None while it waits for us."""
    _since: float = 0.0
    _in_head: bool = False
    _unheard: int = 0
    """Bytes since the end of a head, or a part of a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._wait(self.head_within_s)
        if len(self.connections) > self.max_connections:
            _make_room([one for one in self.connections if isinstance(one, BoundedProtocol)])

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait(self.take_within_s)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()
        if self._is_answered() and not self.transport.is_closing():
            self._wait(self.head_within_s)

    def data_received(self, data: bytes) -> None:
        self._unheard += len(data)
        super().data_received(data)
        if self._unheard > self.max_head_bytes:
            self._give_up()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it is a trailer, which must not become a header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._unheard = False, 0
        if not self.flow.write_paused:
            self._go_on()
        if len(self.url) + sum([len(name) + len(value) for name, value in self.headers]) > self.max_head_bytes:
            raise ValueError("the head of the request is too large")
        if len(self.pipeline) >= self.max_pipelined:
            raise ValueError("too many requests wait on this connection")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unheard = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.flow.write_paused and self._is_answered():
            self._wait(self.head_within_s)

    def _wait(self, within_s: float) -> None:
        self._go_on()
        self._since = self.loop.time()
        self._patience = self.loop.call_later(within_s, self._give_up)

    def _go_on(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._go_on()
        if self.transport.is_closing() and not self.flow.write_paused:
            return
        if self.flow.write_paused:
            log.info("a client that does not read was disconnected", extra={"path": self.scope.get("path")})
            self.transport.abort()
        elif self.cycle is None or (self._is_answered() and self.scope is not self.cycle.scope):
            self.send_400_response("The head of the request is too large or too slow.")
        else:
            self.transport.close()

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete


def _make_room(connections: list[BoundedProtocol]) -> None:
    waiting = (one for one in connections if one._patience and not one.transport.is_closing())
    min(waiting, key=lambda one: one._since).transport.abort()


class HttpServer(uvicorn.Server):
    """Run it by `serve(sockets=[…])`. Sets no `limit_concurrency`, which would refuse probes, too."""

    def __init__(self, app: ASGIApp, protocol: type[BoundedProtocol] = BoundedProtocol) -> None:
        limits: dict[str, Any] = {"http": protocol, "timeout_graceful_shutdown": CLOSE_WITHIN_S}
        silent: dict[str, Any] = {"log_config": None, "log_level": "warning", "access_log": False}
        left_out: dict[str, Any] = {"loop": "none", "ws": "none", "lifespan": "off", "server_header": False}
        super().__init__(uvicorn.Config(app, **limits, **silent, **left_out))
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        self.should_exit = True
        self._leaving.set()

    async def main_loop(self) -> None:
        """Ticks once a second, for the Date header. uvicorn itself ticks ten times a second, to see whether to exit."""
        while not await self.on_tick(0):
            await set_within(self._leaving, 1.0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_http(app: ASGIApp, listener: socket.socket, *, stopping: Callable[[], object] | None = None) -> None:
    """Serves until cancelled; then requests have CLOSE_WITHIN_S to end. `stopping` ends those that would not end by
    themselves, and shortens this to ANSWERED_WITHIN_S."""
    server = HttpServer(app)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.leave()
        if stopping:
            stopping()
            asyncio.get_running_loop().call_later(ANSWERED_WITHIN_S, setattr, server, "force_exit", True)
        await serving
        raise
