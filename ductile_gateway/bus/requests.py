"""Tool requests from the gateway's consumer to the relay.

A message that can never be taken up goes to the dead letters; one that meets trouble of the gateway's own never does:
that ends the process, which resumes after its restart.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial

from ductile_gateway.calls.call import Asked, Unacceptable, read_request, route_of
from ductile_gateway.calls.relay import Relay
from ductile_gateway.calls.results import SOURCE
from ductile_gateway.tools.catalog import Offers
from ductile_gateway.trust import NotTheAgents, Trust
from groundwork.nats.link import NatsLink
from groundwork.nats.pull_loop import PullLoop
from groundwork.nats.settling import DeadLetters, Delivery, Notice, Settling
from groundwork.service.errors import TryAgain
from groundwork.service.machine import utc_now
from schemas import subjects
from schemas.envelope import RUN_ID, SIGNATURE, rejection
from schemas.values import dataclass

MOST_DOUBLINGS = 8

NoteDelivery = Callable[[str, int, datetime], None]
"""Takes the key of a call, for the how-many-th time its request was delivered, and when it was stored."""


def requests_of(
    link: NatsLink,
    relay: Relay,
    offers: Offers,
    *,
    trust: Trust | None,
    note_delivery: NoteDelivery,
    slots: int,
    grace_s: float,
) -> PullLoop:
    """The loop that consumes them: what has begun when it is cancelled has its grace to end. With `trust` only the
    agent has anything written. `note_delivery`: before a request is taken up."""
    handling = _Handling(relay, offers, trust, note_delivery)
    buried = DeadLetters(subjects.DEAD_LETTERS_TOOLS, notify=rejection_of)
    settling = Settling(link, subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS, handling.handle, buried)
    return PullLoop(settling, slots=slots, grace_s=grace_s, on_stop=relay.begin_no_more)


@dataclass(frozen=True, slots=True)
class _Handling:
    _relay: Relay
    _offers: Offers
    _trust: Trust | None
    _note_delivery: NoteDelivery

    async def handle(self, delivery: Delivery) -> None:
        try:
            asked = read_request(delivery.subject, delivery.body, delivery.headers)
        except Unacceptable:
            if self._offers.serves(route_of(delivery.subject)):
                raise
            return
        if self._offers.is_ours(asked):
            try:
                await self._relay.take(asked, partial(self._check, asked, delivery))
            except TryAgain as error:
                # What keeps coming back comes back ever later, or waiting for a slow tool would cost more than it.
                delay = error.delay_s * 2 ** min(delivery.delivered - 1, MOST_DOUBLINGS)
                raise TryAgain(str(error), delay_s=delay) from error

    async def _check(self, asked: Asked, delivery: Delivery) -> None:
        command = self._offers.command(asked.request.tool, asked.request.tool_command)
        if self._trust and command and command.tier == "write":
            signature, again = delivery.headers.get(SIGNATURE), delivery.delivered > 1
            try:
                await self._trust.check(delivery.subject, delivery.body, signature, again=again)
            except NotTheAgents as error:
                raise Unacceptable(str(error)) from error
        self._note_delivery(asked.key, delivery.delivered, delivery.at)


def rejection_of(delivery: Delivery, stream: str, reason: str) -> Notice:
    event, headers = rejection(delivery, stream=stream, reason=reason, source=SOURCE, at=utc_now())
    run_id = event.payload.run_id
    about, facts = ({RUN_ID: run_id}, {"run_id": run_id}) if run_id else ({}, {})
    return Notice(event.type, event.body(), event.dedupe_key or "", headers, about, facts)
