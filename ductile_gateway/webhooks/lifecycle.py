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
    """Raises Unreadable."""
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
