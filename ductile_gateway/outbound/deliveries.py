"""One event on its way to one receiver, and what can become of a try to deliver it.

Deliveries to one target are independent of those to any other; those of one run to one target keep their order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ductile_gateway.ductile.relay_envelope import envelope_body
from ductile_gateway.outbound.callbacks import callback_body
from ductile_gateway.outbound.destinations import lane_of
from ductile_gateway.outbound.lifecycle import LifecycleEvent

RELAY = "relay"
CALLBACK = "callback"
SUBSCRIPTION = "subscription:"


@dataclass(frozen=True, slots=True)
class Delivery:
    """`target` and `key` name it. `lane`: what shares a receiver, and so may wait for one another.

    `url` is empty for the relay, whose address is a setting. `tries` counts those that were made. `body` is what is
    sent, the same on each try.
    """

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


Verdict = Arrived | NotYet | Never | Gone


@dataclass(frozen=True, slots=True)
class Subscriber:
    url: str
    types: frozenset[str]


@dataclass(frozen=True, slots=True)
class Audience:
    """Who is to be told of what. `peer`: our name at Ductile's relay ingress, which is sent `relayed`."""

    peer: str = ""
    relayed: frozenset[str] = frozenset()
    subscribers: Mapping[str, Subscriber] = field(default_factory=dict)


def deliveries_of(event: LifecycleEvent, audience: Audience, *, at: datetime) -> Sequence[Delivery]:
    """Everybody who is to be told of the event, as of `at`."""
    found = []
    if event.type in audience.relayed:
        found.append(_delivery(event, RELAY, RELAY, "", body=envelope_body(event, audience.peer), at=at))
    body = callback_body(event)
    for name, subscriber in audience.subscribers.items():
        if event.type in subscriber.types:
            target = SUBSCRIPTION + name
            found.append(_delivery(event, target, target, subscriber.url, body=body, at=at))
    if event.callback:
        found.append(callback_of(event, event.callback, at=at))
    return found


def callback_of(event: LifecycleEvent, url: str, *, at: datetime) -> Delivery:
    """The delivery to where the event's run asked to have its ending sent."""
    return _delivery(event, CALLBACK, f"{CALLBACK}:{lane_of(url)}", url, body=callback_body(event), at=at)


def _delivery(event: LifecycleEvent, target: str, lane: str, url: str, *, body: bytes, at: datetime) -> Delivery:
    return Delivery(
        target=target,
        lane=lane,
        key=event.key,
        run_id=event.run_id,
        type=event.type,
        url=url,
        body=body,
        accepted_at=at,
    )
