"""HTTP/1.1 with bounds that uvicorn does not set: on heads of requests, connections, pipelines and slow readers.

Where all connections are taken, the network with most of those that wait for their other end loses the oldest.
"""

import asyncio
import logging
from collections import Counter
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from groundwork.http.requests import network_of

log = logging.getLogger(__name__)


class BoundedProtocol(HttpToolsProtocol):
    """Refuses (400) and hangs up. Inherits because uvicorn takes a protocol and no bounds."""

    max_head_bytes: ClassVar[int] = 32 * 1024
    head_within_s: ClassVar[float] = 10.0
    max_connections: ClassVar[int] = 800
    """Fewer than the 1024 files that a process may usually open."""
    max_pipelined: ClassVar[int] = 32
    take_within_s: ClassVar[float] = 30.0
    """How long an answer may wait for its reader to take the next part of it."""

    _taking: asyncio.TimerHandle | None = None
    _patience: asyncio.TimerHandle | None = None
    _meant_something: bool = False
    """Whether the newest data began or ended a head, or brought a piece of body."""
    _unheard: int = 0
    """Bytes since such data: of a head, or of what follows a body."""
    _theirs_since: float = 0.0
    _network: str = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._network = network_of(self.client)
        self._await_head()
        if len(self.connections) > self.max_connections:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_to_wait_for_reader()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._theirs_since = self.loop.time()
        self._taking = self.loop.call_later(self.take_within_s, self._let_go)

    def resume_writing(self) -> None:
        self._stop_to_wait_for_reader()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._patience is None and self._is_answered():
            # Empty lines, or the rest of a body that nobody reads: they end uvicorn's own time for silence.
            self._await_head()
        self._meant_something = False
        super().data_received(data)
        self._unheard = 0 if self._meant_something else self._unheard + len(data)
        begun = self._read_of_head() if self._meant_something and self._patience is not None else 0
        if max(self._unheard, begun) > self.max_head_bytes:
            self._give_up()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._meant_something = True
        self._await_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come here, too: they are no part of the head, and nobody reads them.
        if self._patience is not None:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._meant_something = True
        self._stop_waiting()
        self._theirs_since = self.loop.time()
        if self._read_of_head() > self.max_head_bytes:
            raise ValueError("the head of the request is too large")
        if len(self.pipeline) >= self.max_pipelined:
            raise ValueError("too many requests wait on this connection")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._meant_something = True
        super().on_body(body)

    def on_response_complete(self) -> None:
        self._theirs_since = self.loop.time()
        super().on_response_complete()

    def _read_of_head(self) -> int:
        return len(self.url) + sum([len(name) + len(value) + len(": \r\n") for name, value in self.headers])

    def _await_head(self) -> None:
        self._stop_waiting()
        self._theirs_since = self.loop.time()
        self._patience = self.loop.call_later(self.head_within_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        begun = self.cycle is None or self.scope is not self.cycle.scope
        if begun and self._is_answered():
            self.send_400_response("The head of the request is too large or too slow.")
        else:
            self.transport.close()

    def _stop_to_wait_for_reader(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _let_go(self) -> None:
        self._taking = None
        log.info("let go of a reader that does not read", extra={"path": self.scope["path"]})
        self.transport.abort()

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _waits_for_other_end(self) -> bool:
        return self._is_answered() or self.cycle.more_body or self._taking is not None

    def _make_room(self) -> None:
        """Hang up on one that waits for its other end: on the newest, where all others wait for us."""
        theirs = [
            one
            for one in self.connections
            if isinstance(one, BoundedProtocol) and one._waits_for_other_end() and not one.transport.is_closing()
        ]
        held = Counter(one._network for one in theirs)
        max(theirs, key=lambda one: (held[one._network], -one._theirs_since)).transport.abort()
