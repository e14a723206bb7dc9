"""Ductile's stream of events, as a hint that a job may have ended: sooner than by looking, never instead of it.

Ductile cuts the stream every ten minutes, drops events that are not read at once and begins its ids anew with each
start: whenever the stream begins, all who wait look.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import NoReturn

from ductile_gateway.ductile.answers import Away, DuctileRefused, fields_of
from ductile_gateway.ductile.api import DuctileApi

SILENT_AT_MOST_S = 45.0
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
ENDINGS = frozenset({"job.completed", "job.failed", "job.timed_out", "job.skipped", "job.retry_exhausted"})

log = logging.getLogger(__name__)


class DuctileEvents:
    """One stream for all who wait. `follow` has to run beside them."""

    def __init__(self, api: DuctileApi) -> None:
        self._api = api
        self._waiting: dict[str, asyncio.Event] = {}

    @contextlib.contextmanager
    def of(self, job_id: str) -> Iterator[asyncio.Event]:
        hint = self._waiting.setdefault(job_id, asyncio.Event())
        try:
            yield hint
        finally:
            self._waiting.pop(job_id, None)

    async def follow(self) -> None:
        """Follow the stream until cancelled, or until the token turns out not to allow it. Errors are logged."""
        try:
            await self._follow()
        except DuctileRefused as refusal:
            log.warning("jobs are looked at without Ductile's events", extra={"why": str(refusal)})
        except Exception:
            log.exception("jobs are looked at without Ductile's events: reading them failed")

    async def _follow(self) -> NoReturn:
        pause_s, clock = SHORTEST_PAUSE_S, asyncio.get_running_loop()
        while True:
            begun_at = clock.time()
            with contextlib.suppress(Away):
                await self._listen()
            has_lasted = clock.time() - begun_at >= LONGEST_PAUSE_S
            pause_s = SHORTEST_PAUSE_S if has_lasted else min(2 * pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def _listen(self) -> None:
        async with self._api.events(silent_s=SILENT_AT_MOST_S) as stream:
            for hint in self._waiting.values():
                hint.set()
            async for event in stream:
                job_id = fields_of(event.data.encode()).get("job_id") if event.event in ENDINGS else None
                if isinstance(job_id, str) and job_id in self._waiting:
                    self._waiting[job_id].set()
