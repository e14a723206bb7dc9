"""Whether the Ductile that carries out the calls is there: asked every few seconds, told once when that changes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from ductile_gateway.ductile.answers import Away
from ductile_gateway.ductile.api import DuctileApi, open_api
from ductile_gateway.ductile.settings import DuctileSettings
from groundwork.service.outage import Outage

LOOK_S = 2.0
ANSWER_WITHIN_S = 5.0

log = logging.getLogger(__name__)


class DuctileHealth:
    """Of one Ductile. `follow` has to run beside whoever asks."""

    def __init__(self, settings: DuctileSettings) -> None:
        self._settings = settings
        self._outage = Outage(settings.label.capitalize(), log)
        self._seen = False
        self.queue: int | None = None
        """Jobs waiting or running there; None while that is not known."""

    @property
    def trouble(self) -> str:
        """Why it is not to be reached, or that this is not known yet; empty while it is there."""
        return self._outage.why if self._seen else "it was not asked yet"

    async def follow(self, *, head_start: Callable[[], Awaitable[None]]) -> NoReturn:
        """Ask again and again, until cancelled; for the first time after the head start of what is under way."""
        await head_start()
        async with open_api(self._settings) as api:
            while True:
                await self._look(api)
                self._seen = True
                await asyncio.sleep(LOOK_S)

    async def _look(self, api: DuctileApi) -> None:
        self.queue = None
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                found = await api.health()
        except TimeoutError:
            self._outage.goes_on(f"the Ductile at {self._settings.url} did not answer within {ANSWER_WITHIN_S:g} s")
        except Away as error:
            self._outage.goes_on(str(error))
        else:
            self._outage.over()
            depth = found.get("queue_depth")
            self.queue = depth if isinstance(depth, int) else None
