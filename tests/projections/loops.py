"""A projector at work, and waiting for a fact."""

import asyncio
from collections.abc import AsyncIterator
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
