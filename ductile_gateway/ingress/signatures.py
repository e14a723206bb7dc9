"""Signatures of deliveries: HMAC-SHA256 over bytes as they came, in the forms of Ductile, GitHub and Standard Webhooks.

Strict where the libraries are lax: hex in lower case, base64 without junk, whole digits. What does not have its form is
no signature. Comparing takes the same time wherever two signatures differ. Pure.
"""

import base64
import hmac
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

MOST_SIGNATURES = 8
"""Of a list in one header: more than any rotation needs, so few that a long list costs nothing."""
STANDARD_PREFIX = "whsec_"
STANDARD_SECRET_BYTES = range(24, 65)

_HEX = re.compile(r"(sha256=)?([0-9a-f]{64})")
_SECONDS = re.compile(r"[0-9]{10}")
_RFC3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")


def relayed(method: str, path: str, timestamp: str, body: bytes) -> bytes:
    """What Ductile's relay signs: four parts between line feeds. `path` is decoded and without its query."""
    return b"\n".join((method.upper().encode(), path.encode(), timestamp.encode(), body))


def standard(message_id: str, timestamp: str, body: bytes) -> bytes:
    """What Standard Webhooks signs."""
    return b".".join((message_id.encode(), timestamp.encode(), body))


def hex_digest(text: str, *, prefix_needed: bool = False) -> bytes | None:
    """The signature in a header such as `sha256=<hex>`; None for what has not this form."""
    found = _HEX.fullmatch(text)
    if found is None or (prefix_needed and not found[1]):
        return None
    return bytes.fromhex(found[2])


def standard_digests(text: str) -> tuple[bytes, ...]:
    """The signatures of version 1 in a list such as `v1,<base64> v1,<base64>`; other versions are passed over."""
    listed = (part.partition(",") for part in text.split(" ", MOST_SIGNATURES)[:MOST_SIGNATURES])
    digests = (_base64(encoded) for version, _, encoded in listed if version == "v1")
    return tuple(digest for digest in digests if digest)


def standard_secret(text: str) -> bytes:
    """The key in `whsec_<base64>`. Raises ValueError, which says nothing of the secret."""
    key = _base64(text.removeprefix(STANDARD_PREFIX))
    if not text.startswith(STANDARD_PREFIX) or key is None or len(key) not in STANDARD_SECRET_BYTES:
        raise ValueError("a secret of Standard Webhooks is `whsec_` and the base64 of 24 to 64 bytes")
    return key


def signed_by_any(secrets: Sequence[bytes], message: bytes, digests: Iterable[bytes]) -> bool:
    """Whether one of the digests was made with one of the secrets."""
    expected = [hmac.digest(secret, message, "sha256") for secret in secrets]
    return any(hmac.compare_digest(one, digest) for digest in digests for one in expected)


def unix_instant(text: str) -> datetime | None:
    """An instant in whole seconds since 1970; None for anything else."""
    return datetime.fromtimestamp(int(text), UTC) if _SECONDS.fullmatch(text) else None


def relay_instant(text: str) -> datetime | None:
    """An instant as Ductile's relay takes it: RFC 3339 or whole seconds since 1970; None for anything else."""
    if not _RFC3339.fullmatch(text):
        return unix_instant(text)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, or beyond the years 1 to 9999
        return None


def within(instant: datetime, now: datetime, tolerance_s: float) -> bool:
    """Whether two clocks differ by no more than is tolerated, either way."""
    return abs(now - instant) <= timedelta(seconds=tolerance_s)


def _base64(text: str) -> bytes | None:
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:  # binascii.Error too, and text beyond ASCII
        return None
    return content if base64.b64encode(content).decode() == text else None
