"""uvicorn, as both services serve HTTP: on a socket that is there, without signal handlers and logs, and with bounds.

Of heads of requests, connections, pipelines and slow readers, which uvicorn does not bound: those are refused (400) or
hung up on. Where all connections are taken, the one goes that has waited longest for its other end.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CLOSE_WITHIN_S = 3
ANSWERED_WITHIN_S = 1.0
"""How long those who wait, and are told that they do so in vain, have to be answered."""

log = logging.getLogger(__name__)


class BoundedProtocol(HttpToolsProtocol):
    """Inherits because uvicorn takes a protocol and no bounds."""

    max_head_bytes: ClassVar[int] = 32 * 1024
    head_within_s: ClassVar[float] = 10.0
    """From when the connection or the answer before is there."""
    max_connections: ClassVar[int] = 800
    """Fewer than the 1024 files that a process may usually open."""
    max_pipelined: ClassVar[int] = 32
    take_within_s: ClassVar[float] = 30.0
    """How long an answer may wait for its reader to take the next part of it."""

    _patience: asyncio.TimerHandle | None = None
    """Until the other end has to act; None while it waits for us."""
    _since: float = 0.0
    _in_head: bool = False
    _unheard: int = 0
    """Bytes since the end of a head, or a piece of body."""

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
        if self._in_head:  # else it is a trailer, which is no part of the head
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


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def http_server(app: ASGIApp, protocol: type[BoundedProtocol] = BoundedProtocol) -> uvicorn.Server:
    """To be run by `serve(sockets=[…])`. Without `limit_concurrency`, which would turn the probes away, too."""
    config = uvicorn.Config(
        app,
        loop="none",
        http=protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",  # that it has started is said by the service
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSE_WITHIN_S,
    )
    return _Server(config)


async def serve_http(
    app: ASGIApp,
    listener: socket.socket,
    protocol: type[BoundedProtocol] = BoundedProtocol,
    *,
    stopping: Callable[[], object] | None = None,
) -> None:
    """Until cancelled; requests in hand have a moment to end. `stopping` ends what does not end by itself: a shorter
    moment."""
    server = http_server(app, protocol)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        if stopping:
            stopping()
            asyncio.get_running_loop().call_later(ANSWERED_WITHIN_S, setattr, server, "force_exit", True)
        await serving
        raise
