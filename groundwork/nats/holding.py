"""Keeps what is in hand from being delivered to anybody else: told to the server as in progress, in time.

How often follows from the consumer's ack_wait. Where several share a consumer it is read from the server, at first and
whenever the connection was away.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import NoReturn

from groundwork.nats.delivery import IN_PROGRESS
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain

TIMES = 3
"""In one ack_wait."""
UNTIL_KNOWN_S = 1.0
ASK_WITHIN_S = 1.0


class Holding:
    """Of one consumer. `replies`: where to say so for each message in hand. `every_s`: None to ask the consumer."""

    def __init__(
        self, link: NatsLink, stream: str, durable: str, replies: Callable[[], Iterable[str]], *, every_s: float | None
    ) -> None:
        self._link = link
        self._question = f"$JS.API.CONSUMER.INFO.{stream}.{durable}"
        self._replies = replies
        self._asks = every_s is None
        self._every_s = every_s or UNTIL_KNOWN_S
        self._asked_at: int | None = None

    async def keep(self) -> NoReturn:
        while True:
            if self._asks and self._asked_at != self._link.reconnects:
                await self._ask()
            await asyncio.sleep(self._every_s)
            await self.hold()

    async def hold(self) -> None:
        for reply in list(self._replies()):
            await self._link.send(reply, IN_PROGRESS)

    async def _ask(self) -> None:
        """Where the server does not say, it is asked again the next time, and what is known holds until then."""
        asked_at = self._link.reconnects
        try:
            info = json.loads(await self._link.request(self._question, b"", timeout_s=ASK_WITHIN_S))
        except TryAgain:
            return
        if ack_wait_ns := info.get("config", {}).get("ack_wait"):
            self._every_s, self._asked_at = ack_wait_ns / 1e9 / TIMES, asked_at
