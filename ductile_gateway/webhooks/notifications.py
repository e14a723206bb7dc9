"""Notifications of run events to their receivers: bodies and retry schedule. Pure.

Unknown fields of a newer agent are passed on. Callbacks follow Standard Webhooks 1.0; bodies of 20 kB and more are
shortened. The jitter of a delay follows from the notification, so that it is the same after a restart.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from ductile_gateway.calls.artifacts import clipped
from ductile_gateway.webhooks.destinations import server_of
from ductile_gateway.webhooks.settings import OutboundSettings, RelaySettings
from ductile_gateway.webhooks.signatures import relay_event
from groundwork.service.errors import GiveUp
from schemas.values import dataclass

MOST_BYTES = 20_000
KEPT = {"run_id": 128, "trace_url": 2048} | dict.fromkeys(
    ("kind", "step", "tool", "command", "arguments_hash", "expires_at"), 64
)
"""Fields that a shortened payload keeps, with their most characters: the run, its trace and what an approval is for."""
_KEY = re.compile(r"[ -~]{1,512}")
_RUN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """`key`: dedupe key. `at`: when the bus stored it. `has_callback` is not part of `payload`."""

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
    raise GiveUp(f"a message on {subject} needs that type, a dedupe_key in ASCII and a payload with a run_id")


def callback_body(event: LifecycleEvent) -> bytes:
    """`type`, `timestamp` (of the bus) and `data`, shortened with `truncated: true`; the same for each attempt."""
    content: dict[str, Any] = {
        "type": event.type,
        "timestamp": event.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    for payload in _shortened(event.payload):
        body = json.dumps(content | {"data": payload}, ensure_ascii=False, separators=(",", ":")).encode()
        if len(body) <= MOST_BYTES:
            break
    return body


def _shortened(payload: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield payload
    kept = {name: payload[name] for name, most in KEPT.items() if name in payload and len(str(payload[name])) <= most}
    kept |= {"truncated": True}
    texts = {
        name: one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for name, one in payload.items()
    }
    for most in (4096, 512, 64):
        yield {name: clipped(text, most) if len(text) > most else payload[name] for name, text in texts.items()} | kept
    yield kept


WAITING = "waiting"
CALLBACK = "callback"
JITTER = 0.1
LONGEST_RETRY_AFTER_S = 3600.0
_MINUTE, _HOUR = 60.0, 3600.0
_CALLBACK_DELAYS_S = (5.0, 5 * _MINUTE, 30 * _MINUTE, 2 * _HOUR, 5 * _HOUR, 10 * _HOUR)
_RELAY_DELAYS_S = (1.0, 5.0, 15.0, _MINUTE, 5 * _MINUTE)
_CALLBACK_LIFETIME, _RELAY_LIFETIME = timedelta(seconds=sum(_CALLBACK_DELAYS_S)), timedelta(days=7)
"""The last delay repeats. A Ductile is the operator's own, so it is tried often and for a week."""


@dataclass(frozen=True)
class Notification:
    """Stored under `target` and `key`. `lane`: the receiving server, with one limit of requests. `url`: of a callback;
    others have theirs in the settings. `state`: waiting until `at`, or its outcome since `at`, then without body and
    URL. `by`: its gateway."""

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


Outcome = Literal["arrived", "unheard", "put_off", "dead"]


@dataclass(frozen=True, slots=True)
class Try:
    """Result of one attempt. `unheard`: delivered, and no pipeline listens. `put_off`: retried, `after_s` seconds later
    at the earliest. `dead`: cannot succeed before a person repairs `why`."""

    outcome: Outcome
    why: str = ""
    after_s: float = 0.0


def notifications_of(event: LifecycleEvent, settings: OutboundSettings, *, at: datetime) -> Iterator[Notification]:
    for target, receiver in settings.receivers().items():
        if event.type in receiver.types:
            body = callback_body(event)
            if isinstance(receiver, RelaySettings):
                body = relay_event(event.type, event.key, event.payload, {"run_id": event.run_id}, peer=receiver.peer)
            yield Notification(target, target, event.key, event.run_id, event.type, "", body, at, at)


def callback_of(event: LifecycleEvent, url: str, *, at: datetime) -> Notification:
    lane, body = f"{CALLBACK}:{server_of(url)}", callback_body(event)
    return Notification(CALLBACK, lane, event.key, event.run_id, event.type, url, body, at, at)


def next_try(notification: Notification, *, now: datetime, retry_after_s: float = 0.0) -> datetime | None:
    """Time of the next attempt after one that failed at `now` and is counted in `tries`; None to give up."""
    relayed = notification.target.partition(":")[0] == "relay"
    delays_s = _RELAY_DELAYS_S if relayed else _CALLBACK_DELAYS_S
    is_old = now - notification.accepted_at >= (_RELAY_LIFETIME if relayed else _CALLBACK_LIFETIME)
    if is_old and notification.tries > len(delays_s):  # an absent gateway tries nothing
        return None
    delay_s = delays_s[min(notification.tries, len(delays_s)) - 1]
    name = f"{notification.target} {notification.key} {notification.tries}"
    fraction = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32
    return now + timedelta(seconds=max(delay_s * (1 + JITTER * fraction), min(retry_after_s, LONGEST_RETRY_AFTER_S)))
