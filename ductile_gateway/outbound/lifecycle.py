"""What the agent says of a run on the bus, as far as the gateway passes it on: ends, pauses and progress.

Read leniently: an agent newer than this gateway may say more than it knows, and that is passed on as it is.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_RUN_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
MAX_KEY = 512


class Unreadable(Exception):
    """The message is no event of a run: no delivery of it can ever succeed."""


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """`key`: its dedupe key. `at`: when the bus stored it. `callback`: where its run wants its ending sent to.

    `payload` is without that address: it may hold a secret of its receiver, and is nobody else's business. An event
    says only that there is one (`has_callback`), unless an agent of an earlier version said it.
    """

    type: str
    key: str
    run_id: str
    at: datetime
    payload: Mapping[str, Any]
    callback: str | None = None
    has_callback: bool = False


def read_event(subject: str, body: bytes, *, at: datetime) -> LifecycleEvent:
    """The event in a message. Raises Unreadable."""
    envelope = _object(body)
    key, payload = envelope.get("dedupe_key"), envelope.get("payload")
    if envelope.get("type") != subject:
        raise Unreadable(f"a message on {subject} must have that type")
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY or not key.isprintable() or not key.isascii():
        raise Unreadable(f"an event on {subject} must have a dedupe_key of printable ASCII")
    if not isinstance(payload, dict) or not _is_run_id(payload.get("run_id")):
        raise Unreadable(f"an event on {subject} must have a payload with the run_id")
    callback, has_callback = payload.pop("callback", None), payload.pop("has_callback", False)
    return LifecycleEvent(
        type=subject,
        key=key,
        run_id=payload["run_id"],
        at=at,
        payload=payload,
        callback=callback if isinstance(callback, str) else None,
        has_callback=has_callback is True,
    )


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
