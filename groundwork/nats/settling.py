"""Settling one message: runs its handler and returns the acknowledgement.

    returns          acknowledged
    TryAgain         delivered again after its delay, at most 5 s (a delayed message keeps its place in the consumer)
    GiveUp           published to the dead letters, then terminated
    Fatal            delivered again, and raised: it must never become a dead letter
    any other error  delivered again, each time later; after `max_tries` treated as GiveUp

A message that cannot be published to the dead letters is not terminated: it comes back and is moved then.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nats.aio.msg import Msg

from groundwork.nats.link import TRY_SECONDS, NatsLink
from groundwork.nats.publishing import BusRefused, StoredMessage
from groundwork.service.errors import Failure, Fatal, GiveUp, TryAgain

ACK = b"+ACK"
IN_PROGRESS = b"+WPI"
NAK = b"-NAK"
LONGEST_DELAY = 5.0
FIRST_DELAY = 0.5
LONGEST_REASON = 500
MOST_HEADERS = 8 * 1024
"""Characters of its own headers that a dead letter keeps: JetStream takes at most 64 KiB of headers."""
OURS = "Agentic-"

_ACK_PREFIX = "$JS.ACK."
_OWN_HEADER = re.compile(r"(?!Nats-|Dead-Letter-)[A-Za-z0-9_-]+", re.ASCII)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Delivery(StoredMessage):
    """`delivered`: number of deliveries so far."""

    delivered: int = 1
    consumer_seq: int = 0


def is_delivery(message: Msg) -> bool:
    return message.reply.startswith(_ACK_PREFIX)


def read_delivery(message: Msg) -> Delivery:
    told = message.metadata
    at, seq = told.timestamp, told.sequence
    headers = message.headers or {}
    return Delivery(message.subject, message.data, headers, seq.stream, at, told.num_delivered, seq.consumer)


def nak(delay_s: float) -> bytes:
    """Asks for another delivery after the delay. Until then the message stays unacknowledged in the consumer."""
    return b"-NAK " + json.dumps({"delay": int(delay_s * 1e9)}).encode()


Handler = Callable[[Delivery], Awaitable[None]]


Notice = tuple[str, bytes, str, Mapping[str, str]]
"""Subject, body, id and headers of a message that announces a dead letter. The dead letter and the log get the headers
that begin with OURS."""
Notify = Callable[[Delivery, str, str], Notice | None]
"""Makes the notice from the delivery, its stream and the reason. Raises ValueError if it cannot."""


@dataclass(frozen=True, slots=True)
class Settler:
    """`stream` and `durable` name the consumer. Its dead letters go to the subject `dead_letters`."""

    link: NatsLink
    stream: str
    durable: str
    handler: Handler
    dead_letters: str
    max_tries: int = 5
    notify: Notify = lambda *_: None
    _errors: Counter[tuple[int, datetime]] = field(init=False, default_factory=Counter)
    """Unforeseen errors by the message's sequence and time. Deliveries do not count: most are put off."""

    async def settle(self, delivery: Delivery) -> bytes:
        """Runs the handler once and returns the acknowledgement to send. Raises Fatal."""
        message, answer = (delivery.seq, delivery.at), ACK
        try:
            await self.handler(delivery)
        except TryAgain as error:
            log.debug("%s: to be tried again: %s", self._name(delivery), _one_line(error))
            return nak(min(LONGEST_DELAY, error.delay_s))
        except GiveUp as error:
            answer = await self._bury(delivery, reason := _one_line(error), reason)
        except Fatal:
            raise
        except Exception as error:  # an error of a handler must not end the loop
            self._errors[message] += 1
            times, kind = self._errors[message], type(error).__name__
            reason, trace = f"{kind}: {_one_line(error)}", error if times == self.max_tries else None
            log.error("%s: %s", self._name(delivery), reason, exc_info=trace)  # noqa: TRY400 - a trace at last is enough
            if times < self.max_tries:
                return nak(min(LONGEST_DELAY, FIRST_DELAY * 2 ** (times - 1)))
            # The text of an unforeseen error may quote the message: only the operator may read it.
            told = f"{kind} at each of {times} tries: the log and the dead letter say more"
            answer = await self._bury(delivery, reason, told)
        if not answer.startswith(NAK):
            self._errors.pop(message, None)
        return answer

    async def _bury(self, delivery: Delivery, reason: str, told: str) -> bytes:
        """`reason` is for the operator, `told` for those who are notified."""
        notice, unannounced = None, ""
        try:
            notice = self.notify(delivery, self.stream, told)
        except ValueError as error:
            unannounced = _one_line(error)
        about = {name: value for name, value in notice[-1].items() if name.startswith(OURS)} if notice else {}
        try:
            await self._publish_dead_letter(delivery, reason, about)
        except Failure as error:
            name = self._name(delivery)
            log.error("%s: cannot be moved to the dead letters: %s", name, error)  # noqa: TRY400 - one line is enough
            return nak(LONGEST_DELAY)
        facts: dict[str, object] = {
            "subject": delivery.subject,
            "stream": self.stream,
            "stream_seq": delivery.seq,
            "consumer": self.durable,
            "deliveries": delivery.delivered,
            "dead_letters": self.dead_letters,
            "why": reason,
        }
        facts |= {name.removeprefix(OURS).replace("-", "_").lower(): value for name, value in about.items()}
        log.warning("a message became a dead letter", extra=facts)
        if notice:
            subject, body, msg_id, headers = notice
            try:  # once: where no stream takes the notice, subscribers hear it once
                await self.link.publish(subject, body, msg_id=msg_id, headers=headers, within_s=TRY_SECONDS)
            except Failure as error:
                unannounced = _one_line(error)
        if unannounced:
            log.warning("%s: the dead letter could not be announced: %s", self._name(delivery), unannounced)
        return f"+TERM {reason}".encode()

    async def _publish_dead_letter(self, delivery: Delivery, reason: str, about: Mapping[str, str]) -> None:
        msg_id = f"dead:{self.stream}:{self.durable}:{delivery.seq}"
        headers = {**self._dead_letter_headers(delivery, reason), **about}
        try:
            await self.link.publish(self.dead_letters, delivery.body, msg_id=msg_id, headers=headers)
        except BusRefused as error:
            # Its headers make it too large. The stream keeps the original under its sequence.
            headers["Dead-Letter-Body"] = f"left out: {_one_line(error)}"
            await self.link.publish(self.dead_letters, b"", msg_id=msg_id, headers=headers)

    def _dead_letter_headers(self, delivery: Delivery, reason: str) -> dict[str, str]:
        headers = {
            "Dead-Letter-Subject": delivery.subject,
            "Dead-Letter-Stream": self.stream,
            "Dead-Letter-Consumer": self.durable,
            "Dead-Letter-Sequence": str(delivery.seq),
            "Dead-Letter-Time": delivery.at.isoformat(),
            "Dead-Letter-Deliveries": str(delivery.delivered),
            "Dead-Letter-Reason": reason,
        }
        if msg_id := delivery.headers.get("Nats-Msg-Id"):
            headers["Dead-Letter-Msg-Id"] = msg_id[:LONGEST_REASON]
        own = copyable_headers(delivery.headers)
        if sum(map(len, (*own, *own.values()))) > MOST_HEADERS:
            return headers | {"Dead-Letter-Headers": "left out: they are too large"}
        return own | headers

    def _name(self, delivery: Delivery) -> str:
        return (
            f"message {delivery.seq} of {self.stream} ({delivery.subject}, delivery {delivery.delivered}"
            f" to {self.durable})"
        )


def copyable_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers without those of JetStream and of a dead letter."""
    return {name: value for name, value in headers.items() if _OWN_HEADER.fullmatch(name)}


def _one_line(error: Exception) -> str:
    printable = "".join(letter if letter.isprintable() else " " for letter in str(error)[: 2 * LONGEST_REASON])
    return " ".join(printable.split())[:LONGEST_REASON]
