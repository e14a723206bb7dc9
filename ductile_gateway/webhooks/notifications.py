"""Events of runs, and each on its way to one receiver: what can become of a try to send it, and when it is tried again.
Pure.

Events are read leniently: unknown fields of a newer agent are passed on. Callbacks have the form of Standard Webhooks
1.0, in less than 20 kB: larger ones are shortened. The spread of the delays comes from the notification itself, so that
the same failure gives the same instant.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from ductile_gateway.calls.artifacts import cut
from ductile_gateway.webhooks.destinations import lane_of
from ductile_gateway.webhooks.settings import OutboundSettings
from ductile_gateway.webhooks.signatures import relay_event
from schemas.values import dataclass

MOST_BYTES = 20_000
"""Standard Webhooks: a payload is smaller than 20 kB."""
KEPT = {"run_id": 128, "trace_url": 2048} | dict.fromkeys(
    ("kind", "step", "tool", "command", "arguments_hash", "expires_at"), 64
)
"""What a shortened payload has as it was, up to so many characters: whose it is, where the whole is to be found, and
what a person is asked to allow."""
_KEY = re.compile(r"[ -~]{1,512}")
_RUN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Unreadable(Exception):
    """The message is no event of a run: no delivery of it can ever succeed."""


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """`key`: its dedupe key. `at`: when the bus stored it. `has_callback` is not part of `payload`."""

    type: str
    key: str
    run_id: str
    at: datetime
    payload: Mapping[str, Any]
    has_callback: bool = False


def read_event(subject: str, message: Any, *, at: datetime) -> LifecycleEvent:
    match message:
        case {"type": kind, "dedupe_key": str(key), "payload": {"run_id": str(run_id)}} if kind == subject:
            if _KEY.fullmatch(key) and _RUN_ID.fullmatch(run_id):
                payload = dict(message["payload"])
                has_callback = payload.pop("has_callback", False) is True
                return LifecycleEvent(subject, key, run_id, at, payload, has_callback=has_callback)
    raise Unreadable(f"a message on {subject} needs that type, a dedupe_key in ASCII and a payload with a run_id")


def callback_body(event: LifecycleEvent) -> bytes:
    """The same event always has the same body: `type`, `timestamp` (of the bus) and `data`, whole, or shortened with
    `truncated: true`."""
    return next(body for payload in _ever_shorter(event.payload) if len(body := _body(event, payload)) <= MOST_BYTES)


def _body(event: LifecycleEvent, payload: Mapping[str, Any]) -> bytes:
    said = event.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    content = {"type": event.type, "timestamp": said, "data": payload}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _ever_shorter(payload: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield payload
    kept = {name: payload[name] for name, most in KEPT.items() if name in payload and len(str(payload[name])) <= most}
    kept |= {"truncated": True}
    texts = {
        name: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for name, one in payload.items()
    }
    for most in (4096, 512, 64):
        yield {name: cut(text, most) if len(text) > most else payload[name] for name, text in texts.items()} | kept
    yield kept


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
            body = relay_event(event.type, event.key, event.payload, {"run_id": event.run_id}, peer=relay.peer)
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
    name = f"{notification.target} {notification.key} {notification.tries}"
    fraction = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
    return now + timedelta(seconds=max(delay_s * (1 + SPREAD * fraction), min(wish_s, LONGEST_WISH_S)))
