"""The pull loop: messages of one durable consumer, each given to a handler of its own; `slots` of them at once.

All pulls of one generation share a reply subject; when they can no longer be trusted, a new generation begins and only
its messages count. The acknowledgement is the last thing that happens to a message: delivery is at least once, and
handlers have to bear repetitions.
"""

import asyncio
import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from groundwork.nats.consuming.in_hand import Holding, TakingBack
from groundwork.nats.consuming.settling import (
    NAK,
    Delivery,
    Settling,
    is_delivery,
    nak,
    read_delivery,
)
from groundwork.service.errors import Fatal, Misconfigured, TryAgain
from groundwork.service.machine import this

HEARTBEAT_SECONDS = 1.0
EXPIRES_SECONDS = 5.0
"""Half of how long a bus belongs to a process that is stopped: it is given nothing any more when another begins."""
SILENCE_SECONDS = 2.5 * HEARTBEAT_SECONDS

_HEARTBEAT = "100"
_USUAL_ENDS = {"404", "408"}  # nothing there, time over


@dataclass(slots=True)
class PullAccount:
    """`want`: asked for and not yet received. `last`: monotonic time of the last sign of life, in seconds."""

    slots: int
    last: float
    want: int = 0
    generation: int = 1
    trouble: str = ""

    def to_ask(self, busy: int) -> int:
        free = self.slots - busy - self.want
        return free if free > 0 and self.want <= self.slots // 2 else 0

    def asked(self, number: int, now: float) -> None:
        if self.want == 0:  # nothing was due before
            self.last = now
        self.want += number

    def arrived(self, now: float) -> None:
        self.last = now
        self.trouble = ""
        self.want = max(0, self.want - 1)

    def heard(self, generation: int, status: Mapping[str, str], now: float) -> None:
        self.last = now
        code = status.get("Status", "")
        if code == _HEARTBEAT:
            self.trouble = ""
        elif generation == self.generation:
            lacking = status.get("Nats-Pending-Messages")
            self.want = max(0, self.want - int(lacking)) if lacking else 0
            usual = code in _USUAL_ENDS
            self.trouble = "" if usual else f"{code} {status.get('Description', '')}".strip()

    def silent(self, now: float) -> bool:
        return self.want > 0 and now - self.last > SILENCE_SECONDS

    def start_over(self, now: float) -> None:
        self.generation += 1
        self.want = 0
        self.last = now


PULSE_SECONDS = 0.25
GRACE_SECONDS = 5.0
LEAVE_SECONDS = 1.0
QUIET_SECONDS = 0.05
BROKEN_DELAY_S = 1.0

log = logging.getLogger(__name__)


_Message = tuple[int, datetime]


@dataclass(slots=True)
class _Hand:
    """A message in hand. If it is delivered again meanwhile, only the newer `reply` is kept."""

    name: _Message
    delivery: Delivery
    reply: str


