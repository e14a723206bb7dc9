"""Work on one call that nobody waits for, done until it succeeds."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from groundwork.service.errors import Broken, Misconfigured, TryAgain

log = logging.getLogger(__name__)


async def insist(facts: Mapping[str, object], work: Callable[[], Awaitable[None]]) -> None:
    """Do it, again whenever it raises TryAgain. `facts`: what the log says of the call. Raises Broken or
    Misconfigured."""
    told = ""
    while True:
        try:
            return await work()
        except TryAgain as error:
            if str(error) != told:
                told = str(error)
                log.warning("to be tried again", extra={**facts, "why": told})
            await asyncio.sleep(error.delay_s)
        except (Broken, Misconfigured):
            raise
        except Exception:  # of one call, which the others must not pay for; its request comes again
            log.exception("a call could not be resumed", extra=dict(facts))
            return None
