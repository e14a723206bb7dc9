"""Whether there is room for one more run, long before anything is full. Work under way is not asked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agent_service.admission.quotas import Quotas
from agent_service.core.waiting import Status
from agent_service.kill_switch import Brake
from groundwork.service.errors import TryAgain

FOR_STRANGERS = 0.5
"""The part of all places to wait that starts of the bus may take. What is beyond waits in its stream, which refuses its
publishers when it is full: callers of the API find the other places."""
QUEUED_S, FULL_S = 5.0, 30.0
"""When to come back: runs begin all the time, and room is made by a person."""
KNOWN_WITHIN_S = 2.0
"""How long a wake may take that comes while there is trouble: one that is known already is answered all the same."""


class Room:
    """`counts`: how many runs there are of each status; `max_queued` of them may wait to begin."""

    def __init__(self, counts: Callable[[], Awaitable[Mapping[Status, int]]], *, max_queued: int) -> None:
        self._counts = counts
        self._max_queued = max_queued
        self.trouble = ""
        """Why nothing new can be kept, and what to do now."""
        self._again_s = FULL_S
        self._wakes: set[asyncio.Timeout] = set()

    def say(self, trouble: str, *, again_s: float = FULL_S) -> None:
        """Set by `bus.room`. `again_s`: when callers are to come back."""
        self.trouble, self._again_s = trouble, again_s
        for wake in self._wakes if trouble else ():
            wake.reschedule(0)

    @asynccontextmanager
    async def unless_trouble(self) -> AsyncIterator[None]:
        """Work inside is given up once there is trouble: raises TryAgain, and it may have been stored."""
        try:
            async with asyncio.timeout(KNOWN_WITHIN_S if self.trouble else None) as wake:
                self._wakes.add(wake)
                try:
                    yield
                finally:
                    self._wakes.remove(wake)
        except TimeoutError as error:
            if not wake.expired():
                raise
            raise TryAgain(self.trouble or "the store does not answer", delay_s=self._again_s) from error

    async def check(self, *, by_bus: bool = False) -> None:
        """Raises TryAgain, with when to come back."""
        if self.trouble:
            raise TryAgain(self.trouble, delay_s=self._again_s)
        most = max(1, int(self._max_queued * FOR_STRANGERS)) if by_bus else self._max_queued
        if (await self._counts()).get(Status.QUEUED, 0) >= most:
            raise TryAgain(f"{most} runs wait to begin already", delay_s=QUEUED_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    brake: Brake
    room: Room
    quotas: Quotas

    async def check(self) -> None:
        """A start of the bus may begin. Raises Stopped, or TryAgain with when to come back."""
        self.brake.check()
        await self.room.check(by_bus=True)
