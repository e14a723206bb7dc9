"""What a gateway says is wrong with it, such as a Ductile that does not answer: asked for over the bus.

Asked at most every few seconds, for it asks Ductile in its turn. Who answers no such question has no trouble to tell.
"""

import asyncio
import time

from pydantic import ValidationError

from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure
from schemas import subjects
from schemas.gateway_status import GatewayStatus

FRESH_S = 10.0
ANSWER_WITHIN_S = 3.5
"""A little longer than the gateway gives each thing that it looks at."""


class NatsTroubles:
    """Fills Troubles."""

    def __init__(self, link: NatsLink, *, fresh_s: float = FRESH_S) -> None:
        self._link = link
        self._fresh_s = fresh_s
        self._told: GatewayStatus | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def of(self, executor: str, *, run_id: str, step: int) -> str:
        async with self._asking:
            if time.monotonic() - self._asked_at > self._fresh_s:
                self._told = await self._ask()
                self._asked_at = time.monotonic()
        if self._told is None or self._told.executor != executor:
            return ""
        waits = [call.why for call in self._told.waiting if (call.run_id, call.step) == (run_id, step)]
        return "; ".join(waits) or "; ".join(
            f"{found.name}: {found.text}" for found in self._told.findings if found.mark == "wrong"
        )

    async def _ask(self) -> GatewayStatus | None:
        try:
            answer = await self._link.request(subjects.STATUS, b"", timeout_s=ANSWER_WITHIN_S)
            return GatewayStatus.model_validate_json(answer)
        except (Failure, ValidationError):
            return None
