"""Waiting for what another process still holds and is about to leave: a lock on a folder, an address to listen on."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from groundwork.service.process_lock import AlreadyRunning, ProcessLock

T = TypeVar("T")

HAND_OVER_S = 15.0
"""How long to wait for a process that was taken over: it notices within two seconds, and gives up what is in hand."""
LOOK_S = 0.05

log = logging.getLogger(__name__)


async def once_free(take: Callable[[], T], *, within_s: float) -> T:
    """What `take` returns; while another holds it (OSError, AlreadyRunning) it is tried again for `within_s`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    told = False
    while True:
        try:
            return take()
        except (OSError, AlreadyRunning) as error:
            if loop.time() >= deadline:
                raise
            if not told:
                log.info("waiting", extra={"why": str(error), "at_most_s": within_s})
                told = True
            await asyncio.sleep(LOOK_S)


@contextlib.asynccontextmanager
async def locked(folder: Path, *, within_s: float) -> AsyncIterator[None]:
    """The existing folder for this process alone, once another that has it has left. Raises AlreadyRunning, OSError."""
    with contextlib.ExitStack() as held:
        await once_free(lambda: held.enter_context(ProcessLock(folder)), within_s=within_s)
        yield
