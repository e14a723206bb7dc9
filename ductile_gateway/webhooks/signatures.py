"""HMAC-SHA256 signatures of webhooks and relayed events, received and sent: Ductile, GitHub, Standard Webhooks. Pure.

Not the package `standardwebhooks`: it supports one secret only, accepts times such as `1e9` and base64 with junk,
checks any number of signatures, and fails at a malformed one. All comparisons take constant time.
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

MOST_SIGNATURES = 8
"""Signatures read from one header: enough for a rotation of keys, too few to be expensive."""
STANDARD_PREFIX = "whsec_"
STANDARD_KEY_BYTES = range(24, 65)
PEER, KEY_ID = "X-Ductile-Peer", "X-Ductile-Key-Id"
TIMESTAMP, SIGNATURE = "X-Ductile-Timestamp", "X-Ductile-Signature"
SKEW_S = 300.0
"""Accepted difference between a sender's clock and ours."""

_STANDARD_ID = re.compile(r"[!-\-/-~]{1,256}")
"""Without dots: they separate the signed parts."""
_HEX = re.compile(r"(sha256=)?([0-9a-f]{64})")
_SECONDS = re.compile(r"[0-9]{10}")
_RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")


Scheme = Literal["relay", "ductile", "github", "standard"]
HEADERS: Mapping[Scheme, str] = {"relay": SIGNATURE, "github": "X-Hub-Signature-256", "standard": "webhook-signature"}


class Claim(NamedTuple):
    """`digests`: empty for headers that are not of the scheme. `message`: the signed bytes. `delivery_id`: a signed id,
    else the body's digest."""

    digests: tuple[bytes, ...]
    message: bytes
    delivery_id: str


def read_claim(
    scheme: Scheme, headers: Mapping[str, str], body: bytes, *, path: str, now: datetime, header: str = ""
) -> Claim:
    """`headers`: by lower-case name. `header`: name of the signature's header, for schemes that do not define one."""
    signature = headers.get((HEADERS.get(scheme) or header).lower(), "").strip()
    body_digest = hashlib.sha256(body).hexdigest()
    if scheme == "standard":
        delivery_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        known = within(unix_instant(timestamp), now) and _STANDARD_ID.fullmatch(delivery_id)
        digests = standard_digests(signature) if known else ()
        return Claim(digests, standard_message(delivery_id, timestamp, body), delivery_id)
    if scheme == "relay":
        timestamp = headers.get(TIMESTAMP.lower(), "").strip()
        digests = hex_digests(signature) if within(relay_instant(timestamp), now) else ()
        return Claim(digests, relay_message(path, timestamp, body), body_digest)
    return Claim(hex_digests(signature, prefix_needed=scheme == "github"), body, body_digest)


def hex_digests(text: str, *, prefix_needed: bool = False) -> tuple[bytes, ...]:
    """The digest in `sha256=<hex>`; empty for other forms."""
    found = _HEX.fullmatch(text)
    return (bytes.fromhex(found[2]),) if found and (found[1] or not prefix_needed) else ()


def signed_by_any(secrets: Sequence[bytes], message: bytes, digests: Iterable[bytes]) -> bool:
    expected = [hmac.digest(secret, message, "sha256") for secret in secrets]
    return any(hmac.compare_digest(one, digest) for digest in digests for one in expected)


def standard_key(secret: str) -> bytes:
    """The key in a secret `whsec_<base64>`. Raises ValueError without showing the secret."""
    key = _base64(secret.removeprefix(STANDARD_PREFIX))
    if not secret.startswith(STANDARD_PREFIX) or len(key) not in STANDARD_KEY_BYTES:
        raise ValueError("a secret of Standard Webhooks is `whsec_` and the base64 of 24 to 64 bytes")
    return key


def standard_message(message_id: str, timestamp: str, body: bytes) -> bytes:
    return b".".join((message_id.encode(), timestamp.encode(), body))


def standard_headers(message_id: str, body: bytes, keys: Sequence[bytes], *, at: datetime) -> dict[str, str]:
    timestamp = str(int(at.timestamp()))
    message = standard_message(message_id, timestamp, body)
    encoded = (base64.b64encode(hmac.digest(key, message, "sha256")).decode() for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in encoded),
    }


def standard_digests(text: str) -> tuple[bytes, ...]:
    """Digests of version 1 in a list such as `v1,<base64> v1,<base64>`; other versions are ignored."""
    listed = (part.partition(",") for part in text.split(" ", MOST_SIGNATURES)[:MOST_SIGNATURES])
    digests = (_base64(encoded) for version, _, encoded in listed if version == "v1")
    return tuple(digest for digest in digests if digest)


def unix_instant(text: str) -> datetime | None:
    return datetime.fromtimestamp(int(text), UTC) if _SECONDS.fullmatch(text) else None


def within(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and abs(now - instant) <= timedelta(seconds=SKEW_S)


def relay_message(path: str, timestamp: str, body: bytes) -> bytes:
    """Bytes that Ductile's relay signs. `path`: decoded, without its query."""
    return b"\n".join((b"POST", path.encode(), timestamp.encode(), body))


def relay_event(kind: str, key: str, payload: Mapping[str, Any], baggage: Mapping[str, Any], *, peer: str) -> bytes:
    """Body of an event under a dedupe key. `baggage`: for Ductile's context, as far as the peer may set it."""
    envelope = {
        "event": {"type": kind, "payload": dict(payload), "dedupe_key": key},
        "origin": {"instance": peer, "event_id": key},
        "baggage": dict(baggage),
    }
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()


def relay_headers(path: str, body: bytes, secret: str, *, at: datetime) -> dict[str, str]:
    timestamp = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    signature = hmac.digest(secret.encode(), relay_message(path, timestamp, body), "sha256")
    return {TIMESTAMP: timestamp, SIGNATURE: signature.hex()}


def relay_instant(timestamp: str) -> datetime | None:
    """Time of an RFC 3339 text or of whole Unix seconds; None for other texts."""
    if not _RFC3339.fullmatch(timestamp):
        return unix_instant(timestamp)
    try:
        return datetime.fromisoformat(timestamp).astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, or beyond the years 1 to 9999
        return None


def _base64(text: str) -> bytes:
    """Decoded bytes; empty for text that is not the canonical encoding."""
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error too, and text beyond ASCII
        return b""
    return content if base64.b64encode(content).decode() == text else b""
