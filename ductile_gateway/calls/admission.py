"""Limits on calls: in all, and per tool.

A call that is refused here has not begun: TryAgain says when to try again.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from ductile_gateway.calls.places import NoPlace, Places
from groundwork.service.errors import TryAgain

FULL = "as many calls of {tool} are running as may"
LANE_COME_BACK_S = 0.25
LOOK_AGAIN_S = 0.1


class Permits(Protocol):
    """What the gateways of a bus carry out together, by lane. Both raise TryAgain."""

    async def take(self, lane: str, most: int) -> bool: ...

    async def give_back(self, lane: str) -> None: ...


class Lanes:
    """Slots: `most` here, and per tool as `widths` says, with `permits` over all gateways. Other tools pass freely.
    `room`: how many calls may wait in hand; what comes beyond is given back to the bus."""

    def __init__(self, widths: Mapping[str, int], *, most: int, room: int, permits: Permits | None = None) -> None:
        self._widths = dict(widths)
        self._places = Places(most, widths, room=room)
        self._permits = permits
        self._given_back: set[asyncio.Task[None]] = set()

    def also(self, widths: Mapping[str, int]) -> None:
        for tool, width in widths.items():
            self._widths[tool] = width
            self._places.allow(tool, width)

    @contextlib.asynccontextmanager
    async def enter(self, run_id: str, tool: str) -> AsyncIterator[None]:
        if tool not in self._widths:
            yield
            return
        try:
            await self._places.come(run_id, tool)
        except NoPlace:
            raise TryAgain(f"{FULL.format(tool=tool)}, and others wait", LANE_COME_BACK_S) from None
        try:
            async with self._permitted(tool):
                yield
        finally:
            self._places.go(run_id, tool)

    @contextlib.asynccontextmanager
    async def _permitted(self, tool: str) -> AsyncIterator[None]:
        while self._permits and not await self._permits.take(tool, self._widths[tool]):
            if self._places.closed:
                raise TryAgain(FULL.format(tool=tool), LANE_COME_BACK_S)
            await asyncio.sleep(LOOK_AGAIN_S)
        try:
            yield
        finally:
            if self._permits:
                task = asyncio.create_task(self._give_back(self._permits, tool))
                self._given_back.add(task)
                task.add_done_callback(self._given_back.discard)

    async def _give_back(self, permits: Permits, tool: str) -> None:
        while True:
            try:
                return await permits.give_back(tool)
            except TryAgain as error:
                await asyncio.sleep(error.delay_s)

    def close(self) -> None:
        self._places.close()
