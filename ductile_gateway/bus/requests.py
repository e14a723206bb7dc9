"""Tool requests from the gateway's consumer to the relay.

A request for another executor is acknowledged and left alone. A message that can never be taken up goes to the dead
letters; one that meets trouble of the gateway's own never does: that ends the process, which resumes after its restart.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from ductile_gateway.calls.call import Asked, Unacceptable, read_request, route_of
from ductile_gateway.calls.relay import Relay
from ductile_gateway.calls.results import SOURCE
from ductile_gateway.tools.catalog import Offers
from groundwork.nats.delivery import Delivery
from groundwork.nats.link import NatsLink
from groundwork.nats.pull_loop import PullLoop
from groundwork.nats.settling import DeadLetters, Notice, Settling
from groundwork.service.errors import TryAgain
from schemas import subjects
from schemas.headers import RUN_ID
from schemas.rejection import rejection

MOST_DOUBLINGS = 8

Heard = Callable[[str, int, datetime], None]
"""Takes the key of a call, for the how-many-th time its request was delivered, and when it was stored."""


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
        heard: Heard | None = None,
    ) -> None:
        self._relay = relay
        self._heard = heard
        self._offers = offers
        buried = DeadLetters(subjects.DEAD_LETTERS_TOOLS, notify=rejection_of)
        settling = Settling(link, subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS, self._handle, buried)
        self._loop = PullLoop(settling, slots=slots, in_progress_s=in_progress_s, grace_s=grace_s)

    @property
    def trouble(self) -> str:
        """Why no request can come at present; empty if they can."""
        return self._loop.trouble

    async def run(self) -> None:
        """Consume until cancelled; what is under way then has its grace to end. Raises Broken or Misconfigured."""
        await self._loop.run()

    async def _handle(self, delivery: Delivery) -> None:
        try:
            asked = read_request(delivery.subject, delivery.body, delivery.headers)
        except Unacceptable:
            if self._offers.serves(route_of(delivery.subject)):
                raise
            return
        if self._offers.is_ours(asked):
            if self._heard:
                self._heard(asked.key, delivery.delivered, delivery.at)
            await self._take(asked, delivered=delivery.delivered)

    async def _take(self, asked: Asked, *, delivered: int) -> None:
        try:
            await self._relay.take(asked)
        except TryAgain as error:
            # What keeps coming back comes back ever later: or waiting for a slow tool would cost more than the tool.
            delay = error.delay_s * 2 ** min(delivered - 1, MOST_DOUBLINGS)
            raise TryAgain(str(error), delay_s=delay) from error


def rejection_of(delivery: Delivery, stream: str, reason: str) -> Notice:
    """What is told of a message that the gateway refuses. Raises ValueError for a rejection itself."""
    event, headers = rejection(delivery, stream=stream, reason=reason, source=SOURCE, at=datetime.now(UTC))
    about = {RUN_ID: event.payload.run_id} if event.payload.run_id else {}
    return Notice(event.type, event.body(), event.dedupe_key or "", headers, about)
