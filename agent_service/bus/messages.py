"""Consumes the messages for the agent.

Starts, results, signals and cancels, and requests for children have a consumer each, so that a cancel waits for neither
goals nor turns.

The stream drops a result as a duplicate although another message took its id. So results are also read over core NATS
and compared with the stored message of the same id. A different one is handled as any other result. It is not stored:
after a crash the run asks again at the next start, which recalls the stored messages. Of several agents, the one that
the stored message was delivered to compares; the others forget.
"""

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Any

from nats.aio.msg import Msg

from agent_service.errors import Damaged, NewerVersion
from agent_service.run.inbound import CURRENT_MESSAGE, InboundMessage, InvalidMessage, UnknownRun
from agent_service.run.outbox import SOURCE
from agent_service.run.recovery import Recovery
from groundwork.nats.dead_letters import Notice
from groundwork.nats.link import NatsLink
from groundwork.nats.publishing import Delivery, StoredMessage
from groundwork.nats.pull_loop import PullLoop
from groundwork.service.errors import Failure, GiveUp, TryAgain, patiently
from groundwork.service.machine import new_uuid, utc_now
from schemas import subjects
from schemas.bounded import json_object
from schemas.envelope import MSG_ID, rejection

SLOTS = 16
"""Concurrent messages per consumer, where they cause no turn."""
DRAINED_WITHIN_S, PEOPLE_FIRST_S = 30.0, 2.0
"""The second for signals and cancels at the start: one for an unknown run is put off some seconds."""
ANSWERED_WITHIN_S, NEW_BUS_S = 600.0, 30.0
"""Longest waits for the answers of a gateway, and for one on a bus where none has been: it may be a rebuilt bus."""
POLL_S, ANSWERS_POLL_S = 0.05, 1.0
UNKNOWN_RUN_DELAYS_S = (0.2, 0.4, 0.8, 1.6, 2.0)
"""A message may come before the start of its run; it keeps its place in the consumer while it waits."""
MOST_DROPPED = 32
"""Concurrent results that the stream dropped; further ones are ignored."""
REMEMBERED = 10_000
MOST_WAITING = 1000
MOST_UNDER_ONE_ID = 4
LONGEST_ID = 1024
MOST_WAITING_BYTES = 16 * 1024 * 1024
"""Bound of all waiting bodies: an executor may send megabytes under an id that is never delivered."""
SHOWN_ID = 200
STREAMS = {name: stream for name, (stream, _) in (subjects.CONSUMERS | subjects.SHARED_CONSUMERS).items()}
"""Stream of each consumer."""

log = logging.getLogger(__name__)


Receiver = Callable[[InboundMessage], Awaitable[None]]


