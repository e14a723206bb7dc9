"""HTTP/1.1 on the wire, with bounds that uvicorn does not set: how large the head of a request may be, and how slow.

Without them a stranger could fill the memory with headers, or hold connections open for nothing. Bodies have their own
bounds. Given to uvicorn as `http`.
"""

import asyncio
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class BoundedProtocol(HttpToolsProtocol):
    """Refuses (400) and hangs up. Inherits because uvicorn takes a protocol and no bounds."""

    max_head_bytes: ClassVar[int] = 32 * 1024
    head_within_s: ClassVar[float] = 10.0

    _patience: asyncio.TimerHandle | None = None
    """Runs while a head is awaited."""
    _head_bytes: int = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        awaited = self._patience
        super().data_received(data)
        if awaited is not None and self._patience is awaited:
            self._head_bytes += len(data)
            if self._head_bytes > self.max_head_bytes:
                self._give_up()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """Raises ValueError, which the parser hands on as bad HTTP."""
        self._stop_waiting()
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self.max_head_bytes:
            raise ValueError("the head of the request is too large")
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._stop_waiting()
        self._head_bytes = 0
        self._patience = self.loop.call_later(self.head_within_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.send_400_response("The head of the request is too large or too slow.")
        else:
            self.transport.close()
