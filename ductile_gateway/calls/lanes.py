"""Lanes: how many calls of one tool may run at a time, so that a slow tool leaves room for the fast ones.

Some more may wait in hand for their lane; what comes beyond is given back to the bus, because a message that waits here
holds a slot that another tool's message could have.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

from ductile_gateway.errors import TryAgain

COME_BACK_S = 0.25


class Lanes:
    """A lane for each tool in `widths`; any other name passes freely. `room`: how many calls may wait, of all tools."""

    def __init__(self, widths: Mapping[str, int], *, room: int) -> None:
        self._lanes = {tool: asyncio.Semaphore(width) for tool, width in widths.items()}
        self._room = room
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def enter(self, tool: str) -> AsyncIterator[None]:
        """A place in the tool's lane, held inside the context. Raises TryAgain when it is full and so is the room."""
        lane = self._lanes.get(tool)
        if lane is None:
            yield
            return
        if lane.locked():
            await self._wait(tool, lane)
        else:
            await lane.acquire()  # at once
        try:
            yield
        finally:
            lane.release()

    async def _wait(self, tool: str, lane: asyncio.Semaphore) -> None:
        if self._waiting >= self._room:
            raise TryAgain(f"as many calls of {tool} are running as may, and others wait", COME_BACK_S)
        self._waiting += 1
        try:
            await lane.acquire()
        finally:
            self._waiting -= 1
