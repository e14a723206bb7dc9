"""What the gateway hears of runs on the bus, asks about them, and where it buries undeliverable notifications.

A missing consumer stops nothing else: the log says what to do, and it is used as soon as it exists.
"""

import json
import logging
from collections.abc import Awaitable, Callable

from ductile_gateway.bus.requests import rejection_of
from ductile_gateway.outbound.lifecycle import LifecycleEvent, Unreadable, read_event
from ductile_gateway.outbound.notifications import Notification
from ductile_gateway.trust import NotTheAgents, Trust
from groundwork.nats.consuming.pull_loop import PullLoop
from groundwork.nats.consuming.settling import DeadLetters, Delivery, Settling
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Refused
from groundwork.service.errors import Failure, GiveUp, Misconfigured, TryAgain
from schemas import envelope as headers
from schemas import subjects

SLOTS = 16
ANSWER_WITHIN_S = 2.0
ASK_AGAIN_S = 2.0

Take = Callable[[LifecycleEvent], Awaitable[None]]

log = logging.getLogger(__name__)


class NatsLifecycle:
    """A message is acknowledged when `take` has returned. Only the agent's own word (`trust`) is read."""

    def __init__(
        self, link: NatsLink, stream: str, durable: str, *, trust: Trust, take: Take, sole: bool = True
    ) -> None:
        """`sole`: no other gateway consumes here."""
        self._sole = sole
        self._link = link
        self._stream = stream
        self._durable = durable
        self._trust = trust
        self._take = take

    async def run(self) -> None:
        buried = DeadLetters(subjects.DEAD_LETTERS_OUTBOUND, notify=rejection_of)
        settling = Settling(self._link, self._stream, self._durable, self._handle, buried)
        await PullLoop(settling, slots=SLOTS, sole=self._sole).run()

    async def _handle(self, delivery: Delivery) -> None:
        signature, again = delivery.headers.get(headers.SIGNATURE), delivery.delivered > 1
        if signature is None and delivery.subject == subjects.PROGRESS:
            return  # said before the agent knew that it is sent on, which costs it a signature each time
        try:
            await self._trust.check(delivery.subject, delivery.body, signature, again=again)
            await self._take(read_event(delivery.subject, delivery.body, at=delivery.at))
        except (NotTheAgents, Unreadable) as error:
            raise GiveUp(str(error)) from error


class NatsCallbacks:
    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def of(self, run_id: str) -> str | None:
        question = json.dumps({"run_id": run_id}).encode()
        try:
            told = json.loads(await self._link.request(subjects.RUN_CALLBACK, question, timeout_s=ANSWER_WITHIN_S))
            callback = told["callback"]
        except (Failure, ValueError, KeyError, TypeError) as error:  # no agent, or one that cannot say it now
            raise TryAgain(f"no agent says where run {run_id} wants to be told of", ASK_AGAIN_S) from error
        return callback if isinstance(callback, str) else None


class NatsDeadLetters:
    def __init__(self, link: NatsLink) -> None:
        self._link = link

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
