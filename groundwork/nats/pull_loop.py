"""The pull loop: gives the messages of one durable consumer to a handler, `slots` of them at once.

One pull is out at a time, for all free slots. It is given up after a reconnect, when its end does not arrive, and when
the consumer has a new leader, which does not know it: its messages are still taken, its end is not. The acknowledgement
comes last: delivery is at least once, and handlers must bear repetitions. What a dead process had in hand is delivered
again after the consumer's ack_wait; a process that has the consumer to itself asks for it at once.
"""

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Callable
from datetime import datetime

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from groundwork.nats.settling import IN_PROGRESS, NAK, Delivery, Settler, is_delivery, nak, read_delivery
from groundwork.service.errors import Failure, Fatal, Misconfigured, TryAgain
from groundwork.service.machine import this

EXPIRES_S, EXPIRES_ALONE_S, EXPIRES_AFTER_TROUBLE_S = 30.0, 5.0, 1.0
"""Duration of a pull. A process that has the consumer to itself takes half of its lease's: when it was stopped and
another begins, it is given nothing more. Long pulls of several processes save traffic. The end of a short one after one
that the server refused shows that the trouble is over."""
AHEAD = 8
"""Messages beyond those in hand that one of several processes asks for at most: the server gives them also to one that
is cut off, and only after ack_wait to another."""
LATE_S = 2.0
"""Seconds after the end of a pull until the server is assumed to have forgotten it."""
NEW_LEADER = "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED"
PAUSE_S = 0.25
"""Pause after a pull that could not be sent, or that the server refused."""
HOLD_SECONDS = 1.5
"""Interval of progress reports for messages in hand: a third of the consumers' ack_wait."""
GRACE_SECONDS = 5.0
LEAVE_SECONDS = 1.0
QUIET_SECONDS = 0.05
BROKEN_DELAY_S, BEYOND_DELAY_S = 1.0, 0.5
ASK_WITHIN_S = 1.0
TIMES_ASKED = 10
"""Electing a new leader of the consumer takes 4 to 9 s."""

UNANSWERED = "no server has this consumer: it is missing (`agentic setup` makes it), or waits for a leader"
_USUAL_ENDS = {"404", "408"}  # no messages, timeout

log = logging.getLogger(__name__)


