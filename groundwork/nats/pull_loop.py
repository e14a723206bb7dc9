"""The pull loop: gives the messages of one durable consumer to a handler, `slots` of them at once. nats-py's `fetch`
gets nothing until its timeout once the server was restarted (2.16).

One pull is out at a time, for all free slots. It is given up after a reconnect, when its end does not arrive, and when
the consumer has a new leader, which does not know it: its messages are still taken, its end is not. The acknowledgement
comes last: delivery is at least once, and handlers must bear repetitions. What a dead process had in hand is delivered
again after the consumer's ack_wait; a process that has the consumer to itself asks for it at once.

    handler          message
    returns          acknowledged
    TryAgain         delivered again after its delay, at most 5 s (a delayed message keeps its place in the consumer)
    GiveUp           published to the dead letters, then terminated
    Fatal            delivered again, and raised: it must never become a dead letter
    any other error  delivered again, each time later; after MOST_TRIES treated as GiveUp

A message that cannot be published to the dead letters is not terminated: it comes back and is moved then.
"""

import asyncio
import contextlib
import itertools
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from groundwork.nats.dead_letters import OURS, Notify, dead_letter_headers, one_line
from groundwork.nats.link import TRY_SECONDS, NatsLink
from groundwork.nats.publishing import BusRefused, Delivery, read_delivery
from groundwork.service.errors import Failure, Fatal, GiveUp, Misconfigured, TryAgain
from groundwork.service.machine import set_within, this

ACK, IN_PROGRESS, NAK = b"+ACK", b"+WPI", b"-NAK"
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
FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 5.0
BROKEN_DELAY_S, BEYOND_DELAY_S = 1.0, 0.5
MOST_TRIES = 5
ASK_WITHIN_S = 1.0
TIMES_ASKED = 10
"""Electing a new leader of the consumer takes 4 to 9 s."""

UNANSWERED = "no server has this consumer: it is missing (`agentic setup` makes it), or waits for a leader"
_USUAL_ENDS = {"404", "408"}  # no messages, timeout

log = logging.getLogger(__name__)

Handler = Callable[[Delivery], Awaitable[None]]