class NatsIntake:
    def __init__(self, link: NatsLink, recovery: Recovery, *, turns: Receiver | None) -> None:
        """`turns` receives queued turns; None unless several agents share the store."""
        self._link = link
        self._shared = turns is not None
        self._recovery, recovery.hearing = recovery, self
        self._intake = recovery.intake
        self._dropped = DroppedResults(self._take_dropped)
        self._dropped_in_hand = 0
        self._running: asyncio.Task[None] | None = None
        self.people_heard = asyncio.Event()
        """Set when the signals and cancels that waited at the start are in hand."""
        receivers: dict[str, Receiver] = dict.fromkeys(subjects.AGENT_CONSUMERS, recovery.intake.receive)
        receivers[subjects.DURABLE_CHILDREN] = recovery.children.receive
        if turns:
            receivers[subjects.DURABLE_TURNS] = turns
        of_turns = dict.fromkeys((subjects.DURABLE_LOOP, subjects.DURABLE_TURNS), recovery.slots)
        self._loops = {name: self._loop(name, receivers[name], of_turns.get(name, SLOTS)) for name in receivers}

    @property
    def trouble(self) -> str:
        return "; ".join(dict.fromkeys(loop.trouble for loop in self._loops.values() if loop.trouble))

    async def run(self) -> None:
        """Consumes until cancelled, or stopped by `leave`. Raises Fatal if the agent cannot go on (a failing disk)."""
        await self._link.subscribe(subjects.TOOL_RESULT, self._dropped.hear)
        self._running = asyncio.current_task()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loops[subjects.DURABLE_CONTROL].run())
            await self._drain(subjects.DURABLE_CONTROL, within_s=PEOPLE_FIRST_S)
            self.people_heard.set()
            for durable in self._loops.keys() - {subjects.DURABLE_CONTROL}:
                group.create_task(self._loops[durable].run())

    async def leave(self, within_s: float) -> None:
        if self._running:
            for loop in self._loops.values():
                loop.grace_s = within_s
            self._running.cancel()
            await asyncio.wait({self._running})

    async def inform_bus(self, forgotten_at: datetime, now: datetime) -> None:
        """Publishes again what the bus may have lost at `forgotten_at`. Stored results are read again, so that dropped
        ones with their ids are recognised. Raises TryAgain.
        """
        places, unheard = await self._recovery.republish(forgotten_at, now)
        for place in places:
            seq = place.partition("-")[0]
            if seq.isdecimal() and (stored := await self._link.stored(subjects.STREAM_RESULTS, int(seq))):
                self._dropped.remember(stored, recalled=True)
        if unheard:
            await self._drain(subjects.DURABLE_LOOP)
            await self._recovery.retry_unheard(unheard, now)

    def is_there(self) -> bool:
        return self._link.connected

    async def drain(self) -> None:
        for durable in (subjects.DURABLE_LOOP, subjects.DURABLE_CONTROL):
            await self._drain(durable)

    async def await_executors(self) -> None:
        asked: int | None = None
        waited_s = 0.0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                while True:
                    with contextlib.suppress(TryAgain):
                        info = await self._info(subjects.DURABLE_TOOLS)
                        if not info["delivered"]["consumer_seq"] and waited_s >= NEW_BUS_S:
                            return  # no gateway has ever been here
                        if info["num_pending"] == 0:  # acknowledged: the result of each is on the bus
                            asked = info["delivered"]["stream_seq"] if asked is None else asked
                            if not info["num_ack_pending"] or info["ack_floor"]["stream_seq"] >= asked:
                                return
                    await asyncio.sleep(ANSWERS_POLL_S)
                    waited_s += ANSWERS_POLL_S

    async def _drain(self, durable: str, within_s: float = DRAINED_WITHIN_S) -> None:
        """Waits so long at most until all pending messages of the consumer are in hand."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not await self._has_all_in_hand(durable):  # noqa: ASYNC110 - the server only answers requests
                    await asyncio.sleep(POLL_S)

    async def _has_all_in_hand(self, durable: str) -> bool:
        try:
            info = await self._info(durable)
        except Failure:
            return False
        # Messages of a predecessor count until they are redelivered here.
        all_here = info.get("num_ack_pending", 0) <= self._loops[durable].in_hand
        return info.get("num_pending") == 0 and (self._shared or all_here)

    async def _info(self, durable: str) -> dict[str, Any]:
        """Raises TryAgain and BusRefused."""
        return await self._link.ask_jetstream(f"CONSUMER.INFO.{STREAMS[durable]}.{durable}")

    def _loop(self, durable: str, receive: Receiver, slots: int) -> PullLoop:
        controls = durable == subjects.DURABLE_CONTROL
        letters = subjects.DEAD_LETTERS_CONTROL if controls else subjects.DEAD_LETTERS_LOOP
        handle = partial(self._handle, durable, receive)
        dead_letters = letters, self._reject
        return PullLoop(self._link, STREAMS[durable], durable, handle, dead_letters=dead_letters, slots=slots)

    async def _handle(self, durable: str, receive: Receiver, delivery: Delivery) -> None:
        """Raises TryAgain and GiveUp."""
        if delivery.subject == subjects.TOOL_RESULT:
            self._dropped.remember(delivery)
        arrival = InboundMessage(
            subject=delivery.subject,
            body=delivery.body,
            place=f"{delivery.seq}-{delivery.at:%Y%m%dT%H%M%S%f}",  # a server that lost messages reuses their sequences
            headers=delivery.headers,
            at=delivery.at,
            consumer=durable,
            delivered=delivery.delivered,
        )
        CURRENT_MESSAGE.set(arrival)  # each message has its own task
        began = time.perf_counter()
        raised: BaseException | None = None
        try:
            try:
                await receive(arrival)
            except UnknownRun as error:
                await self._wait_for_run(error, delivery)
            except Damaged as error:
                raise GiveUp(str(error)) from error
        except BaseException as error:
            raised = error
            raise
        finally:
            self._intake.incoming.handled(delivery.subject, time.perf_counter() - began, raised)

    async def _wait_for_run(self, unknown: UnknownRun, delivery: Delivery) -> None:
        """Raises TryAgain, and later UnknownRun, unless the run was deleted."""
        if await self._intake.turns.store.tombstone(unknown.run_id):
            facts = {"run_id": unknown.run_id, "subject": delivery.subject}
            log.info("a message is dropped: its run is kept no longer", extra=facts)
        elif delivery.delivered > len(UNKNOWN_RUN_DELAYS_S):
            raise unknown
        else:
            raise TryAgain(str(unknown), delay_s=UNKNOWN_RUN_DELAYS_S[delivery.delivered - 1]) from unknown

    def _take_dropped(self, msg_id: str, body: bytes) -> None:
        facts = {"msg_id": msg_id[:SHOWN_ID]}
        if self._dropped_in_hand == MOST_DROPPED:
            log.warning("a result was not stored, and is ignored: too many others were not", extra=facts)
            return
        log.warning("a result was not stored: another message has its id", extra=facts)
        self._dropped_in_hand += 1
        place = f"heard-{new_uuid().hex}"
        arrival = InboundMessage(subject=subjects.TOOL_RESULT, body=body, place=place)
        self._recovery.background.start(self._receive_dropped, arrival)

    async def _receive_dropped(self, arrival: InboundMessage) -> None:
        try:
            await patiently(partial(self._receive_readable, arrival))
        except (InvalidMessage, Damaged) as error:
            log.warning("a result that was not stored is refused", extra={"why": str(error)})
        finally:
            self._dropped_in_hand -= 1

    async def _receive_readable(self, arrival: InboundMessage) -> None:
        try:
            await self._intake.receive(arrival)
        except NewerVersion as error:  # lasts until this agent is upgraded
            raise InvalidMessage(str(error)) from error

    def _reject(self, delivery: Delivery, stream: str, reason: str) -> Notice:
        self._intake.incoming.rejected.add()
        refused = delivery.subject, delivery.body, delivery.headers, delivery.seq
        return rejection(*refused, stream=stream, reason=reason, source=SOURCE, at=utc_now())


class DroppedResults:
    def __init__(self, dropped: Callable[[str, bytes], None]) -> None:
        self._dropped = dropped
        self._stored: OrderedDict[str, tuple[int, bool]] = OrderedDict()
        """By id: hash of the body, and true if such a body was heard."""
        self._waiting: OrderedDict[str, list[bytes]] = OrderedDict()
        self._bytes = 0

    def remember(self, stored: StoredMessage, *, recalled: bool = False) -> None:
        """`recalled`: from the stream, where a message that was heard is assumed to be the stored one."""
        msg_id, body = stored.headers.get(MSG_ID), stored.body
        if msg_id is None or len(msg_id) > LONGEST_ID or (recalled and msg_id in self._stored):
            return
        _, matched = self._stored.get(msg_id, (0, recalled))
        self._stored[msg_id] = hash(body), matched
        if len(self._stored) > REMEMBERED:
            self._stored.popitem(last=False)
        for waiting in self._waiting.pop(msg_id, ()):
            self._bytes -= len(waiting)
            self._compare(msg_id, waiting)

    async def hear(self, message: Msg) -> None:
        msg_id, body = (message.headers or {}).get(MSG_ID), message.data
        if msg_id is None or len(msg_id) > LONGEST_ID:
            return
        if msg_id in self._stored:
            self._compare(msg_id, body)
            return
        bodies = self._waiting.setdefault(msg_id, [])
        if body in bodies:
            return
        if len(bodies) == MOST_UNDER_ONE_ID:
            self._bytes -= len(bodies.pop())
        bodies.append(body)
        self._bytes += len(body)
        while len(self._waiting) > MOST_WAITING or self._bytes > MOST_WAITING_BYTES:
            self._bytes -= sum(map(len, self._waiting.popitem(last=False)[1]))

    def _compare(self, msg_id: str, body: bytes) -> None:
        stored, matched = self._stored[msg_id]
        if stored != hash(body) or (matched and not _names_attempt(body)):
            self._dropped(msg_id, body)
        else:
            self._stored[msg_id] = stored, True


def _names_attempt(body: bytes) -> bool:
    event = json_object(body) or {}
    payload = event.get("payload", event)
    return isinstance(payload, dict) and payload.get("attempt") is not None
