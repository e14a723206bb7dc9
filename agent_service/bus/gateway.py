"""What is asked of the gateway over the bus, beside its tools: whether it would send to a callback, and what ails it.

A gateway that does not answer has nothing to tell: nothing waits for it.
"""

import asyncio
import json
import time

from pydantic import ValidationError

from groundwork.nats.link import NatsLink
from groundwork.service.errors import Failure
from schemas import subjects
from schemas.gateway_status import GatewayStatus

FLAW_WITHIN_S = 3.0
"""The gateway looks up the name, which may take it a second."""
FRESH_S = 10.0
STATUS_WITHIN_S = 3.5
"""A little longer than the gateway gives each thing that it looks at."""


class NatsCallbacks:
    """Asks anew each time: only a wake that names a callback does. Fills Callbacks."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def flaw(self, url: str) -> str:
        question = json.dumps({"url": url}).encode()
        try:
            told = json.loads(await self._link.request(subjects.CALLBACK, question, timeout_s=FLAW_WITHIN_S))
        except (Failure, ValueError):
            return ""
        flaw = told.get("flaw") if isinstance(told, dict) else None
        return flaw if isinstance(flaw, str) else ""


class NatsTroubles:
    """Asks at most every few seconds, for the gateway asks its Ductile in its turn. Fills Troubles."""

    def __init__(self, link: NatsLink, *, fresh_s: float = FRESH_S) -> None:
        self._link = link
        self._fresh_s = fresh_s
        self._told: GatewayStatus | None = None
        self._asked_at = float("-inf")
        self._asking = asyncio.Lock()

    async def of(self, executor: str, *, run_id: str, step: int) -> str:
        status = await self.status()
        if status is None or status.executor != executor:
            return ""
        waits = [call.why for call in status.waiting if (call.run_id, call.step) == (run_id, step)]
        return "; ".join(waits) or "; ".join(
            f"{found.name}: {found.text}" for found in status.findings if found.mark == "wrong"
        )

    async def status(self) -> GatewayStatus | None:
        """What the gateway says of itself; None where none answers."""
        async with self._asking:
            if time.monotonic() - self._asked_at > self._fresh_s:
                self._told = await self._ask()
                self._asked_at = time.monotonic()
            return self._told

    async def _ask(self) -> GatewayStatus | None:
        try:
            answer = await self._link.request(subjects.STATUS, b"", timeout_s=STATUS_WITHIN_S)
            return GatewayStatus.model_validate_json(answer)
        except (Failure, ValidationError):
            return None
