"""Follows jobs of a Ductile that outlived the deadlines of their calls, also across restarts: Ductile cannot cancel."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import NoReturn

from ductile_gateway.calls.call import Unknown, Verdict
from ductile_gateway.ductile.answers import Away
from ductile_gateway.ductile.jobs import Going
from ductile_gateway.ductile.watch import Job, Overdue, OverdueJob
from ductile_gateway.ports import Clock
from groundwork.service.errors import Broken, Misconfigured, TryAgain

FOR = timedelta(hours=24)
"""As long as Ductile keeps its jobs. Its attempts at one take a quarter of an hour."""

log = logging.getLogger(__name__)

Tell = Callable[[str, Verdict], Awaitable[bool]]
"""Takes the key of a call and what came of it after all; False while the call has no answer yet."""


Look = Callable[[Job], Awaitable[Going | Away | Verdict]]


class LateJobs:
    """Polls all overdue jobs every `every_s` seconds."""

    def __init__(self, look: Look, overdue: Overdue, *, every_s: float, clock: Clock) -> None:
        self._look_at = look
        self._overdue = overdue
        self._every_s = every_s
        self._clock = clock

    async def follow(self, tell: Tell) -> NoReturn:
        while True:
            try:
                for late in self._overdue.all():
                    await self._look_or_give_up(late, tell)
            except TryAgain as error:
                log.warning("late results are looked for again later", extra={"why": str(error)})
            await asyncio.sleep(self._every_s)

    def waiting(self) -> Mapping[str, int]:
        """How many, by the name of their Ductile."""
        return Counter(late.job.ductile for late in self._overdue.all())

    async def _look_or_give_up(self, late: OverdueJob, tell: Tell) -> None:
        try:
            await self._look(late, tell)
        except (TryAgain, Broken, Misconfigured):
            raise
        except Exception:  # what cannot be told now cannot be told in an hour
            log.exception("what came of a late job cannot be told", extra={"call": late.key, "job": late.job.job_id})
            await self._overdue.drop(late.key)

    async def _look(self, late: OverdueJob, tell: Tell) -> None:
        over = self._clock.now() >= late.since + FOR
        reading = await self._look_at(late.job)
        if isinstance(reading, Going | Away):
            if not over:
                return
            reading = Unknown(f"job {late.job.job_id} of Ductile had not ended {FOR} after the deadline")
        if await tell(late.key, reading) or over:
            await self._overdue.drop(late.key)
