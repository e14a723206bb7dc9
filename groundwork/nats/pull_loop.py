"""The pull loop: messages of one durable consumer, each given to a handler of its own; `slots` of them at once.

All pulls of one generation share a reply subject. A new generation begins after a reconnect, where the end of a pull
fails to come, and when the consumer has a new leader, which knows nothing of what the one before was asked; then only
its messages count. The acknowledgement is the last thing that happens to a message: delivery is at least once, and
handlers have to bear repetitions. What a process that died had in hand comes again after the consumer's ack_wait; a
process that is alone asks for it at once.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from groundwork.nats.settling import IN_PROGRESS, NAK, Delivery, Settling, is_delivery, nak, read_delivery
from groundwork.service.errors import Failure, Fatal, Misconfigured, TryAgain
from groundwork.service.machine import this

EXPIRES_S, EXPIRES_ALONE_S = 30.0, 5.0
"""How long a pull lasts. Alone, half of how long a bus belongs to a process that is stopped: it is given nothing any
more when another begins. Of several, each costs the bus words while nothing happens."""
AHEAD = 8
"""Of several processes, each asks for so few messages beyond what it has in hand: the server gives them also to one
that is cut off, and gives them again after ack_wait to a pull that is left.
"""
LATE_S = 2.0
"""How long after its end the server is taken to have forgotten a pull that nothing was heard from."""
NEW_LEADER = "$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED"
PULSE_SECONDS = 0.25
HOLD_SECONDS = 1.5
"""A third of the ack_wait of consumers: so often messages in hand are reported as in progress."""
GRACE_SECONDS = 5.0
LEAVE_SECONDS = 1.0
QUIET_SECONDS = 0.05
BROKEN_DELAY_S, BEYOND_DELAY_S = 1.0, 0.5
ASK_WITHIN_S = 1.0
TIMES_ASKED = 10
"""Electing a new leader of the consumer takes 4 to 9 s."""

_USUAL_ENDS = {"404", "408"}  # nothing there, time over

log = logging.getLogger(__name__)


@dataclass(slots=True)
class PullAccount:
    """`ahead`: how many to ask for at most. `want`: asked for and not yet received. `last`: monotonic time of the last
    sign of life, in seconds."""

    slots: int
    last: float
    ahead: int
    expires_s: float = EXPIRES_S
    want: int = 0
    generation: int = 1
    trouble: str = ""

    @property
    def silence_s(self) -> float:
        return self.expires_s + LATE_S

    def to_ask(self, busy: int) -> int:
        free = min(self.slots - busy, self.ahead) - self.want
        return free if free > 0 and self.want <= self.ahead // 2 else 0

    def asked(self, number: int, now: float) -> None:
        if self.want == 0:  # nothing was due before
            self.last = now
        self.want += number

    def arrived(self, now: float) -> None:
        self.last = now
        self.trouble = ""
        self.want = max(0, self.want - 1)

    def told(self, generation: int, status: Mapping[str, str], now: float) -> None:
        self.last = now
        if generation == self.generation:
            code, lacking = status.get("Status", ""), status.get("Nats-Pending-Messages")
            self.want = max(0, self.want - int(lacking)) if lacking else 0
            said = f"{code} {status.get('Description', '')}".splitlines()  # nats-py reads headers into it after a 503
            self.trouble = "" if code in _USUAL_ENDS else said[0].strip()

    def silent(self, now: float) -> bool:
        return self.want > 0 and now - self.last > self.silence_s

    def start_over(self, now: float) -> None:
        self.generation += 1
        self.want = 0
        self.last = now


class PullLoop:
    """Runs once. `on_stop`: done before the grace begins."""

    def __init__(
        self,
        settling: Settling,
        *,
        slots: int,
        grace_s: float = GRACE_SECONDS,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._settling = settling
        self._link = settling.link
        self._inbox = self._link.new_inbox()
        self._now = this().monotonic
        self.grace_s = grace_s
        self._on_stop = on_stop
        expires_s = EXPIRES_ALONE_S if self._link.alone else EXPIRES_S
        ahead = slots if self._link.alone else min(slots, AHEAD)
        self._account = PullAccount(slots, last=self._now(), ahead=ahead, expires_s=expires_s)
        # A sequence alone does not name a message: a server that lost its newest ones gives their numbers out again.
        self._replies: dict[tuple[int, datetime], str] = {}
        """Where each message in hand is answered: as its newest delivery says."""
        self._to_ask_back = TIMES_ASKED
        """How often it is still tried to ask back what the server takes for in hand here."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping = False

    @property
    def in_hand(self) -> int:
        return len(self._replies)

    @property
    def trouble(self) -> str:
        return self._account.trouble if self._link.connected else "not connected to NATS"

    async def run(self) -> None:
        """On cancel, handlers have `grace_s` to end. Raises Fatal, in an ExceptionGroup, when a handler did."""
        subscription = await self._link.subscribe(f"{self._inbox}.*", self._on_message)
        elected = f"{NEW_LEADER}.{self._settling.stream}.{self._settling.durable}"
        elections = await self._link.subscribe(elected, self._on_new_leader)
        holding = asyncio.create_task(self._hold())
        self._room.set()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._ask_for_more())
                tasks.create_task(self._notice_silence())
                await self._broken
        finally:
            try:
                await self._finish(subscription)
            finally:
                holding.cancel()
                with contextlib.suppress(nats.errors.Error, OSError):
                    await elections.unsubscribe()

    async def _ask_for_more(self) -> None:
        """One pull for the slots that became free since the event loop last came by."""
        expires = int(self._account.expires_s * 1e9)
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._settling.stream}.{self._settling.durable}"
        while True:
            await self._room.wait()
            self._room.clear()
            if self._link.alone and self._to_ask_back:  # before a pull, for what is on its way would come twice
                await self._ask_back()
            if number := self._account.to_ask(busy=self.in_hand):
                request = json.dumps({"batch": number, "expires": expires}).encode()
                if await self._link.send(subject, request, reply=f"{self._inbox}.{self._account.generation}"):
                    self._account.asked(number, self._now())

    async def _ask_back(self) -> None:
        """What a dead process had in hand, or a dead server noted as delivered and never sent, is answered with NAK:
        each sequence above the acknowledgement floor that is not in hand. The server ignores what was acknowledged.
        """
        name = f"{self._settling.stream}.{self._settling.durable}"
        self._to_ask_back -= 1
        try:
            info = await self._link.ask_jetstream(f"CONSUMER.INFO.{name}", timeout_s=ASK_WITHIN_S)
        except Failure as error:
            if not self._to_ask_back:
                log.warning("%s: what was in hand before comes again only after ack_wait: %s", name, error)
            return
        self._to_ask_back = 0
        first, last = info["ack_floor"]["stream_seq"] + 1, info["delivered"]["stream_seq"]
        # The server goes by the stream's sequence; the consumer's has to be one that it has given out.
        subject = f"$JS.ACK.{name}.1.{{}}.{info['delivered']['consumer_seq']}.0.0"
        in_hand = {sequence for sequence, _ in self._replies}
        for sequence in range(first, last + 1) if info.get("num_ack_pending") else ():
            if sequence not in in_hand:
                await self._link.send(subject.format(sequence), NAK)

    async def _notice_silence(self) -> None:
        """A server that was away has forgotten what it was asked."""
        reconnects = self._link.reconnects
        while True:
            await asyncio.sleep(PULSE_SECONDS)
            if not self._link.connected:
                continue
            if self._link.reconnects != reconnects or self._account.silent(self._now()):
                if self._link.reconnects != reconnects:
                    self._to_ask_back = TIMES_ASKED
                reconnects = self._link.reconnects
                await self._start_over()
            if not self._account.want or self._account.trouble:
                self._room.set()

    async def _on_new_leader(self, _: Msg) -> None:
        await self._start_over()
        self._room.set()

    async def _start_over(self) -> None:
        self._account.start_over(self._now())
        await self._say_in_progress()

    async def _hold(self) -> None:
        while True:
            await asyncio.sleep(HOLD_SECONDS)
            await self._say_in_progress()

    async def _say_in_progress(self) -> None:
        for reply in list(self._replies.values()):
            await self._link.send(reply, IN_PROGRESS)

    async def _on_message(self, message: Msg) -> None:
        if is_delivery(message):
            self._account.arrived(self._now())
            await self._take(read_delivery(message), message.reply)
        else:
            self._note_status(int(message.subject.rpartition(".")[2]), message.headers or {})

    def _note_status(self, generation: int, status: dict[str, str]) -> None:
        before = self._account.trouble
        self._account.told(generation, status, self._now())
        if self._account.trouble and self._account.trouble != before:
            log.warning("%s delivers nothing: %s", self._settling.durable, self._account.trouble)
        if not self._account.trouble:  # else the next pulse asks again
            self._room.set()

    async def _take(self, delivery: Delivery, reply: str) -> None:
        name = delivery.seq, delivery.at
        if self._stopping:
            await self._link.send(reply, NAK)
        elif name not in self._replies and self.in_hand >= self._account.slots:  # after a silence that was none
            await self._link.send(reply, nak(BEYOND_DELAY_S))
        elif name in self._replies:
            self._replies[name] = reply
        else:
            self._replies[name] = reply
            task = asyncio.create_task(self._handle(name, delivery))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._room.set()

    async def _handle(self, name: tuple[int, datetime], delivery: Delivery) -> None:
        answer = NAK  # of a handler that was cancelled: let another have it at once
        try:
            answer = await self._settling.settle(delivery)
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
            if self._tasks and not await self._fenced():  # else nothing that they do can count any more
                await asyncio.wait(self._tasks, timeout=self.grace_s)
        finally:
            late = list(self._tasks)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _fenced(self) -> bool:
        with contextlib.suppress(TryAgain):
            try:
                await self._link.permitted()
            except Misconfigured:
                return True
        return False

    async def _leave(self, subscription: Subscription) -> None:
        """Ends the subscription while no message comes: one that is on its way then waits for ack_wait to be over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS / 2):
                while self._is_busy():  # noqa: ASYNC110 - silence is what is waited for
                    await asyncio.sleep(QUIET_SECONDS / 10)
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                if self._link.connected:
                    await subscription.drain()  # type: ignore[no-untyped-call]  # nats-py left its annotation out
                else:
                    await subscription.unsubscribe()

    def _is_busy(self) -> bool:
        silent_s = self._now() - self._account.last
        return self._link.connected and self._account.want > 0 and silent_s < QUIET_SECONDS