class PullLoop:
    """Runs once. `dead_letters`: their subject, and the maker of a notice of each. `on_stop` is called before the grace
    period begins."""

    def __init__(
        self,
        link: NatsLink,
        stream: str,
        durable: str,
        handler: Handler,
        *,
        dead_letters: tuple[str, Notify],
        slots: int,
        grace_s: float = GRACE_SECONDS,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._link = link
        self._stream, self._durable, self._consumer = stream, durable, f"{stream}.{durable}"
        self._handler = handler
        self._dead_letters, self._notify = dead_letters
        self._inbox = link.client.new_inbox()
        self.grace_s = grace_s
        self._on_stop = on_stop
        self._slots, self._most = slots, slots if link.exclusive else min(slots, AHEAD)
        self._pull, self._to_come = "", 0
        """Reply subject of the newest pull, and the number of messages that it may still bring."""
        self._over = asyncio.Event()
        self._now = this().monotonic
        self._heard_at = self._now()
        self._trouble = ""
        # A sequence alone does not name a message: a server that lost its newest ones reuses their numbers.
        self._replies: dict[tuple[int, datetime], str] = {}
        """Reply subject of each message in hand, from its newest delivery."""
        self._errors = Counter[tuple[int, datetime]]()
        """Unforeseen errors of each message. Deliveries do not count: most are put off."""
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
                await set_within(self._over, expires_s + LATE_S)
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
        if delivery := read_delivery(message):  # of any pull: a delivery tells only its subject in the stream
            self._to_come, self._trouble = self._to_come - 1, ""
            name = delivery.seq, delivery.at
            is_new = name not in self._replies
            if self._stopping:
                await self._link.send(message.reply, NAK)
            elif is_new and len(self._replies) >= self._slots:  # after a silence that was none
                await self._link.send(message.reply, nak(BEYOND_DELAY_S))
            else:
                self._replies[name] = message.reply
                if is_new:
                    task = asyncio.create_task(self._handle(name, delivery))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        elif message.subject == self._pull:
            self._note_end(message.headers or {})
        if self._to_come <= 0:
            self._over.set()

    def _note_end(self, status: dict[str, str]) -> None:
        code, before = status.get("Status", ""), self._trouble
        why = f"{code} {status.get('Description') or UNANSWERED}"
        self._to_come, self._trouble = 0, "" if code in _USUAL_ENDS else why
        if self._trouble not in ("", before):
            log.warning("%s delivers nothing: %s", self._durable, self._trouble)

    async def _handle(self, name: tuple[int, datetime], delivery: Delivery) -> None:
        answer = NAK  # of a cancelled handler: another process may have the message at once
        try:
            await self._handler(delivery)
            answer = ACK
        except TryAgain as error:
            log.debug("%s: to be tried again: %s", self._name(delivery), one_line(error))
            answer = nak(min(LONGEST_DELAY_S, error.delay_s))
        except GiveUp as error:
            answer = await self._bury(delivery, reason := one_line(error), reason)
        except Fatal as error:
            answer = nak(BROKEN_DELAY_S)
            if not self._broken.done():
                self._broken.set_exception(error)
        except Exception as error:  # noqa: BLE001 - an error of a handler must not end the loop
            answer = await self._put_off_or_bury(name, delivery, error)
        finally:
            if not answer.startswith(NAK):
                self._errors.pop(name, None)
            self._room.set()
            await self._link.send(self._replies.pop(name), answer)

    async def _put_off_or_bury(self, name: tuple[int, datetime], delivery: Delivery, error: Exception) -> bytes:
        self._errors[name] += 1
        times, kind = self._errors[name], type(error).__name__
        reason, trace = f"{kind}: {one_line(error)}", error if times == MOST_TRIES else None
        log.error("%s: %s", self._name(delivery), reason, exc_info=trace)
        if times < MOST_TRIES:
            return nak(min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (times - 1)))
        # The text of an unforeseen error may quote the message: only the operator may read it.
        public = f"{kind} at each of {times} tries: the log and the dead letter say more"
        return await self._bury(delivery, reason, public)

    async def _bury(self, delivery: Delivery, reason: str, public: str) -> bytes:
        """`reason` is for the operator, `public` for those who are notified."""
        notice, unannounced = None, ""
        try:
            notice = self._notify(delivery, self._stream, public)
        except ValueError as error:
            unannounced = one_line(error)
        about = {name: value for name, value in notice[-1].items() if name.startswith(OURS)} if notice else {}
        try:
            await self._publish_dead_letter(delivery, reason, about)
        except Failure as error:
            name = self._name(delivery)
            log.error("%s: cannot be moved to the dead letters: %s", name, error)  # noqa: TRY400 - one line is enough
            return nak(LONGEST_DELAY_S)
        facts: dict[str, object] = {
            "subject": delivery.subject,
            "stream": self._stream,
            "stream_seq": delivery.seq,
            "consumer": self._durable,
            "deliveries": delivery.delivered,
            "dead_letters": self._dead_letters,
            "why": reason,
        }
        facts |= {name.removeprefix(OURS).replace("-", "_").lower(): value for name, value in about.items()}
        log.warning("a message became a dead letter", extra=facts)
        if notice:
            subject, body, msg_id, headers = notice
            try:  # once: where no stream takes the notice, subscribers hear it once
                await self._link.publish(subject, body, msg_id=msg_id, headers=headers, within_s=TRY_SECONDS)
            except Failure as error:
                unannounced = one_line(error)
        if unannounced:
            log.warning("%s: the dead letter could not be announced: %s", self._name(delivery), unannounced)
        return f"+TERM {reason}".encode()

    async def _publish_dead_letter(self, delivery: Delivery, reason: str, about: Mapping[str, str]) -> None:
        msg_id = f"dead:{self._stream}:{self._durable}:{delivery.seq}"
        headers = {**dead_letter_headers(delivery, self._stream, self._durable, reason), **about}
        try:
            await self._link.publish(self._dead_letters, delivery.body, msg_id=msg_id, headers=headers)
        except BusRefused as error:
            # Its headers make it too large. The stream keeps the original under its sequence.
            headers["Dead-Letter-Body"] = f"left out: {one_line(error)}"
            await self._link.publish(self._dead_letters, b"", msg_id=msg_id, headers=headers)

    def _name(self, delivery: Delivery) -> str:
        where = f"{delivery.subject}, delivery {delivery.delivered} to {self._durable}"
        return f"message {delivery.seq} of {self._stream} ({where})"

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
            log.warning("%s: what is in hand is left: %s", self._durable, error)
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


def nak(delay_s: float) -> bytes:
    """Asks for another delivery after the delay. Until then the message stays unacknowledged in the consumer."""
    return b"-NAK " + json.dumps({"delay": int(delay_s * 1e9)}).encode()
