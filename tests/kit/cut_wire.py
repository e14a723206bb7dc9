"""A TCP wire between two processes that can be cut; it forwards to the real other end.

It knows bytes and directions, and no protocol.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

Direction = Literal["there", "back"]
"""From the client to the listener, and back."""
Rule = Callable[[Direction, bytes], Awaitable[bytes]]
"""Returns the bytes to forward, once it is time. Raises Cut to end the connection."""

MOST_AT_ONCE = 1 << 20


class Cut(Exception):
    """The connection ends here, on both sides."""


class Way:
    """Passes everything, or holds it back while cut, as a network that drops packets does: the rest is delivered once
    it is mended, as TCP would by sending it again.

    Until it is first mended, answers with the bytes `held` (a regular expression) wait in any case; `seen` counts them.
    """

    def __init__(self, held: bytes = rb"(?!)") -> None:
        self.seen = 0
        self._held = re.compile(held)
        self._goes_on = asyncio.Event()
        self._is_cut = self._is_over = False

    def cut(self) -> None:
        self._is_cut = True
        self._goes_on.clear()

    def mend(self) -> None:
        self._is_cut = False
        self._goes_on.set()

    def end(self) -> None:
        """Ends the connections with bytes that are held back, and delivers none of them."""
        self._is_over = True
        self.mend()

    async def rule(self, direction: Direction, chunk: bytes) -> bytes:
        found = len(self._held.findall(chunk)) if direction == "back" else 0
        self.seen += found
        if (found or self._is_cut) and not self._goes_on.is_set():
            await self._goes_on.wait()
            if self._is_over:
                raise Cut
        return chunk


@asynccontextmanager
async def wire(port: int, rule: Rule) -> AsyncIterator[int]:
    """Returns the port of a wire to the listener on this loopback port."""
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            connections.add(task)
            task.add_done_callback(connections.discard)
        with contextlib.closing(writer), contextlib.suppress(OSError, Cut, asyncio.CancelledError):
            await _join(reader, writer, port, rule)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        near: int = server.sockets[0].getsockname()[1]
        yield near
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, rule: Rule) -> None:
    """Forwards both ways until one of them ends; bytes held back on the other are dropped."""
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.closing(far_writer):
        ways = {
            asyncio.create_task(_pump(reader, far_writer, "there", rule)),
            asyncio.create_task(_pump(far_reader, writer, "back", rule)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction, rule: Rule) -> None:
    while chunk := await reader.read(MOST_AT_ONCE):
        writer.write(await rule(direction, chunk))
        await writer.drain()
