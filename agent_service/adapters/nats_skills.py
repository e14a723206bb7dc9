"""The tool catalog, asked for over the bus from the gateway, and cut to what this agent allows."""

import asyncio
import logging
import time

from pydantic import ValidationError

from agent_service.errors import TryAgain
from groundwork import nats_errors
from groundwork.nats_link import NatsLink
from schemas import subjects
from schemas.catalog import Catalog, ToolOffer

FRESH_S = 5.0
ANSWER_WITHIN_S = 2.0

log = logging.getLogger(__name__)


class NatsSkills:
    """Remembers the newest catalog for a few seconds; while the gateway is away the last one is good. Fills Skills."""

    def __init__(self, link: NatsLink, *, allow: tuple[str, ...] | None) -> None:
        self._link = link
        self._allow = allow
        self._catalog: Catalog | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def catalog(self) -> Catalog:
        if self._stale():
            async with self._asking:
                if self._stale():
                    await self._ask()
        if self._catalog is None:
            raise TryAgain("the gateway has not told its tool catalog yet: is ductile-gateway running?")
        return self._catalog

    def _stale(self) -> bool:
        return time.monotonic() - self._asked_at > FRESH_S

    async def _ask(self) -> None:
        try:
            reply = await self._link.request(subjects.CATALOG, b"", timeout_s=ANSWER_WITHIN_S)
            told = Catalog.model_validate_json(reply)
        except (nats_errors.BusError, ValidationError) as error:
            log.warning("no tool catalog from the gateway", extra={"why": str(error)[:300]})
            if self._catalog is None:
                return
        else:
            self._catalog = told.model_copy(update={"tools": tuple(t for t in told.tools if self._allows(t))})
        self._asked_at = time.monotonic()

    def _allows(self, tool: ToolOffer) -> bool:
        return tool.route not in subjects.OUR_OWN_ROUTES and (self._allow is None or tool.name in self._allow)
