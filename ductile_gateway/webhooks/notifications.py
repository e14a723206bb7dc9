"""One event on its way to one receiver: what can become of a try to send it, and when it is tried again. Pure.

The spread of the delays comes from the notification itself, so that the same failure gives the same instant.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from ductile_gateway.ductile.relay import body_of
from ductile_gateway.webhooks.destinations import lane_of
from ductile_gateway.webhooks.lifecycle import LifecycleEvent, callback_body
from ductile_gateway.webhooks.outbound_settings import OutboundSettings
from schemas.values import dataclass

WAITING = "waiting"
RELAY, CALLBACK, SUBSCRIPTION = "relay", "callback", "subscription"
SPREAD = 0.1
"""A delay is longer by up to this part of itself, or all that failed together would come back together."""
LONGEST_WISH_S = 3600.0
_MINUTE, _HOUR = 60.0, 3600.0
_CALLBACK_DELAYS_S = (5.0, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR)
_RELAY_DELAYS_S = (1.0, 5.0, 15.0, _MINUTE, 5 * _MINUTE)
_CALLBACK_LIFETIME, _RELAY_LIFETIME = timedelta(seconds=sum(_CALLBACK_DELAYS_S)), timedelta(days=7)
"""After the first try, the second …; the last one repeats. Ductile is our own: it is asked often, and for a week."""


@dataclass(frozen=True, slots=True)
class Notification:
    """Named by `target` and `key`. `lane`: the receiving server, which has one limit of requests. `url`: empty for a
    relay. `body`: the same on each try. `state`: waiting until `at`, or its outcome, since `at`; settled it has neither
    body nor URL. `by`: the gateway that sends it."""

    target: str
    lane: str
    key: str
    run_id: str
    type: str
    url: str
    body: bytes
    accepted_at: datetime
    at: datetime
    tries: int = 0
    state: str = WAITING
    why: str = ""
    by: str | None = ""

    @property
    def is_relayed(self) -> bool:
        return self.target.partition(":")[0] == RELAY


Outcome = Literal["arrived", "unheard", "put_off", "dead"]


@dataclass(frozen=True, slots=True)
class Try:
    """What came of one try. `unheard`: it arrived, and no pipeline listens there. `put_off`: again later, and not
    before `after_s` seconds if the receiver said so. `dead`: no try can succeed before a person mends what `why`
    names."""

    outcome: Outcome
    why: str = ""
    after_s: float = 0.0


def target_of(kind: str, name: str = "") -> str:
    return f"{kind}:{name}" if name else kind


def notifications_of(event: LifecycleEvent, settings: OutboundSettings, *, at: datetime) -> Sequence[Notification]:
    owed = []
    for name, relay in settings.every_relay().items():
        if event.type in relay.types:
            body = body_of(event.type, event.key, event.payload, {"run_id": event.run_id}, peer=relay.peer)
            owed.append(_owed(event, target_of(RELAY, name), body=body, at=at))
    for name, one in settings.subscriptions.items():
        if event.type in one.types:
            owed.append(_owed(event, target_of(SUBSCRIPTION, name), body=callback_body(event), at=at, url=one.url))
    return owed


def callback_of(event: LifecycleEvent, url: str, *, at: datetime) -> Notification:
    lane = target_of(CALLBACK, lane_of(url))
    return _owed(event, CALLBACK, body=callback_body(event), at=at, url=url, lane=lane)


def _owed(
    event: LifecycleEvent, target: str, *, body: bytes, at: datetime, url: str = "", lane: str = ""
) -> Notification:
    return Notification(target, lane or target, event.key, event.run_id, event.type, url, body, at, at)


def next_try(notification: Notification, *, now: datetime, wish_s: float = 0.0) -> datetime | None:
    """After a try that failed at `now` and is counted in `tries`; None to give up. `wish_s`: the receiver's
    Retry-After."""
    relayed = notification.is_relayed
    delays_s = _RELAY_DELAYS_S if relayed else _CALLBACK_DELAYS_S
    if now - notification.accepted_at >= (_RELAY_LIFETIME if relayed else _CALLBACK_LIFETIME):
        return None
    delay_s = delays_s[min(notification.tries, len(delays_s)) - 1]
    return now + timedelta(seconds=max(delay_s * (1 + SPREAD * _fraction(notification)), min(wish_s, LONGEST_WISH_S)))


def _fraction(notification: Notification) -> float:
    name = f"{notification.target} {notification.key} {notification.tries}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
