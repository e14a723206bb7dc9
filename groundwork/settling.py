"""What becomes of one message: run the handler, and answer with the words for the server.

    returns          acknowledged
    TryAgain         delivered again after its delay, at most 5 s (a delayed message keeps its place in the consumer)
    Poison           published to the dead letters, then terminated
    any other error  delivered again, each time later; after `max_deliveries` treated as Poison

A message that cannot be published to the dead letters is not terminated: it comes back and is buried then.
"""

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from groundwork.delivery import ACK, Delivery, nak, term
from groundwork.nats_errors import BusError, Poison, Refused, TryAgain
from groundwork.nats_link import NatsLink

LONGEST_DELAY = 5.0
FIRST_DELAY = 0.5
LONGEST_REASON = 500

_OWN_HEADER = re.compile(r"(?!Nats-)[A-Za-z0-9_-]+", re.ASCII)

Handler = Callable[[Delivery], Awaitable[None]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Where messages go that cannot be handled, and after how many deliveries an error counts as final."""

    subject: str
    max_deliveries: int = 5


@dataclass(frozen=True, slots=True)
class Settling:
    """`stream` and `durable` name the consumer, for the log and for who looks at the dead letters."""

    link: NatsLink
    stream: str
    durable: str
    handler: Handler
    dead_letters: DeadLetters

    async def settle(self, delivery: Delivery) -> bytes:
        """Runs the handler once. The answer is the acknowledgement to send, of whichever kind."""
        try:
            await self.handler(delivery)
        except TryAgain as error:
            log.info("%s: to be tried again: %s", self._name(delivery), _one_line(error))
            return nak(min(LONGEST_DELAY, error.delay_s))
        except Poison as error:
            return await self._bury(delivery, _one_line(error))
        except Exception as error:  # noqa: BLE001 - a handler's error is the message's fate, never the loop's
            return await self._failed(delivery, f"{type(error).__name__}: {_one_line(error)}")
        return ACK

    async def _failed(self, delivery: Delivery, reason: str) -> bytes:
        log.error("%s: %s", self._name(delivery), reason)
        if delivery.delivered >= self.dead_letters.max_deliveries:
            return await self._bury(delivery, reason)
        return nak(min(LONGEST_DELAY, FIRST_DELAY * 2 ** (delivery.delivered - 1)))

    async def _bury(self, delivery: Delivery, reason: str) -> bytes:
        try:
            await self._publish_dead_letter(delivery, reason)
        except BusError as error:
            name = self._name(delivery)
            log.error("%s: cannot be moved to the dead letters: %s", name, error)  # noqa: TRY400 - one line is enough
            return nak(LONGEST_DELAY)
        log.warning("%s: moved to %s: %s", self._name(delivery), self.dead_letters.subject, reason)
        return term(reason)

    async def _publish_dead_letter(self, delivery: Delivery, reason: str) -> None:
        msg_id = f"dead:{self.stream}:{self.durable}:{delivery.stream_seq}"
        headers = self._dead_letter_headers(delivery, reason)
        try:
            await self.link.publish(self.dead_letters.subject, delivery.body, msg_id=msg_id, headers=headers)
        except Refused as error:
            # Its headers make it too large. The stream keeps the original under its sequence.
            headers["Dead-Letter-Body"] = f"left out: {_one_line(error)}"
            await self.link.publish(self.dead_letters.subject, b"", msg_id=msg_id, headers=headers)

    def _dead_letter_headers(self, delivery: Delivery, reason: str) -> dict[str, str]:
        """The message's own headers, but those that would steer JetStream again, and where it comes from."""
        own = {name: value for name, value in delivery.headers.items() if _OWN_HEADER.fullmatch(name)}
        return own | {
            "Dead-Letter-Subject": delivery.subject,
            "Dead-Letter-Stream": self.stream,
            "Dead-Letter-Consumer": self.durable,
            "Dead-Letter-Sequence": str(delivery.stream_seq),
            "Dead-Letter-Deliveries": str(delivery.delivered),
            "Dead-Letter-Reason": reason,
        }

    def _name(self, delivery: Delivery) -> str:
        return (
            f"message {delivery.stream_seq} of {self.stream} ({delivery.subject}, delivery {delivery.delivered}"
            f" to {self.durable})"
        )


def _one_line(error: Exception) -> str:
    printable = "".join(letter if letter.isprintable() else " " for letter in str(error)[: 2 * LONGEST_REASON])
    return " ".join(printable.split())[:LONGEST_REASON]
