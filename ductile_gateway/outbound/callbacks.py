"""Callbacks as Standard Webhooks 1.0: what is signed, under which headers, and what an answer means.

The id is the event's dedupe key, the same on every try; the timestamp is that of the try. Only 2xx is success, also
where the answer is a redirect, which is never followed; 410 ends what the receiver is sent of that run.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from ductile_gateway.ingress.shortening import shortened
from ductile_gateway.outbound.lifecycle import LifecycleEvent

SECRET_PREFIX = "whsec_"  # noqa: S105 - what every secret begins with
_SHORTEST_KEY, _LONGEST_KEY = 24, 64
_SUCCESS = range(200, 300)
MOST_BYTES = 20_000
"""Standard Webhooks: a payload is smaller than 20 kB."""


def signing_key(secret: str) -> bytes:
    """The key in `whsec_` and base64, of 24 to 64 bytes. Raises ValueError."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not _SHORTEST_KEY <= len(key) <= _LONGEST_KEY:
        raise ValueError(f"must be {SECRET_PREFIX} and base64 of {_SHORTEST_KEY} to {_LONGEST_KEY} bytes")
    return key


def callback_body(event: LifecycleEvent) -> bytes:
    """`type`, `timestamp` (when it was said on the bus) and `data`, which is the payload: whole, or shortened to fit.

    A payload that was shortened has `truncated: true`. The same event always has the same body.
    """
    body = _body(event, event.payload)
    if len(body) <= MOST_BYTES:
        return body
    bodies = (_body(event, {**payload, "truncated": True}) for payload in shortened(event.payload))
    return next(body for body in bodies if len(body) <= MOST_BYTES)


def webhook_id(key: str) -> str:
    """The id of a dedupe key. A dot would blur what is signed, so that a key with one is hashed."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}" if "." in key else key


def signed_headers(key: str, body: bytes, keys: Sequence[bytes], *, at: datetime) -> dict[str, str]:
    """Headers of one try, with one signature for each signing key."""
    message_id, timestamp = webhook_id(key), str(int(at.timestamp()))
    content = f"{message_id}.{timestamp}.".encode() + body
    signatures = (base64.b64encode(hmac.digest(secret, content, "sha256")).decode() for secret in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def succeeded(status: int) -> bool:
    return status in _SUCCESS


def retry_after_s(header: str | None, *, now: datetime) -> float:
    """The seconds that a Retry-After header asks for (RFC 9110: seconds or a date); 0 if it says nothing readable."""
    if header is None:
        return 0.0
    if header.strip().isascii() and header.strip().isdigit():
        return float(header.strip()[:9])
    try:
        return max(0.0, (parsedate_to_datetime(header).astimezone(UTC) - now).total_seconds())
    except (ValueError, OverflowError):
        return 0.0


def _body(event: LifecycleEvent, payload: Mapping[str, Any]) -> bytes:
    said = event.at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    content = {"type": event.type, "timestamp": said, "data": payload}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
