"""Whether there is room for one more run: asked before each, long before anything is full.

Work that is under way is not asked: it has the room that is left.
"""

from collections.abc import Awaitable, Callable, Mapping

from agent_service.core.waiting import Status
from groundwork.service.errors import NoRoom, TryAgain

FOR_STRANGERS = 0.5
"""The part of all places to wait that starts of the bus may take. What is beyond waits in its stream, which refuses its
publishers when it is full: callers of the API find the other places."""
QUEUED_S, FULL_S = 5.0, 30.0
"""When to come back: runs begin all the time, and room is made by a person."""


class Room:
    """`counts`: how many runs there are of each status; `max_queued` of them may wait to begin."""

    def __init__(self, counts: Callable[[], Awaitable[Mapping[Status, int]]], *, max_queued: int) -> None:
        self._counts = counts
        self._max_queued = max_queued
        self.trouble = ""
        """What is nearly full, and what to do now; kept by whoever looks (see `bus.room`)."""

    async def check(self, *, by_bus: bool = False) -> None:
        """Raises TryAgain, with when to come back."""
        if self.trouble:
            raise NoRoom(self.trouble, delay_s=FULL_S)
        most = max(1, int(self._max_queued * FOR_STRANGERS)) if by_bus else self._max_queued
        if (await self._counts()).get(Status.QUEUED, 0) >= most:
            raise TryAgain(f"{most} runs wait to begin already", delay_s=QUEUED_S)
