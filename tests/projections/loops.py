"""A projector at work, and waiting for a fact."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from agent_service.telling.folder.projector import Projector


@asynccontextmanager
async def running(projector: Projector) -> AsyncIterator[Projector]:
    work = asyncio.create_task(projector.run())
    try:
        yield projector
        assert not work.done(), "the projector stopped by itself"
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def until(fact: Callable[[], object], within_s: float = 10.0) -> None:
    """Wait until `fact` holds."""
    deadline = time.monotonic() + within_s
    while not fact():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.005)
