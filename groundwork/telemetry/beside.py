"""Work in a daemon thread, which holds up no end of the process."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


async def beside(work: Callable[[], bool], *, what: str) -> bool:
    """What `work` returns; False where it raises, which is logged with `what` was to be sent."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    returned = [False]

    def run() -> None:
        try:
            returned[0] = work()
        except Exception:
            log.exception("telemetry is not sent", extra={"what": what})
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it who waited
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=run, name=what, daemon=True).start()
    await done.wait()
    return returned[0]
