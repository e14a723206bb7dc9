"""Waits for a run in its caller's place, by what is told when it is committed: until it rests in people's hands."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated

from fastapi import Query, Request

from agent_service.api.streams.channel import Channel
from agent_service.api.streams.events import EventStreams
from agent_service.core.state import RunState
from agent_service.core.waiting import Status

LONGEST_S = 300.0

Wait = Annotated[
    float,
    Query(
        ge=0,
        le=LONGEST_S,
        description="Answer once the run has ended, or waits for a person, and after so many seconds at the latest.",
    ),
]


class Awaiting:
    def __init__(self, streams: EventStreams) -> None:
        self._streams = streams

    async def slot(self, request: Request, wait: Wait = 0.0) -> AsyncIterator[None]:
        """A dependency that holds a slot for one who will wait. Refuses (429) before anything is done."""
        if not wait:
            yield
            return
        async for _ in self._streams.slots.take(request):
            yield

    async def rest(self, request: Request, run_id: str, within_s: float) -> None:
        """Return when the run rests, the agent stops, or `within_s` is over. Refuses (404) an id of no run."""
        if within_s:
            with self._streams.followed(run_id) as channel, suppress(TimeoutError):
                async with _while_there(request, within_s):
                    await self._rest(run_id, channel)

    async def _rest(self, run_id: str, channel: Channel) -> None:
        while True:
            seen = channel.newest
            if channel.ended or rests(channel.reached or await self._streams.state(run_id)):
                return
            while channel.newest == seen and not channel.ended:
                await channel.news()


def rests(run: RunState) -> bool:
    return run.final or run.status is Status.PAUSED


@asynccontextmanager
async def _while_there(request: Request, within_s: float) -> AsyncIterator[None]:
    """Raises TimeoutError after so many seconds, or when the caller has hung up."""

    async def hang_up() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        patience.reschedule(asyncio.get_running_loop().time())

    async with asyncio.timeout(within_s) as patience:
        listening = asyncio.create_task(hang_up())
        try:
            yield
        finally:
            listening.cancel()