class PullLoop:
    """Runs once. `on_stop` is called before the grace period begins."""

    def __init__(
        self,
        settler: Settler,
        *,
        slots: int,
        grace_s: float = GRACE_SECONDS,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._settler = settler
        self._consumer = f"{settler.stream}.{settler.durable}"
        self._link = settler.link
        self._inbox = self._link.client.new_inbox()
        self.grace_s = grace_s
        self._on_stop = on_stop
        self._slots, self._most = slots, slots if self._link.exclusive else min(slots, AHEAD)
        self._pull, self._to_come = "", 0
        """Reply subject of the newest pull, and the number of messages that it may still bring."""
        self._over = asyncio.Event()
        self._now = this().monotonic
        self._heard_at = self._now()
        self._trouble = ""
        # A sequence alone does not name a message: a server that lost its newest ones reuses their numbers.
        self._replies: dict[tuple[int, datetime], str] = {}
        """Reply subject of each message in hand, from its newest delivery."""
        self._tries_to_reclaim = TIMES_ASKED
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping = False

    @property
    def in_hand(self) -> int:
        return len(self._replies)

    @property
    def trouble(self) -> str:
        return self._trouble if self._link.connected else "not connected to NATS"

    async def run(self) -> None:
        """On cancel, handlers have `grace_s` to end. Raises Fatal, in an ExceptionGroup, when a handler did."""
        subscription = await self._link.subscribe(f"{self._inbox}.*", self._on_message)
        elections = await self._link.subscribe(f"{NEW_LEADER}.{self._consumer}", self._start_over)
        holding = asyncio.create_task(self._hold())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pull_on())
                await self._broken
        finally:
            try:
                await self._finish(subscription)
            finally:
                holding.cancel()
                with contextlib.suppress(nats.errors.Error, OSError):
                    await elections.unsubscribe()

    async def _pull_on(self) -> None:
        for number in itertools.count(1):
            while (free := self._slots - len(self._replies)) <= 0:
                self._room.clear()
                await self._room.wait()
            if self._link.exclusive and self._tries_to_reclaim:  # before a pull: messages under way would come twice
                await self._reclaim()
            self._over.clear()
            self._pull, self._to_come = f"{self._inbox}.{number}", min(free, self._most)
            usual_s = EXPIRES_ALONE_S if self._link.exclusive else EXPIRES_S
            expires_s = EXPIRES_AFTER_TROUBLE_S if self._trouble else usual_s
            request = json.dumps({"batch": self._to_come, "expires": int(expires_s * 1e9)}).encode()
            if await self._link.send(f"$JS.API.CONSUMER.MSG.NEXT.{self._consumer}", request, reply=self._pull):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(expires_s + LATE_S):
                        await self._over.wait()
            if self._trouble or not self._over.is_set():
                await self._link.until_back(within_s=PAUSE_S)

    async def _reclaim(self) -> None:
        """Asks for what a dead process had in hand, or a dead server noted as delivered and never sent: answers NAK for
        each sequence above the acknowledgement floor that is not in hand. The server ignores acknowledged ones."""
        self._tries_to_reclaim -= 1
        try:
            info = await self._link.ask_jetstream(f"CONSUMER.INFO.{self._consumer}", timeout_s=ASK_WITHIN_S)
        except Failure:  # else it comes again after ack_wait
            return
        self._tries_to_reclaim = 0
        first, last = info["ack_floor"]["stream_seq"] + 1, info["delivered"]["stream_seq"]
        # The server goes by the stream's sequence; the consumer's must be one that it has given out.
        subject = f"$JS.ACK.{self._consumer}.1.{{}}.{info['delivered']['consumer_seq']}.0.0"
        in_hand = {sequence for sequence, _ in self._replies}
        for sequence in range(first, last + 1) if info.get("num_ack_pending") else ():
            if sequence not in in_hand:
                await self._link.send(subject.format(sequence), NAK)

    async def _hold(self) -> None:
        """Keeps messages in hand. After a reconnect it does so at once, and the server knows no pull from before."""
        seen = self._link.reconnects
        while True:
            if self._link.reconnects == seen:
                await self._link.until_back(within_s=HOLD_SECONDS)
            if self._link.reconnects != seen:
                seen, self._tries_to_reclaim = self._link.reconnects, TIMES_ASKED
                self._over.set()
            await self._report_progress()

    async def _start_over(self, _: Msg) -> None:
        self._over.set()
        await self._report_progress()

    async def _report_progress(self) -> None:
        for reply in list(self._replies.values()):
            await self._link.send(reply, IN_PROGRESS)

    async def _on_message(self, message: Msg) -> None:
        self._heard_at = self._now()
        if is_delivery(message):  # of any pull: a delivery tells only its subject in the stream
            self._to_come, self._trouble = self._to_come - 1, ""
            await self._take(read_delivery(message), message.reply)
        elif message.subject == self._pull:
            self._note_end(message.headers or {})
        if self._to_come <= 0:
            self._over.set()

    def _note_end(self, status: dict[str, str]) -> None:
        code, before = status.get("Status", ""), self._trouble
        why = f"{code} {status.get('Description') or UNANSWERED}"
        self._to_come, self._trouble = 0, "" if code in _USUAL_ENDS else why
        if self._trouble not in ("", before):
            log.warning("%s delivers nothing: %s", self._settler.durable, self._trouble)

    async def _take(self, delivery: Delivery, reply: str) -> None:
        name = delivery.seq, delivery.at
        is_new = name not in self._replies
        if self._stopping:
            await self._link.send(reply, NAK)
        elif is_new and len(self._replies) >= self._slots:  # after a silence that was none
            await self._link.send(reply, nak(BEYOND_DELAY_S))
        else:
            self._replies[name] = reply
            if is_new:
                task = asyncio.create_task(self._handle(name, delivery))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _handle(self, name: tuple[int, datetime], delivery: Delivery) -> None:
        answer = NAK  # of a cancelled handler: another process may have the message at once
        try:
            answer = await self._settler.settle(delivery)
        except Fatal as error:
            answer = nak(BROKEN_DELAY_S)
            if not self._broken.done():
                self._broken.set_exception(error)
        finally:
            self._room.set()
            await self._link.send(self._replies.pop(name), answer)

    async def _finish(self, subscription: Subscription) -> None:
        self._stopping = True
        self._on_stop()
        try:
            await self._leave(subscription)
            if self._tasks:
                with contextlib.suppress(TryAgain):
                    await self._link.guard()  # of a fenced process: its results do not count
                await asyncio.wait(self._tasks, timeout=self.grace_s)
        except Misconfigured as error:
            log.warning("%s: what is in hand is left: %s", self._settler.durable, error)
        finally:
            late = list(self._tasks)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _leave(self, subscription: Subscription) -> None:
        """Unsubscribes while no message arrives: one on its way would come again only after ack_wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS / 2):
                while not self._over.is_set() and self._heard_at > self._now() - QUIET_SECONDS:  # noqa: ASYNC110 - silence
                    await asyncio.sleep(QUIET_SECONDS / 10)
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                if self._link.connected:
                    await subscription.drain()  # type: ignore[no-untyped-call]  # nats-py left its annotation out
                else:
                    await subscription.unsubscribe()
