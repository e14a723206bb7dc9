"""Tool requests from the gateway's consumer to the relay.

A message that can never be taken up goes to the dead letters; one that meets trouble of the gateway's own never does:
that ends the process, which resumes after its restart.
"""

from functools import partial

from ductile_gateway.calls.call import Asked, Unacceptable, read_request, route_of
from ductile_gateway.calls.relay import Relay
from ductile_gateway.calls.results import SOURCE
from ductile_gateway.trust import NotTheAgents, Trust
from groundwork.nats.link import NatsLink
from groundwork.nats.pull_loop import PullLoop
from groundwork.nats.settling import DeadLetters, Delivery, Notice, Settling
from groundwork.service.errors import TryAgain
from groundwork.service.machine import utc_now
from schemas import subjects
from schemas.envelope import RUN_ID, SIGNATURE, rejection

MOST_DOUBLINGS = 8


def requests_of(link: NatsLink, relay: Relay, *, trust: Trust | None, slots: int, grace_s: float) -> PullLoop:
    """The loop that consumes them: what has begun when it is cancelled has its grace to end. With `trust` only the
    agent has anything written."""

    async def handle(delivery: Delivery) -> None:
        try:
            asked = read_request(delivery.subject, delivery.body, delivery.headers)
        except Unacceptable:
            if relay.offers.serves(route_of(delivery.subject)):
                raise
            return
        if relay.offers.is_ours(asked):
            try:
                await relay.take(asked, partial(_check, relay, trust, asked, delivery))
            except TryAgain as error:
                # What keeps coming back comes back ever later, or waiting for a slow tool would cost more than it.
                delay = error.delay_s * 2 ** min(delivery.delivered - 1, MOST_DOUBLINGS)
                raise TryAgain(str(error), delay_s=delay) from error

    buried = DeadLetters(subjects.DEAD_LETTERS_TOOLS, notify=rejection_of)
    settling = Settling(link, subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS, handle, buried)
    return PullLoop(settling, slots=slots, grace_s=grace_s, on_stop=relay.begin_no_more)


async def _check(relay: Relay, trust: Trust | None, asked: Asked, delivery: Delivery) -> None:
    command = relay.offers.command(asked.request.tool, asked.request.tool_command)
    if trust and command and command.tier == "write":
        signature, again = delivery.headers.get(SIGNATURE), delivery.delivered > 1
        try:
            await trust.check(delivery.subject, delivery.body, signature, again=again)
        except NotTheAgents as error:
            raise Unacceptable(str(error)) from error
    relay.ownership.note_delivery(asked.key, delivery.delivered, delivery.at)


def rejection_of(delivery: Delivery, stream: str, reason: str) -> Notice:
    event, headers = rejection(delivery, stream=stream, reason=reason, source=SOURCE, at=utc_now())
    run_id = event.payload.run_id
    about, facts = ({RUN_ID: run_id}, {"run_id": run_id}) if run_id else ({}, {})
    return Notice(event.type, event.body(), event.dedupe_key or "", headers, about, facts)
