"""Reports messages in hand as in progress, in time; and asks back what the server takes to be in hand here and is not.

After a kill -9 that is all that was in hand; after one of the server, what it noted as delivered and never sent. Each
sequence from the acknowledgement floor to the newest delivered one that is not in hand is answered with -NAK: the
server delivers again what was not acknowledged, and ignores the rest. The consumer reset of nats-server 2.14 (ADR-60)
forgets what was acknowledged above the floor. Never on a shared consumer: it would take what another process has in
hand.
"""

import asyncio
import logging
from collections.abc import Callable, Container, Iterable
from typing import Any, NoReturn

from groundwork.nats.consuming.settling import IN_PROGRESS, NAK
from groundwork.nats.link import NatsLink
from groundwork.service.errors import TryAgain

TIMES = 3
UNTIL_KNOWN_S = 1.0
ASK_WITHIN_S = 1.0


class Holding:
    """Of one consumer, three times in its ack_wait. `replies`: where to say so for each message in hand."""

    def __init__(self, link: NatsLink, stream: str, durable: str, replies: Callable[[], Iterable[str]]) -> None:
        self._link = link
        self._question = f"CONSUMER.INFO.{stream}.{durable}"
        self._replies = replies
        self._every_s = UNTIL_KNOWN_S
        self._asked_at: int | None = None

    async def keep(self) -> NoReturn:
        while True:
            if self._asked_at != self._link.reconnects:
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
            info = await self._link.ask_jetstream(self._question, timeout_s=ASK_WITHIN_S)
        except TryAgain:
            return
        if ack_wait_ns := info.get("config", {}).get("ack_wait"):
            self._every_s, self._asked_at = ack_wait_ns / 1e9 / TIMES, asked_at


MOST_QUESTIONS = 10
"""Electing a new leader of the consumer takes 4 to 9 s."""
AT_ONCE = 1000

log = logging.getLogger(__name__)


class TakingBack:
    """For one consumer. `begin` when the server may take for in hand what is not; it is so at first."""

    def __init__(self, link: NatsLink, stream: str, durable: str, *, sole: bool = True) -> None:
        self._link = link
        self._name = f"{stream}.{durable}"
        self._most = MOST_QUESTIONS if sole else 0
        self.questions = self._most

    def begin(self) -> None:
        self.questions = self._most

    async def take_back(self, in_hand: Container[int]) -> None:
        """Have redelivered what is not `in_hand` here, by its sequence. Due again where the server does not answer."""
        self.questions -= 1
        try:
            info = await self._link.ask_jetstream(f"CONSUMER.INFO.{self._name}", timeout_s=ASK_WITHIN_S)
        except TryAgain as error:
            self._put_off(error)
        else:
            self.questions = 0
            if info.get("num_ack_pending"):
                await self._ask_back(info, in_hand)

    def _put_off(self, error: TryAgain) -> None:
        denied = self._link.violation if self._name.lower() in self._link.violation else ""
        if denied:
            self.questions = 0
        if not self.questions:
            why = f"{denied}. Give this user the permission" if denied else error
            log.warning("%s: what was in hand before comes again only after ack_wait: %s", self._name, why)

    async def _ask_back(self, info: dict[str, Any], in_hand: Container[int]) -> None:
        # The server goes by the stream's sequence; the consumer's has to be one that it has given out.
        subject = f"$JS.ACK.{self._name}.1.{{}}.{info['delivered']['consumer_seq']}.0.0"
        first, last = info["ack_floor"]["stream_seq"] + 1, info["delivered"]["stream_seq"]
        for sequence in range(first, last + 1):
            if sequence not in in_hand:
                await self._link.send(subject.format(sequence), NAK)
            if sequence % AT_ONCE == 0:
                await asyncio.sleep(0)
        log.info("%s: asked back what was in hand before", self._name, extra={"messages": info["num_ack_pending"]})
