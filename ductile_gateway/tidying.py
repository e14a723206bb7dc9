"""Forgetting what is old, now and then, for as long as the gateway lives."""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import NoReturn, Protocol

from ductile_gateway.errors import TryAgain
from ductile_gateway.ports import Clock

EVERY_S = 3600.0

log = logging.getLogger(__name__)


class Forgetful(Protocol):
    async def forget_before(self, instant: datetime) -> None: ...


async def keep_tidy(store: Forgetful, clock: Clock, age: timedelta, *, what: str) -> NoReturn:
    """Until cancelled. `what` is in the store, for the log. Raises Broken."""
    while True:
        try:
            await store.forget_before(clock.now() - age)
        except TryAgain as error:
            log.warning("old %s are kept for now", what, extra={"why": str(error)})
        await asyncio.sleep(EVERY_S)
