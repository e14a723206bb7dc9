"""Events of a run, as the gateway passes them on. Pure.

Read leniently: unknown fields of a newer agent are passed on. Callbacks have the form of Standard Webhooks 1.0, in less
than 20 kB: larger ones are shortened.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ductile_gateway.calls.excerpts import cut
from schemas.values import dataclass

MAX_KEY = 512
MOST_BYTES = 20_000
"""Standard Webhooks: a payload is smaller than 20 kB."""
KEPT = {"run_id": 128, "trace_url": 2048} | dict.fromkeys(
    ("kind", "step", "tool", "command", "arguments_hash", "expires_at"), 64
)
"""What a shortened payload has as it was, up to so many characters: whose it is, where the whole is to be found, and
what a person is asked to allow."""
LEVELS = 8
_LONGEST_TEXT, _LONGEST_LIST = 8192, 128
_HALVINGS = 7
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


def read_event(subject: str, body: bytes, *, at: datetime) -> LifecycleEvent:
    envelope = _object(body)
    key, payload = envelope.get("dedupe_key"), envelope.get("payload")
    if envelope.get("type") != subject:
        raise Unreadable(f"a message on {subject} must have that type")
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or not key.isprintable() or not key.isascii():
        raise Unreadable(f"an event on {subject} must have a dedupe_key of printable ASCII")
    if not isinstance(payload, dict) or not _is_run_id(payload.get("run_id")):
        raise Unreadable(f"an event on {subject} must have a payload with the run_id")
    has_callback = payload.pop("has_callback", False)
    return LifecycleEvent(
        type=subject,
        key=key,
        run_id=payload["run_id"],
        at=at,
        payload=payload,
        has_callback=has_callback is True,
    )


def callback_body(event: LifecycleEvent) -> bytes:
    """The same event always has the same body: `type`, `timestamp` (of the bus) and `data`, whole, or shortened with
    `truncated: true`."""
    body = _body(event, event.payload)
    if len(body) <= MOST_BYTES:
        return body
    bodies = (_body(event, {**payload, "truncated": True}) for payload in _shortened(event.payload))
    return next(body for body in bodies if len(body) <= MOST_BYTES)


def _object(body: bytes) -> dict[str, Any]:
    try:
        envelope = json.loads(body)
        # What others would not read: NaN, halves of surrogate pairs, and levels that Python itself can only read.
        json.dumps(envelope, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        raise Unreadable("the message is not JSON") from None
    if not isinstance(envelope, dict):
        raise Unreadable("the message is not a JSON object")
    return envelope


def _is_run_id(value: object) -> bool:
    return isinstance(value, str) and _RUN_ID.fullmatch(value) is not None


def _body(event: LifecycleEvent, payload: Mapping[str, Any]) -> bytes:
    said = event.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    content = {"type": event.type, "timestamp": said, "data": payload}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _shortened(payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kept = {name: payload[name] for name, most in KEPT.items() if name in payload and len(str(payload[name])) <= most}
    for halvings in range(_HALVINGS + 1):
        text, items = _LONGEST_TEXT >> halvings, _LONGEST_LIST >> halvings
        yield {name: _short(value, text, items, levels=LEVELS) for name, value in payload.items()} | kept
    yield kept


def _short(value: Any, text: int, items: int, *, levels: int) -> Any:
    match value:
        case str():
            return cut(value, text)
        case list() | dict() if not levels:
            return None
        case list():
            return [_short(item, text, items, levels=levels - 1) for item in value[:items]]
        case dict():
            return {name: _short(item, text, items, levels=levels - 1) for name, item in value.items()}
    return value
