"""Reads again what came for our runs while another agent had the bus and could only make dead letters of it.

Taking a message twice is harmless. A file in the store says that there may be such messages, so a crash loses none.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from agent_service.bus.messages import arrival_of
from agent_service.errors import Damaged
from agent_service.run.arrival import Arrival, Unreadable
from agent_service.run.intake import Intake
from groundwork.nats.consuming.settling import read_delivery
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain
from schemas import subjects

MARK = "missed"
ABOUT_RUNS = {subjects.STREAM_RESULTS: [subjects.TOOL_RESULT], subjects.STREAM: [subjects.CANCEL, subjects.SIGNAL]}
AT_ONCE = 256
QUIET_S = 5.0
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
        except* (nats.errors.Error, TimeoutError) as error:
            log.warning("what was missed is asked for again", extra={"why": str(error.exceptions[0])})
        else:
            log.info("heard what came while another agent had the bus", extra={"messages": heard})
            self._mark.unlink(missing_ok=True)
        return not self.any

    async def _hear(self, since: datetime) -> int:
        heard = 0
        async with asyncio.TaskGroup() as group:
            for stream in ABOUT_RUNS:
                async for arrival in _arrivals(self._link, stream, since):
                    await self._slots.acquire()
                    group.create_task(self._take(arrival)).add_done_callback(lambda _: self._slots.release())
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


async def _arrivals(link: NatsLink, stream: str, since: datetime) -> AsyncIterator[Arrival]:
    config = ConsumerConfig(
        filter_subjects=ABOUT_RUNS[stream],
        deliver_policy=DeliverPolicy.BY_START_TIME,
        opt_start_time=since,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=30.0,
    )
    pulled = await link.jetstream.pull_subscribe("", stream=stream, config=config)
    try:
        left = (await pulled.consumer_info()).num_pending or 0
        while left > 0:
            for message in await pulled.fetch(min(AT_ONCE, left), timeout=QUIET_S):
                left -= 1
                yield arrival_of(read_delivery(message))
    finally:
        await pulled.unsubscribe()
