"""One event on its way to one receiver: what can become of a try to send it, and when it is tried again. Pure.

The spread of the delays comes from the notification itself, so that the same failure gives the same instant.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ductile_gateway.ductile.relay_wire import body_of, of_lifecycle
from ductile_gateway.outbound.destinations import lane_of
from ductile_gateway.outbound.lifecycle import LifecycleEvent, callback_body
from ductile_gateway.outbound.settings import OutboundSettings

RELAY = "relay"
CALLBACK = "callback"
SUBSCRIPTION = "subscription:"
SPREAD = 0.1
"""A delay is longer by up to this part of itself, or all that failed together would come back together."""
LONGEST_WISH_S = 3600.0


@dataclass(frozen=True, slots=True)
class Notification:
    """Named by `target` and `key`. `lane`: the receiving server, which has one limit of requests. `url`: empty for a
    relay. `body`: the same on each try."""

    target: str
    lane: str
    key: str
    run_id: str
    type: str
    url: str
    body: bytes
    accepted_at: datetime
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Arrived:
    """The receiver has it. `heard` is false when nobody listens behind it."""

    heard: bool = True


@dataclass(frozen=True, slots=True)
class NotYet:
    """Again later, and not before `after_s` seconds if the receiver said so."""

    why: str
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Never:
    """No try can succeed before a person mends what `why` names."""

    why: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The receiver wants nothing more of this run."""


SendResult = Arrived | NotYet | Never | Gone


def notifications_of(event: LifecycleEvent, settings: OutboundSettings, *, at: datetime) -> Sequence[Notification]:
    found = []
    for name, relay in settings.every_relay().items():
        if event.type in relay.types:
            target = relay_of(name)
            found.append(_notification(event, target, target, "", body=body_of(of_lifecycle(event), relay.peer), at=at))
    body = callback_body(event)
    for name, subscriber in settings.subscriptions.items():
        if event.type in subscriber.types:
            target = SUBSCRIPTION + name
            found.append(_notification(event, target, target, subscriber.url, body=body, at=at))
    return found


def relay_of(ductile: str) -> str:
    return f"{RELAY}:{ductile}" if ductile else RELAY


def is_relay(target: str) -> bool:
    return target.partition(":")[0] == RELAY


def callback_of(event: LifecycleEvent, url: str, *, at: datetime) -> Notification:
    return _notification(event, CALLBACK, f"{CALLBACK}:{lane_of(url)}", url, body=callback_body(event), at=at)


def _notification(
    event: LifecycleEvent, target: str, lane: str, url: str, *, body: bytes, at: datetime
) -> Notification:
    return Notification(
        target=target,
        lane=lane,
        key=event.key,
        run_id=event.run_id,
        type=event.type,
        url=url,
        body=body,
        accepted_at=at,
    )


@dataclass(frozen=True, slots=True)
class Schedule:
    """`delays_s` after the first try, the second …; the last one repeats. What is older than `lifetime` is given up."""

    delays_s: tuple[float, ...]
    lifetime: timedelta


_MINUTE, _HOUR = 60.0, 3600.0
_CALLBACK_DELAYS = (5.0, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR)
CALLBACKS = Schedule(_CALLBACK_DELAYS, timedelta(seconds=sum(_CALLBACK_DELAYS)))
RELAYED = Schedule((1.0, 5.0, 15.0, _MINUTE, 5 * _MINUTE), timedelta(days=7))
"""Ductile is our own: it is asked often, and for a week."""


def next_try(notification: Notification, *, now: datetime, wish_s: float = 0.0) -> datetime | None:
    """After a try that failed at `now` and is counted in `tries`; None to give up. `wish_s`: the receiver's
    Retry-After."""
    schedule = RELAYED if is_relay(notification.target) else CALLBACKS
    if now - notification.accepted_at >= schedule.lifetime:
        return None
    delay_s = schedule.delays_s[min(notification.tries, len(schedule.delays_s)) - 1]
    return now + timedelta(seconds=max(delay_s * (1 + SPREAD * _fraction(notification)), min(wish_s, LONGEST_WISH_S)))


def _fraction(notification: Notification) -> float:
    name = f"{notification.target} {notification.key} {notification.tries}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
