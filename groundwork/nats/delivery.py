"""One message as a consumer receives it, and the few words in which the server is told what became of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from nats.aio.msg import Msg

ACK = b"+ACK"
IN_PROGRESS = b"+WPI"
NAK = b"-NAK"

_ACK_PREFIX = "$JS.ACK."
# $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<nanoseconds>.<pending>, and since ADR-15 with
# <domain>.<account hash> before the stream and possibly a random token at the end.
_SHORT_FORM = 9
_DELIVERED, _STREAM_SEQ, _CONSUMER_SEQ, _NANOSECONDS = 4, 5, 6, 7


@dataclass(frozen=True, slots=True)
class Delivery:
    """A stored message, delivered for the `delivered`-th time, as number `consumer_seq` of its consumer. `at`: when it
    was stored."""

    subject: str
    headers: Mapping[str, str]
    body: bytes
    stream_seq: int
    delivered: int
    at: datetime
    consumer_seq: int = 0


def is_delivery(message: Msg) -> bool:
    """True for a message of the stream, False for what the server says about a pull."""
    return message.reply.startswith(_ACK_PREFIX)


def read_delivery(message: Msg) -> Delivery:
    tokens = message.reply.split(".")
    shift = 0 if len(tokens) == _SHORT_FORM else 2
    return Delivery(
        message.subject,
        message.headers or {},
        message.data,
        int(tokens[_STREAM_SEQ + shift]),
        int(tokens[_DELIVERED + shift]),
        datetime.fromtimestamp(int(tokens[_NANOSECONDS + shift]) / 1e9, UTC),
        int(tokens[_CONSUMER_SEQ + shift]),
    )


def nak(delay_s: float) -> bytes:
    """Deliver it again after the delay. It keeps its place among the consumer's unacknowledged messages until then."""
    return b"-NAK " + json.dumps({"delay": int(delay_s * 1e9)}).encode()


def term(reason: str) -> bytes:
    """Never deliver it again; the reason appears in the server's MSG_TERMINATED advisory."""
    return f"+TERM {reason}".encode()
