"""When a delivery is tried again, and when it is given up: rules of numbers alone.

The spread of the delays comes from the delivery itself, so that the same failure gives the same instant.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from ductile_gateway.outbound.deliveries import RELAY, Delivery

SPREAD = 0.1
"""A delay is longer by up to this part of itself, or all that failed together would come back together."""
LONGEST_WISH_S = 3600.0
"""The longest wait that a receiver may ask for."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """`delays_s` after the first try, the second …; the last one repeats. What is older than `lifetime` is given up."""

    delays_s: tuple[float, ...]
    lifetime: timedelta


_MINUTE, _HOUR = 60.0, 3600.0
_CALLBACK_DELAYS = (5.0, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR)
CALLBACKS = Schedule(_CALLBACK_DELAYS, timedelta(seconds=sum(_CALLBACK_DELAYS)))
"""Seven tries over most of a day."""
RELAYED = Schedule((1.0, 5.0, 15.0, _MINUTE, 5 * _MINUTE), timedelta(days=7))
"""Ductile is our own: it is asked often, and for a week."""


def next_try(delivery: Delivery, *, now: datetime, wish_s: float = 0.0) -> datetime | None:
    """When to try again after a try that failed at `now` and is counted in `tries`; None to give up.

    `wish_s`: how long the receiver asked not to be asked again, in seconds.
    """
    schedule = RELAYED if delivery.target == RELAY else CALLBACKS
    if now - delivery.accepted_at >= schedule.lifetime:
        return None
    delay_s = schedule.delays_s[min(delivery.tries, len(schedule.delays_s)) - 1]
    return now + timedelta(seconds=max(delay_s * (1 + SPREAD * _fraction(delivery)), min(wish_s, LONGEST_WISH_S)))


def _fraction(delivery: Delivery) -> float:
    """From 0 to 1, by target, key and try."""
    name = f"{delivery.target} {delivery.key} {delivery.tries}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
