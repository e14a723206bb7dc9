"""The gateway on the bus: results out, requests in.

A request for another executor is acknowledged and left alone. A message that can never be taken up goes to the dead
letters; one that meets trouble of the gateway's own never does: that ends the process, which resumes after its restart.
"""

import asyncio
from datetime import UTC, datetime

from ductile_gateway.calls.asked import Asked, Unacceptable, read_request, route_of
from ductile_gateway.calls.inheritance import NOTHING, Inheritance
from ductile_gateway.calls.offers import Offers
from ductile_gateway.calls.relay import Relay
from ductile_gateway.calls.results import SOURCE
from ductile_gateway.errors import Misconfigured, TryAgain
from groundwork.nats.delivery import Delivery
from groundwork.nats.errors import NoSuchStream
from groundwork.nats.link import NatsLink
from groundwork.nats.pull_loop import PullLoop
from groundwork.nats.settling import DeadLetters, Notice, Settling
from groundwork.service.errors import GiveUp
from schemas import subjects
from schemas.headers import RUN_ID
from schemas.rejection import rejection

MOST_DOUBLINGS = 8
NO_STREAM_S = 2.0


class NatsBus:
    """Publishes through one link. Fills the port Bus."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link
        self.spoken = asyncio.Event()
        """Set once something was published that was not there before: a call has gone on."""

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        try:
            published = await self._link.publish(subject, body, msg_id=key, headers=headers)
        except NoSuchStream as error:  # it was there at the start: what was answered waits for it
            raise TryAgain(str(error), NO_STREAM_S) from error
        except GiveUp as error:  # a result that the bus will never take: no other may be lost like it
            raise Misconfigured(str(error)) from error
        if not published.duplicate:
            self.spoken.set()


class NatsRequests:
    """Feeds the relay from the gateway's consumer."""

    def __init__(
        self,
        link: NatsLink,
        relay: Relay,
        offers: Offers,
        *,
        slots: int,
        in_progress_s: float,
        grace_s: float,
        inheritance: Inheritance = NOTHING,
    ) -> None:
        self._relay = relay
        self._inheritance = inheritance
        self._offers = offers
        buried = DeadLetters(subjects.DEAD_LETTERS_TOOLS, notify=rejection_of)
        settling = Settling(link, subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS, self._handle, buried)
        self._loop = PullLoop(settling, slots=slots, in_progress_s=in_progress_s, grace_s=grace_s)

    async def run(self) -> None:
        """Consume until cancelled; what is under way then has its grace to end. Raises Broken or Misconfigured."""
        await self._loop.run()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            asked = read_request(delivery.subject, delivery.body, delivery.headers)
        except Unacceptable as error:
            if self._offers.serves(route_of(delivery.subject)):
                raise GiveUp(str(error)) from error
            return
        if self._offers.is_ours(asked):
            self._inheritance.heard(asked.key, delivered=delivery.delivered, at=delivery.at)
            await self._take(asked, delivered=delivery.delivered)

    async def _take(self, asked: Asked, *, delivered: int) -> None:
        try:
            await self._relay.take(asked)
        except Unacceptable as error:
            raise GiveUp(str(error)) from error
        except TryAgain as error:
            # What keeps coming back comes back ever later: or waiting for a slow tool would cost more than the tool.
            delay = error.delay_s * 2 ** min(delivered - 1, MOST_DOUBLINGS)
            raise TryAgain(str(error), delay_s=delay) from error


def rejection_of(delivery: Delivery, stream: str, reason: str) -> Notice:
    """What is told of a message that the gateway refuses. Raises ValueError for a rejection itself."""
    event, headers = rejection(delivery, stream=stream, reason=reason, source=SOURCE, at=datetime.now(UTC))
    about = {RUN_ID: event.payload.run_id} if event.payload.run_id else {}
    return Notice(event.type, event.body(), event.dedupe_key or "", headers, about)
