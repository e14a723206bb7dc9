"""How much waits in a Ductile, which itself takes any number of jobs: beyond a limit, new calls wait outside.

The last look counts for a while, so that many calls ask once. What cannot be seen is no reason to wait.
"""

import asyncio
import logging
from datetime import datetime, timedelta

from ductile_gateway.ductile.answers import Away
from ductile_gateway.ductile.api import DuctileApi
from ductile_gateway.errors import TryAgain
from ductile_gateway.ports import Clock

FRESH_FOR = timedelta(seconds=2)
ANSWER_WITHIN_S = 1.0
COME_BACK_S = 5.0

log = logging.getLogger(__name__)


class DuctileQueue:
    """The queue of one Ductile. `most`: None where it does not matter how long it is."""

    def __init__(self, api: DuctileApi, *, most: int | None, clock: Clock) -> None:
        self._api = api
        self._most = most
        self._clock = clock
        self._looking = asyncio.Lock()
        self._depth: int | None = None
        self._fresh_until: datetime | None = None
        self._is_full = False

    async def check(self) -> None:
        """Raises TryAgain while it is longer than it may be."""
        if self._most is None:
            return
        async with self._looking:
            if self._fresh_until is None or self._clock.now() >= self._fresh_until:
                self._depth = await self._look()
                self._fresh_until = self._clock.now() + FRESH_FOR
        if (depth := self._depth) is None:
            return
        self._note(depth, is_full=depth > self._most)
        if self._is_full:
            raise TryAgain(f"Ductile has {depth} jobs waiting or running, more than {self._most}", COME_BACK_S)

    async def _look(self) -> int | None:
        """How many jobs wait or run; None if that cannot be told."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                depth = (await self._api.health()).get("queue_depth")
        except (Away, TimeoutError):
            return None
        return depth if isinstance(depth, int) else None

    def _note(self, depth: int, *, is_full: bool) -> None:
        if is_full and not self._is_full:
            log.warning("Ductile's queue is too long: new calls wait", extra={"jobs": depth, "most": self._most})
        elif self._is_full and not is_full:
            log.info("Ductile's queue is short enough again: calls are made", extra={"jobs": depth})
        self._is_full = is_full
