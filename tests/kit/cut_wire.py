"""A TCP wire between two processes that can be cut at a byte; it forwards to the real other end.

It knows bytes and directions, and no protocol.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal

Way = Literal["there", "back"]
"""From the client to the listener, and back."""
Rule = Callable[[Way, bytes], Awaitable[bytes]]
"""Returns the bytes to forward, once it is time. Raises Cut to end the connection."""

MOST_AT_ONCE = 1 << 20


class Cut(Exception):
    """The connection ends here, on both sides."""


@dataclass(slots=True)
class Spot:
    """A point in the traffic. `seen` counts how often it was passed. Traffic waits here for `go_on`, or is cut."""

    way: Way
    words: re.Pattern[bytes]
    seen: int = 0
    is_cut: bool = False
    go_on: asyncio.Event = field(default_factory=asyncio.Event)


class Knife:
    """The spots of one wire, until `away`."""

    def __init__(self) -> None:
        self._spots: list[Spot] = []

    def stop_before(self, words: bytes, way: Way) -> Spot:
        """Holds back the bytes that match the regular expression `words`, and everything after them."""
        spot = Spot(way, re.compile(words))
        self._spots.append(spot)
        return spot

    def away(self) -> None:
        """Removes all spots; connections with held bytes end without delivering them."""
        for spot in self._spots:
            spot.is_cut = True
            spot.go_on.set()
        self._spots.clear()

    async def rule(self, way: Way, chunk: bytes) -> bytes:
        for spot in [spot for spot in self._spots if spot.way == way]:
            found = len(spot.words.findall(chunk))
            spot.seen += found
            if found:
                await spot.go_on.wait()
            if spot.is_cut:
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


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, rule: Rule) -> None:
    while chunk := await reader.read(MOST_AT_ONCE):
        writer.write(await rule(way, chunk))
        await writer.drain()