class PullLoop:
    """Runs once. `on_stop`: done before the grace begins. `sole`: no other process consumes here."""

    def __init__(
        self,
        settling: Settling,
        *,
        slots: int,
        grace_s: float = GRACE_SECONDS,
        on_stop: Callable[[], None] = lambda: None,
        sole: bool = True,
    ) -> None:
        self._settling = settling
        self._link = settling.link
        self._name = f"{settling.stream}/{settling.durable}"
        self._pull_subject = f"$JS.API.CONSUMER.MSG.NEXT.{settling.stream}.{settling.durable}"
        self._inbox = self._link.new_inbox()
        self._slots = slots
        self._now = this().monotonic
        self.grace_s = grace_s
        self._on_stop = on_stop
        self._taking_back = TakingBack(self._link, settling.stream, settling.durable, sole=sole)
        self._holding = Holding(self._link, settling.stream, settling.durable, self._replies)
        self._account = PullAccount(slots, last=self._now())
        self._hands: dict[_Message, _Hand] = {}  # the waiting ones too
        self._waiting: deque[_Hand] = deque()  # came beyond the slots, after a silence that was none
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsaid: list[tuple[str, bytes]] = []  # acknowledgements that could not be sent
        self._room = asyncio.Event()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopping = False

    @property
    def in_hand(self) -> int:
        return len(self._hands) - len(self._waiting)

    @property
    def trouble(self) -> str:
        return self._account.trouble if self._link.connected else "not connected to NATS"

    async def run(self) -> None:
        """On cancel, handlers have `grace_s` to end. Raises Fatal, in an ExceptionGroup, when a handler did."""
        subscription = await self._link.subscribe(f"{self._inbox}.*", self._on_message)
        self._room.set()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._ask_for_more())
                tasks.create_task(self._notice_silence())
                tasks.create_task(self._holding.keep())
                if self._link.succeeds:
                    tasks.create_task(self._take_back_once_more())
                await self._broken
        finally:
            await self._finish(subscription)

    async def _ask_for_more(self) -> None:
        """One pull for all slots that became free since the event loop last came by."""
        while True:
            await self._room.wait()
            self._room.clear()
            if self._unsaid:
                await self._say_the_unsaid()
            if self._taking_back.questions > 0:  # before a pull, for what is on its way to us would come twice
                await self._taking_back.take_back({sequence for sequence, _ in self._hands})
            number = self._account.to_ask(busy=len(self._hands))
            if number > 0:
                await self._pull(number)

    async def _pull(self, number: int) -> None:
        expires, heartbeat = int(EXPIRES_SECONDS * 1e9), int(HEARTBEAT_SECONDS * 1e9)
        request = json.dumps({"batch": number, "expires": expires, "idle_heartbeat": heartbeat}).encode()
        reply = f"{self._inbox}.{self._account.generation}"
        if await self._link.send(self._pull_subject, request, reply=reply):
            self._account.asked(number, self._now())

    async def _notice_silence(self) -> None:
        """A server that was away has forgotten what it was asked, and may take our messages for abandoned."""
        reconnects = self._link.reconnects
        while True:
            await asyncio.sleep(PULSE_SECONDS)
            if not self._link.connected:
                continue
            was_away = self._link.reconnects != reconnects
            if was_away or self._account.silent(self._now()):
                reconnects = self._link.reconnects
                if was_away:
                    self._taking_back.begin()
                self._account.start_over(self._now())
                await self._holding.hold()
            self._room.set()

    async def _take_back_once_more(self) -> None:
        """What a predecessor was given that is stopped, and still had asked for when this one began."""
        await asyncio.sleep(EXPIRES_SECONDS + PULSE_SECONDS)
        self._taking_back.begin()
        self._room.set()

    def _replies(self) -> list[str]:
        return [hand.reply for hand in self._hands.values()]

    async def _on_message(self, message: Msg) -> None:
        if is_delivery(message):
            self._account.arrived(self._now())
            self._take(read_delivery(message), message.reply)
            self._room.set()
        else:
            self._hear(int(message.subject.rpartition(".")[2]), message.headers or {})

    def _hear(self, generation: int, status: dict[str, str]) -> None:
        trouble = self._account.trouble
        self._account.heard(generation, status, self._now())
        if self._account.trouble and self._account.trouble != trouble:
            log.warning("%s delivers nothing: %s", self._name, self._account.trouble)
        if not self._account.trouble:  # else the next pulse asks again
            self._room.set()

    def _take(self, delivery: Delivery, reply: str) -> None:
        # A sequence alone does not name a message: a server that lost its newest ones gives their numbers out again.
        name = delivery.stream_seq, delivery.at
        if known := self._hands.get(name):
            known.reply = reply
            return
        hand = self._hands[name] = _Hand(name, delivery, reply)
        self._waiting.append(hand)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._hands) - len(self._waiting) < self._slots and not self._stopping:
            task = asyncio.create_task(self._handle(self._waiting.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle(self, hand: _Hand) -> None:
        answer = NAK  # of a handler that was cancelled: let another have it at once
        try:
            answer = await self._settling.settle(hand.delivery)
        except Fatal as error:
            answer = nak(BROKEN_DELAY_S)
            if not self._broken.done():
                self._broken.set_exception(error)
        finally:
            del self._hands[hand.name]
            if self._waiting:
                self._start_waiting()
            self._room.set()
            await self._say(hand.reply, answer)

    async def _say(self, reply: str, answer: bytes) -> None:
        if not await self._link.send(reply, answer):
            self._unsaid.append((reply, answer))

    async def _say_the_unsaid(self) -> None:
        """Before the next pull: or what was done while disconnected would be delivered again."""
        unsaid, self._unsaid = self._unsaid, []
        for reply, answer in unsaid:
            await self._say(reply, answer)

    async def _finish(self, subscription: Subscription) -> None:
        self._stopping = True
        self._on_stop()
        try:
            await self._leave(subscription)
            for hand in self._waiting:
                await self._say(hand.reply, NAK)
            if self._tasks and not await self._fenced():  # else nothing that they do can count any more
                await self._let_them_end()
        finally:
            late = list(self._tasks)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _let_them_end(self) -> None:
        await self._holding.hold()
        holding = asyncio.create_task(self._holding.keep())
        try:
            await asyncio.wait(self._tasks, timeout=self.grace_s)
        finally:
            holding.cancel()

    async def _fenced(self) -> bool:
        with contextlib.suppress(TryAgain):
            try:
                await self._link.permitted()
            except Misconfigured:
                return True
        return False

    async def _until_quiet(self) -> None:
        """A message that the server has begun to deliver when the subscription ends reaches nobody until ack_wait is
        over. So the end is left to a moment in which none comes: all that was asked for is there, or there is none."""
        while self._is_busy():  # noqa: ASYNC110 - silence is what is waited for
            await asyncio.sleep(QUIET_SECONDS / 10)

    def _is_busy(self) -> bool:
        silent_s = self._now() - self._account.last
        return self._link.connected and self._account.want > 0 and silent_s < QUIET_SECONDS

    async def _leave(self, subscription: Subscription) -> None:
        """What is on its way arrives before the subscription ends, and is given back with the waiting ones."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS / 2):
                await self._until_quiet()
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                if self._link.connected:
                    await subscription.drain()  # type: ignore[no-untyped-call]  # nats-py left its annotation out
                else:
                    await subscription.unsubscribe()
