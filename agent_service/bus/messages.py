"""Publishes the agent's messages, and consumes those for it.

Starts, results, signals and cancels, and requests for children have a consumer each, so that a cancel waits for neither
goals nor turns.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from agent_service.background import Background
from agent_service.bus.dropped_results import DroppedResults
from agent_service.errors import Damaged
from agent_service.metrics.wakes import IncomingMetrics
from agent_service.run.children.executor import ChildRuns
from agent_service.run.inbound import CURRENT_MESSAGE, InboundMessage, InvalidMessage, UnknownRun, WorkMessage
from agent_service.run.intake import Intake
from agent_service.run.outbox import SOURCE
from agent_service.trust.proofs import Signing
from groundwork.nats.link import BUDGET_SECONDS, NatsLink
from groundwork.nats.publishing import StoredMessage
from groundwork.nats.pull_loop import PullLoop
from groundwork.nats.settling import DeadLetters, Delivery, Notice, Settler
from groundwork.service.errors import Failure, GiveUp, NoRoom, TryAgain
from groundwork.service.machine import new_uuid, utc_now
from schemas import subjects
from schemas.envelope import MSG_ID, RUN_ID, SIGNATURE, rejection, without_capability

SLOTS = 16
"""Concurrent messages per source, where they cause no turn."""
DRAINED_WITHIN_S = 30.0
POLL_S = 0.05
ANNOUNCED_WITHIN_S = 2.0
"""The announcement of a run is for observers only: it is skipped if queued starts fill their stream."""
UNKNOWN_RUN_DELAYS_S = (0.2, 0.4, 0.8, 1.6, 2.0)
"""A message may come before the start of its run; it keeps its place in the consumer while it waits."""
MOST_DROPPED = 32
"""Concurrent results that the stream dropped; further ones are ignored."""
LONGEST_ID = 200

log = logging.getLogger(__name__)


class MessageSource(NamedTuple):
    stream: str
    durable: str
    dead_letters: str


STARTS = MessageSource(subjects.STREAM_STARTS, subjects.DURABLE_STARTS, subjects.DEAD_LETTERS_LOOP)
RESULTS = MessageSource(subjects.STREAM_RESULTS, subjects.DURABLE_LOOP, subjects.DEAD_LETTERS_LOOP)
CONTROL = MessageSource(subjects.STREAM, subjects.DURABLE_CONTROL, subjects.DEAD_LETTERS_CONTROL)
CHILDREN = MessageSource(subjects.STREAM_REQUESTS, subjects.DURABLE_CHILDREN, subjects.DEAD_LETTERS_LOOP)
TURNS = MessageSource(subjects.STREAM_TURNS, subjects.DURABLE_TURNS, subjects.DEAD_LETTERS_LOOP)
"""Only where several agents share a store."""


class NatsPublisher:
    def __init__(self, link: NatsLink, signing: Signing | None = None, *, shared: bool = False) -> None:
        """`shared`: WAKE_ACCEPTED waits for its acknowledgement, because a stream without a leader loses messages."""
        self._link = link
        self._signing = signing
        self._confirmed = frozenset({subjects.WAKE_ACCEPTED} if shared else ())

    async def publish(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        announces = subject == subjects.START
        try:
            within_s = ANNOUNCED_WITHIN_S if announces else BUDGET_SECONDS
            is_same = partial(self._is_same, subject, body, headers)
            await self._link.publish(subject, body, msg_id=key, headers=headers, within_s=within_s, is_same=is_same)
        except Failure as error:
            if announces and isinstance(error, NoRoom):
                log.warning("a run begins without being announced", extra={"why": str(error)})
                return
            raise TryAgain(str(error)) from error  # the outbox keeps the message while a person repairs the bus

    def _is_same(self, subject: str, body: bytes, headers: Mapping[str, str], stored: StoredMessage) -> bool:
        if (stored.subject, without_capability(stored.body)) != (subject, without_capability(body)):
            return False
        if self._signing is None or SIGNATURE not in headers:
            return True
        return self._signing.verifies(stored.subject, stored.body, stored.headers.get(SIGNATURE))

    async def tell(self, subject: str, body: bytes, *, key: str, headers: dict[str, str]) -> None:
        if subject in self._confirmed:
            await self.publish(subject, body, key=key, headers=headers)
        else:
            await self._link.emit(subject, body, msg_id=key, headers=headers)


class MessageHandler(Protocol):
    async def receive(self, arrival: InboundMessage) -> None: ...


class NatsIntake:
    def __init__(
        self,
        link: NatsLink,
        intake: Intake,
        children: ChildRuns,
        background: Background,
        incoming: IncomingMetrics,
        *,
        slots: int,
        turns: MessageHandler | None,
    ) -> None:
        """`turns` handles queued turns; None unless several agents share the store."""
        self._link = link
        self._shared = turns is not None
        self._intake = intake
        self._background = background
        self._dropped = DroppedResults(self._take_dropped)
        self._dropped_in_hand = 0
        self._running: asyncio.Task[None] | None = None
        self._incoming = incoming
        handlers: dict[MessageSource, MessageHandler] = dict.fromkeys((STARTS, RESULTS, CONTROL), intake)
        self._handlers = handlers | {CHILDREN: children} | ({TURNS: turns} if turns else {})
        of_turns = dict.fromkeys((RESULTS, TURNS), slots)
        self._loops = {source: self._loop(source, slots=of_turns.get(source, SLOTS)) for source in self._handlers}

    @property
    def trouble(self) -> str:
        return "; ".join(dict.fromkeys(loop.trouble for loop in self._loops.values() if loop.trouble))

    async def run(self) -> None:
        """Consumes until cancelled, or stopped by `leave`. Raises Fatal if the agent cannot go on (a failing disk)."""
        await self._dropped.listen(self._link)
        self._running = asyncio.current_task()
        async with asyncio.TaskGroup() as group:
            for loop in self._loops.values():
                group.create_task(loop.run())

    async def leave(self, within_s: float) -> None:
        if self._running:
            for loop in self._loops.values():
                loop.grace_s = within_s
            self._running.cancel()
            await asyncio.wait({self._running})

    async def recall(self, places: Iterable[str]) -> None:
        """Reads stored results again, so that dropped ones with their ids are recognised. Raises TryAgain."""
        for place in places:
            seq = place.partition("-")[0]
            if seq.isdecimal() and (stored := await self._link.stored(RESULTS.stream, int(seq))):
                self._dropped.recall(stored)

    async def drain(self, source: MessageSource) -> None:
        """Waits up to DRAINED_WITHIN_S until all pending messages of the source are in hand."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAINED_WITHIN_S):
                while not await self._has_all_in_hand(source):  # noqa: ASYNC110 - the server only answers requests
                    await asyncio.sleep(POLL_S)

    async def _has_all_in_hand(self, source: MessageSource) -> bool:
        try:
            info = await self._link.ask_jetstream(f"CONSUMER.INFO.{source.stream}.{source.durable}")
        except Failure:
            return False
        # Messages of a predecessor count until they are redelivered here.
        all_here = info.get("num_ack_pending", 0) <= self._loops[source].in_hand
        return info.get("num_pending") == 0 and (self._shared or all_here)

    def _loop(self, source: MessageSource, *, slots: int) -> PullLoop:
        buried = DeadLetters(source.dead_letters, notify=self._reject)
        settling = Settler(self._link, source.stream, source.durable, partial(self._handle, source), buried)
        return PullLoop(settling, slots=slots)

    async def _handle(self, source: MessageSource, delivery: Delivery) -> None:
        """Raises TryAgain and GiveUp."""
        if delivery.subject == subjects.TOOL_RESULT:
            self._dropped.delivered(delivery)
        failure: Exception | None = None
        began = time.perf_counter()
        CURRENT_MESSAGE.set(message_of(source, delivery))  # each message has its own task
        try:
            await self._handlers[source].receive(arrival_of(delivery))
        except Exception as error:  # any error is counted
            failure = await self._failure(delivery, error)
            if failure is error:
                raise
            if failure:
                raise failure from error
        finally:
            self._incoming.handled(delivery.subject, time.perf_counter() - began, failure)

    async def _failure(self, delivery: Delivery, error: Exception) -> Exception | None:
        """The error that settles the message; None if it is dropped."""
        if isinstance(error, UnknownRun):
            if await self._intake.turns.tombstone(error.run_id):
                facts = {"run_id": error.run_id, "subject": delivery.subject}
                log.info("a message is dropped: its run is kept no longer", extra=facts)
                return None
            tried = delivery.delivered - 1
            is_late = tried >= len(UNKNOWN_RUN_DELAYS_S)
            return GiveUp(str(error)) if is_late else TryAgain(str(error), delay_s=UNKNOWN_RUN_DELAYS_S[tried])
        return GiveUp(str(error)) if isinstance(error, InvalidMessage | Damaged) else error

    def _take_dropped(self, msg_id: str, body: bytes) -> None:
        if self._dropped_in_hand == MOST_DROPPED:
            return
        log.warning("a result was not stored: another message has its id", extra={"msg_id": msg_id[:LONGEST_ID]})
        self._dropped_in_hand += 1
        place = f"heard-{new_uuid().hex}"
        self._background.start(
            self._receive_dropped(InboundMessage(subject=subjects.TOOL_RESULT, body=body, place=place))
        )

    async def _receive_dropped(self, arrival: InboundMessage) -> None:
        try:
            await self._intake.receive(arrival)
        except (InvalidMessage, Damaged) as error:
            log.warning("a result that was not stored is refused", extra={"why": str(error)})
        finally:
            self._dropped_in_hand -= 1

    def _reject(self, delivery: Delivery, stream: str, reason: str) -> Notice:
        self._incoming.rejected.add()
        event, headers = rejection(delivery, stream=stream, reason=reason, source=SOURCE, at=utc_now())
        run_id = event.payload.run_id
        about, facts = ({RUN_ID: run_id}, {"run_id": run_id}) if run_id else ({}, {})
        return Notice(event.type, event.body(), event.dedupe_key or "", headers, about, facts)


def message_of(source: MessageSource, delivery: Delivery) -> WorkMessage:
    place = _place(delivery)
    if source is TURNS:
        return WorkMessage.of_turn(delivery.headers.get(MSG_ID, ""), place, delivery.delivered)
    return WorkMessage(name=f"{source.durable}/{place}", delivered=delivery.delivered)


def arrival_of(delivery: Delivery) -> InboundMessage:
    place = _place(delivery)
    return InboundMessage(
        subject=delivery.subject, body=delivery.body, place=place, headers=delivery.headers, at=delivery.at
    )


def _place(delivery: Delivery) -> str:
    # a server that lost its newest messages reuses their sequences
    return f"{delivery.seq}-{delivery.at:%Y%m%dT%H%M%S%f}"
