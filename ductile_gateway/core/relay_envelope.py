"""An event as Ductile's relay ingress takes it, from a peer that signs (Ductile API, remote event relay).

What is signed is the method, the path, the timestamp header and the raw body, joined by line feeds; every try is
signed anew. A repeated event has the same dedupe key: Ductile answers it with the job that it began before.
"""

import hmac
import json
from dataclasses import dataclass
from datetime import UTC, datetime

from ductile_gateway.core.lifecycle import LifecycleEvent

SKEWED = "outside allowed clock skew"
_ACCEPTED = 202
_TIMEOUT, _TOO_MANY = 408, 429


@dataclass(frozen=True, slots=True)
class Peer:
    """We, as Ductile knows us. `path` is that of its relay ingress, with our name as its last part."""

    name: str
    key_id: str
    secret: bytes
    path: str

    def __repr__(self) -> str:
        return f"Peer({self.name!r})"


@dataclass(frozen=True, slots=True)
class Reply:
    """What Ductile answered: `job_id` is empty where nobody listens, `error` where it accepted the event."""

    status: int
    job_id: str
    error: str


def envelope_body(event: LifecycleEvent, peer: str) -> bytes:
    """The request's body: the event under its own dedupe key, and the run as baggage."""
    envelope = {
        "event": {"type": event.type, "payload": event.payload, "dedupe_key": event.key},
        "origin": {"instance": peer, "event_id": event.key},
        "baggage": {"run_id": event.run_id},
    }
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()


def signed_headers(peer: Peer, body: bytes, *, at: datetime) -> dict[str, str]:
    """Headers of one try to POST the body."""
    timestamp = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    signed = b"\n".join([b"POST", peer.path.encode(), timestamp.encode(), body])
    return {
        "Content-Type": "application/json",
        "X-Ductile-Peer": peer.name,
        "X-Ductile-Key-Id": peer.key_id,
        "X-Ductile-Timestamp": timestamp,
        "X-Ductile-Signature": hmac.digest(peer.secret, signed, "sha256").hex(),
    }


def read_reply(status: int, body: bytes) -> Reply:
    """The answer, whatever its body is."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    fields = content if isinstance(content, dict) else {}
    job_id, error = fields.get("job_id"), fields.get("error")
    return Reply(status, job_id if isinstance(job_id, str) else "", str(error or "")[:200])


def accepted(reply: Reply) -> bool:
    return reply.status == _ACCEPTED


def skewed(reply: Reply) -> bool:
    """Whether only the timestamp was wrong: a fresh one may be right."""
    return reply.status == 403 and SKEWED in reply.error


def permanent(reply: Reply) -> bool:
    """Whether the same event can never be accepted before a person changes a setting."""
    return reply.status < 500 and reply.status not in (_TIMEOUT, _TOO_MANY)
