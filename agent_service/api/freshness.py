"""What is shown is as new as what any agent of the same store had committed when somebody asked.

Whoever was told by one agent that a run is accepted may ask another one for it. The copy that this one reads from comes
a little later than the log that all share, so it is waited for; not for long: where nobody can say how far the log has
come, what is known here is shown.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from groundwork.service.errors import TryAgain

WITHIN_S = 2.0

Fresh = Callable[[], Awaitable[None]]


async def at_once() -> None:
    """Who has a store of its own knows all that there is."""


class Freshness:
    def __init__(self, caught_up: Callable[[], Awaitable[None]], *, within_s: float = WITHIN_S) -> None:
        self._caught_up = caught_up
        self._within_s = within_s
        self._begun = 0
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        enough = self._begun + 1  # a look that has begun already may have been too early
        async with self._turn:
            if self._begun < enough:
                self._begun = enough
                with suppress(TryAgain, TimeoutError):
                    await asyncio.wait_for(self._caught_up(), self._within_s)
