"""Begins the runs that the store has as queued: what is accepted begins, whatever becomes of any message about it.

Woken by every acceptance, it looks by itself too: for what a crash left, and for what could not begin because no tool
catalog was known. What callers publish and what we announce on the bus begins nothing here.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from agent_service.background import Background
from agent_service.errors import TryAgain
from agent_service.ports import RunStore

LOOK_EVERY_S = 1.0

log = logging.getLogger(__name__)


class Starter:
    """`begin` takes a queued run through its first turn; at most `slots` are under way at the same time."""

    def __init__(
        self, begin: Callable[[str], Awaitable[object]], store: RunStore, background: Background, *, slots: int
    ) -> None:
        self._begin = begin
        self._store = store
        self._background = background
        self._slots = slots
        self._under_way: set[str] = set()
        self._news = asyncio.Event()

    def nudge(self) -> None:
        """A run was accepted."""
        self._news.set()

    async def run(self) -> None:
        """Begin what is queued, oldest first, for ever."""
        while True:
            self._news.clear()
            try:
                await self._look()
            except TryAgain as error:
                log.warning("the queued runs cannot be read", extra={"why": str(error)})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_EVERY_S):  # wait_for of Python 3.11 may lose a cancel that meets news
                    await self._news.wait()

    async def _look(self) -> None:
        if len(self._under_way) >= self._slots:
            return
        for run_id in await self._store.queued(self._slots + len(self._under_way)):
            if run_id not in self._under_way and len(self._under_way) < self._slots:
                self._under_way.add(run_id)
                self._background.start(self._first_turn(run_id))

    async def _first_turn(self, run_id: str) -> None:
        try:
            await self._begin(run_id)
        except TryAgain as error:
            log.info("cannot begin yet", extra={"run_id": run_id, "why": str(error)})
        else:
            self.nudge()  # its place is free, and another may have it at once
        finally:
            self._under_way.discard(run_id)
