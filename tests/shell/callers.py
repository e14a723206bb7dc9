"""Callers of a pace, and a time that passes only when it is told to: no test of waiting has to wait."""

import asyncio
import heapq
from itertools import count

from agent_service.errors import ModelError
from agent_service.pace import Pace

CALLERS_LOOKED_AT = 50
"""Turns of the event loop that are more than enough for everybody who can go on to do so."""


class Time:
    """Seconds that pass only when they are told to; who sleeps is woken in the order of its instants."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + max(seconds, 1e-6), next(self._numbers), woken))
        await woken

    async def passes(self, seconds: float) -> None:
        """Let everything happen that happens within `seconds`."""
        until = self._now + seconds
        await settled()
        while self._sleepers and self._sleepers[0][0] <= until:
            self._now, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await settled()
        self._now = until


async def settled() -> None:
    for _ in range(CALLERS_LOOKED_AT):
        await asyncio.sleep(0)


class Callers:
    """Calls that ask a pace to be admitted, and what became of each."""

    def __init__(self, pace: Pace, time: Time) -> None:
        self._pace = pace
        self._time = time
        self.admitted: list[tuple[float, str]] = []
        """Seconds since the beginning, and the call's name, in the order of their admission."""
        self.refused: dict[str, ModelError] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._began = time.now()

    def ask(self, name: str, tokens: int = 0) -> None:
        self._tasks[name] = asyncio.ensure_future(self._ask(name, tokens))

    def give_up(self, name: str) -> None:
        self._tasks[name].cancel()

    @property
    def names(self) -> list[str]:
        return [name for _, name in self.admitted]

    @property
    def instants(self) -> list[float]:
        return [round(at, 2) for at, _ in self.admitted]

    async def _ask(self, name: str, tokens: int) -> None:
        try:
            await self._pace.admit(tokens)
        except ModelError as error:
            self.refused[name] = error
        else:
            self.admitted.append((self._time.now() - self._began, name))

    async def leave(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def begun(*, requests: int | None = None, tokens: int | None = None) -> tuple[Pace, Time, Callers]:
    time = Time()
    pace = Pace(requests_per_minute=requests, tokens_per_minute=tokens, now=time.now, sleep=time.sleep)
    return pace, time, Callers(pace, time)
