"""Draining this process: it takes nothing new, ends what it has in hand, and then itself, as a signal would end it.

    begin ─▶ no message, no wake, no model call or tool request begins here ─▶ what is in hand ends ─▶ the process ends

A model call that is under way is paid for, so its reply is waited for and committed. What would follow from it is left
in the store: to another agent that shares it, which takes it over at once, or to the next start.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from agent_service.background import Background
from agent_service.brake import Brake

WHY = "this agent is being drained, and ends: ask another one, or this one once it was started again"
LOOK_S = 0.1
_end: Callable[[], None] = partial(signal.raise_signal, signal.SIGTERM)

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Draining:
    """`leave` ends listening to the bus, and gives what is in hand there so many seconds; `thinking` says how many
    model calls are under way. `end` ends the process."""

    brake: Brake
    background: Background
    leave: Callable[[float], Awaitable[None]]
    thinking: Callable[[], int]
    end: Callable[[], None] = field(default=_end)
    within_s: float = 0.0

    @property
    def begun(self) -> bool:
        return bool(self.brake.leaving)

    def begin(self, within_s: float, *, by: str) -> None:
        """What does not end `within_s` is given up, as at a stop. Asked again, nothing changes."""
        if self.begun:
            return
        self.brake.leaving, self.within_s = WHY, within_s
        log.warning("draining", extra={"by": by, "within_s": within_s, "model_calls": self.thinking()})
        self.background.start(self._drain())

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self.within_s):
                await self.leave(self.within_s)
                while self.thinking():  # noqa: ASYNC110 - each ends by a commit of its own
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            log.warning("given up", extra={"model_calls": self.thinking(), "after_s": self.within_s})
        self.end()
