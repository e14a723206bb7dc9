"""Reads again what came for our runs while another agent had the bus and could only make dead letters of it.

Taking a message twice is harmless. A file in the store says that there may be such messages, so a crash loses none.
"""

import asyncio
import contextlib
import logging
from datetime import datetime
from pathlib import Path

from nats.js.api import ConsumerConfig, DeliverPolicy

from agent_service.bus.messages import arrival_of
from agent_service.bus.reading import deliveries
from agent_service.errors import Damaged
from agent_service.run.arrival import Arrival, Unreadable
from agent_service.run.intake import Intake
from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure, TryAgain
from schemas import subjects

MARK = "missed"
ABOUT_RUNS = {subjects.STREAM_RESULTS: [subjects.TOOL_RESULT], subjects.STREAM: [subjects.CANCEL, subjects.SIGNAL]}
AGAIN_S = 1.0

log = logging.getLogger(__name__)


class Missed:
    def __init__(self, link: NatsLink, intake: Intake, folder: Path, *, slots: int) -> None:
        self._link = link
        self._intake = intake
        self._mark = folder / MARK
        self._slots = asyncio.Semaphore(slots)

    @property
    def any(self) -> bool:
        return self._mark.exists()

    async def hear(self, since: datetime) -> None:
        while True:
            if await self._is_heard(since):
                return
            await asyncio.sleep(AGAIN_S)

    async def _is_heard(self, since: datetime) -> bool:
        try:
            heard = await self._hear(since)
        except* Failure as error:
            log.warning("what was missed is asked for again", extra={"why": str(error.exceptions[0])})
        else:
            log.info("heard what came while another agent had the bus", extra={"messages": heard})
            self._mark.unlink(missing_ok=True)
        return not self.any

    async def _hear(self, since: datetime) -> int:
        heard = 0
        start = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=since)
        async with asyncio.TaskGroup() as group:
            for stream in ABOUT_RUNS:
                async for delivery in deliveries(self._link, stream, ABOUT_RUNS[stream], start):
                    await self._slots.acquire()
                    taking = group.create_task(self._take(arrival_of(delivery)))
                    taking.add_done_callback(lambda _: self._slots.release())
                    heard += 1
        return heard

    async def _take(self, arrival: Arrival) -> None:
        with contextlib.suppress(Unreadable, Damaged):  # whoever had the bus has told its publisher
            while True:
                try:
                    await self._intake.receive(arrival)
                except TryAgain as error:
                    await asyncio.sleep(error.delay_s)
                else:
                    return
