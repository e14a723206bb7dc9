"""HTTP: a server on an existing socket, and limits on requests before any route is reached.

uvicorn runs without signal handlers and logs, and with limits that it lacks: on request heads, connections, pipelining
and slow readers, which are refused (400) or disconnected. At the limit of connections, the one that has waited longest
for its client is dropped. Bodies share a bounded memory; when it is full, the oldest unfinished one is dropped (408).
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, ClassVar, Literal

import uvicorn
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from groundwork.service.machine import set_within

log = logging.getLogger(__name__)

PROBES = frozenset({"/healthz", "/readyz"})
"""Accepted under any host name: kubelets and load balancers often know only an address."""


def single_header(scope: Scope, name: str) -> str:
    """Header value in lower case; empty if the header is missing or repeated."""
    values = Headers(scope=scope).getlist(name)
    return values[0].lower() if len(values) == 1 else ""


def host(scope: Scope) -> str:
    """Host header without its port. DNS rebinding shows there as another name for this address."""
    sent = single_header(scope, "host")
    name, colon, port = sent.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else sent


READ_WITHIN_S = 15.0
ROOM = 64 * 1024 * 1024
LONGEST_LENGTH = 12


class BodyRefused(Exception):
    """`status` and `code` are of the response. The text quotes nothing of the body."""

    def __init__(self, status: int, code: Literal["cut_off", "too_large", "too_slow"], message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class BodyReader:
    """Reads request bodies of at most `limit` bytes each; `room`: bytes for all of them."""

    def __init__(self, limit: int, *, room: int = ROOM) -> None:
        self._limit = limit
        self._most = max(1, room // limit)
        self._reading: dict[asyncio.Timeout, None] = {}

    async def read(self, request: Request) -> bytes:
        """Raises BodyRefused: 413 beyond the limit, 408 when too slow, 400 when cut off."""
        length = request.headers.get("content-length", "")
        if length.isdecimal() and (len(length) > LONGEST_LENGTH or int(length) > self._limit):
            raise _too_large(self._limit)
        if len(self._reading) >= self._most:
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            if not oldest.expired():  # then it ends by itself
                oldest.reschedule(asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(READ_WITHIN_S) as place:
                self._reading[place] = None
                body = bytearray()
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > self._limit:
                        raise _too_large(self._limit)
                return bytes(body)
        except TimeoutError as error:
            message = f"the body did not arrive within {READ_WITHIN_S:g} s, or while there was room to wait for it"
            raise BodyRefused(408, "too_slow", message) from error
        except ClientDisconnect as error:
            raise BodyRefused(400, "cut_off", "the connection ended within the body") from error
        finally:
            self._reading.pop(place, None)


def _too_large(limit: int) -> BodyRefused:
    return BodyRefused(413, "too_large", f"the body has more than {limit} bytes")


CLOSE_WITHIN_S = 3
ANSWERED_WITHIN_S = 1.0
"""Time for requests that `stopping` ended to be answered."""


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

    _since: float = 0.0
    """Begin of the newest wait for the client."""
    _unheard: int = 0
    """Bytes since the end of a head, or a part of a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._since = self.loop.time()
        if len(self.connections) > self.max_connections:
            waiting = (one for one in self.connections if isinstance(one, BoundedProtocol) and one._keeps_waiting())
            min(waiting, key=lambda one: one._since).transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._since = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        self._unheard += len(data)
        super().data_received(data)
        if self._unheard > self.max_head_bytes and not self.transport.is_closing():
            self._give_up()

    def on_headers_complete(self) -> None:
        self._unheard = 0
        if len(self.url) + sum(map(len, chain.from_iterable(self.headers))) > self.max_head_bytes:
            raise ValueError("the head of the request is too large")
        if len(self.pipeline) >= self.max_pipelined:
            raise ValueError("too many requests wait on this connection")
        super().on_headers_complete()
        self.headers = []  # those of the request are in its scope, and a trailer must not become one

    def on_body(self, body: bytes) -> None:
        self._unheard = 0
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()

    def end_wait(self) -> None:
        """Disconnects a client that has not acted in time."""
        is_to_read = self.flow.write_paused or self.transport.is_closing()
        within_s = self.take_within_s if is_to_read else self.head_within_s
        if self.loop.time() - self._since > within_s and (is_to_read or self._is_answered()):
            self._give_up()

    def _give_up(self) -> None:
        if self.flow.write_paused or self.transport.is_closing():
            path = self.scope and self.scope.get("path")
            log.info("a client that does not read was disconnected", extra={"path": path})
            self.transport.abort()
        elif self.cycle is None or (self._is_answered() and self.scope is not self.cycle.scope):
            self.send_400_response("The head of the request is too large or too slow.")
        else:
            self.transport.close()

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _keeps_waiting(self) -> bool:
        """True if the client has to act: send, also the rest of a body, or read."""
        is_awaited = self._is_answered() or self.cycle.more_body or self.flow.write_paused
        return is_awaited and not self.transport.is_closing()


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
        """Ticks once a second, for the Date header and clients that have not acted in time. uvicorn itself ticks ten
        times a second, to see whether to exit."""
        while not await self.on_tick(0):
            for connection in [*self.server_state.connections]:
                if isinstance(connection, BoundedProtocol):
                    connection.end_wait()
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
