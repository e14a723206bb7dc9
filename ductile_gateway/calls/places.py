"""A number of places for what may be under way at the same time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Places:
    """Those who come wait in turn. Those who are there already count too, and do not wait: they may be too many, and
    then nobody comes in until enough have gone."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._too_many = 0

    @asynccontextmanager
    async def one(self, *, within_s: float) -> AsyncIterator[bool]:
        """A place for the time of the context; False if none was free in time."""
        if not await self._come(within_s):
            yield False
            return
        try:
            yield True
        finally:
            self._go()

    @asynccontextmanager
    async def one_more(self) -> AsyncIterator[None]:
        """A place for one who is there already."""
        if self._free.locked():
            self._too_many += 1
        else:
            await self._free.acquire()  # at once: it is not locked
        try:
            yield
        finally:
            self._go()

    async def _come(self, within_s: float) -> bool:
        if within_s <= 0:
            return False
        try:
            async with asyncio.timeout(within_s):
                return await self._free.acquire()
        except TimeoutError:
            return False

    def _go(self) -> None:
        if self._too_many:
            self._too_many -= 1
        else:
            self._free.release()
