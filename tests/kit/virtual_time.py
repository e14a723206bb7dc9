"""Time that passes only when a test says so."""

import asyncio
import heapq
from itertools import count

TURNS_LOOKED_AT = 50
"""Turns of the event loop: more than enough for every ready task to proceed."""


class VirtualTime:
    """`now` is in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + max(seconds, 1e-6), next(self._numbers), woken))
        await woken

    async def passes(self, seconds: float) -> None:
        """Advances the clock and runs everything due within `seconds`."""
        until = self.now + seconds
        await self._settled()
        while self._sleepers and self._sleepers[0][0] <= until:
            self.now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await self._settled()
        self.now = until

    async def _settled(self) -> None:
        for _ in range(TURNS_LOOKED_AT):
            await asyncio.sleep(0)
