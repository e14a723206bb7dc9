"""What the gateway tells others, put together: it hears of runs on the bus, and sends what they are owed.

A missing consumer stops nothing else: the log says what to do, and it is used as soon as it exists.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from ductile_gateway.bus.ownership import Permits
from ductile_gateway.bus.requests import rejection_of
from ductile_gateway.ports import Look
from ductile_gateway.trust import NotTheAgents, Trust
from ductile_gateway.webhooks.notifications import LifecycleEvent, Notification, Unreadable, read_event
from ductile_gateway.webhooks.outbound import Outbound, Outbox, Told
from ductile_gateway.webhooks.outbound_settings import OutboundSettings
from ductile_gateway.webhooks.sender import open_sender
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Refused
from groundwork.nats.pull_loop import PullLoop
from groundwork.nats.settling import DeadLetters, Delivery, Settling
from groundwork.service import strict
from groundwork.service.errors import Failure, GiveUp, Misconfigured, TryAgain
from schemas import envelope as headers
from schemas import subjects

SLOTS = 16
ANSWER_WITHIN_S = 2.0
ASK_AGAIN_S = 2.0

Take = Callable[[LifecycleEvent], Awaitable[None]]

log = logging.getLogger(__name__)


async def serve_outbound(
    settings: OutboundSettings,
    link: NatsLink,
    outbox: Outbox,
    *,
    trust: Trust,
    looks: dict[str, Look],
    told: Told,
    permits: Permits | None,
) -> None:
    """Until cancelled; `told` of each try. One gateway takes the events, and sends what it took: of several with
    `permits` one at a time. Raises Misconfigured or Broken."""
    async with open_sender(settings) as sender, asyncio.TaskGroup() as group:
        outbound = Outbound(settings, outbox, sender, NatsOutboundBus(link), told)
        looks["outbound"] = outbound.findings
        hears = partial(hear, link, trust=trust, take=outbound.take)
        streams = {subjects.STREAM: subjects.DURABLE_LIFECYCLE}
        if settings.wants_progress():
            streams[subjects.STREAM_PROGRESS] = subjects.DURABLE_PROGRESS
        group.create_task(outbound.run())
        for stream, durable in streams.items():
            hearing = partial(hears, stream, durable)
            group.create_task(permits.as_one(f"events-{durable}", hearing) if permits else hearing())


async def hear(link: NatsLink, stream: str, durable: str, *, trust: Trust, take: Take) -> None:
    """A message is acknowledged when `take` has returned. Only the agent's own word (`trust`) is read."""

    async def handle(delivery: Delivery) -> None:
        signature, again = delivery.headers.get(headers.SIGNATURE), delivery.delivered > 1
        if signature is None and delivery.subject == subjects.PROGRESS:
            return  # said before the agent knew that it is sent on, which costs it a signature each time
        try:
            await trust.check(delivery.subject, delivery.body, signature, again=again)
            await take(read_event(delivery.subject, strict.read(delivery.body), at=delivery.at))
        except (NotTheAgents, Unreadable, strict.NotStrictJson) as error:
            raise GiveUp(str(error)) from error

    buried = DeadLetters(subjects.DEAD_LETTERS_OUTBOUND, notify=rejection_of)
    await PullLoop(Settling(link, stream, durable, handle, buried), slots=SLOTS).run()


class NatsOutboundBus:
    """Asks the agent about a run, and keeps what cannot be delivered. Fills the port OutboundBus."""

    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def callback_of(self, run_id: str) -> str | None:
        question = json.dumps({"run_id": run_id}).encode()
        try:
            answer = await self._link.request(subjects.RUN_CALLBACK, question, timeout_s=ANSWER_WITHIN_S)
            callback = json.loads(answer)["callback"]
        except (Failure, ValueError, KeyError, TypeError) as error:  # no agent, or one that cannot say it now
            raise TryAgain(f"no agent says where run {run_id} wants to be told of", ASK_AGAIN_S) from error
        return callback if isinstance(callback, str) else None

    async def bury(self, delivery: Notification, why: str) -> None:
        headers = {
            "Agentic-Run-Id": delivery.run_id,
            "Dead-Letter-Target": delivery.target,
            "Dead-Letter-Subject": delivery.type,
            "Dead-Letter-Key": delivery.key,
            "Dead-Letter-Deliveries": str(delivery.tries),
            "Dead-Letter-Reason": ascii(why)[1:-1][:500],
        }
        msg_id = f"dead:{delivery.target}:{delivery.key}"
        try:
            await self._link.publish(subjects.DEAD_LETTERS_OUTBOUND, delivery.body, msg_id=msg_id, headers=headers)
        except Refused as error:
            log.error("a dead letter is left out: the bus refuses it", extra={"why": str(error)})  # noqa: TRY400
        except Misconfigured as error:  # of the bus: no reason to stop telling others
            raise TryAgain(str(error)) from error
