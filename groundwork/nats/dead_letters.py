"""Headers of a dead letter, which say where, when and why its message was given up, and its announcement. Pure."""

import re
from collections.abc import Callable, Mapping

from groundwork.nats.publishing import Delivery

LONGEST_REASON = 500
MOST_HEADERS = 8 * 1024
"""Characters of its own headers that a dead letter keeps: JetStream takes at most 64 KiB of headers."""
OURS = "Agentic-"

_OWN_HEADER = re.compile(r"(?!Nats-|Dead-Letter-)[A-Za-z0-9_-]+", re.ASCII)

Notice = tuple[str, bytes, str, Mapping[str, str]]
"""Subject, body, id and headers of a message that announces a dead letter. The dead letter and the log get the headers
that begin with OURS."""
Notify = Callable[[Delivery, str, str], Notice | None]
"""Makes the notice from the delivery, its stream and the reason. Raises ValueError if it cannot."""


def dead_letter_headers(delivery: Delivery, stream: str, consumer: str, reason: str) -> dict[str, str]:
    headers = {
        "Dead-Letter-Subject": delivery.subject,
        "Dead-Letter-Stream": stream,
        "Dead-Letter-Consumer": consumer,
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


def copyable_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers without those of JetStream and of a dead letter."""
    return {name: value for name, value in headers.items() if _OWN_HEADER.fullmatch(name)}


def one_line(error: Exception) -> str:
    printable = "".join(letter if letter.isprintable() else " " for letter in str(error)[: 2 * LONGEST_REASON])
    return " ".join(printable.split())[:LONGEST_REASON]
