"""An event as Ductile's relay ingress takes it, from a peer that signs (Ductile API, remote event relay).

What is signed is the method, the path, the timestamp header and the raw body, joined by line feeds; every try is
signed anew. A repeated event has the same dedupe key: Ductile answers it with the job that it began before.
"""

import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic import JsonValue

from ductile_gateway.ductile.answers import FORBIDDEN, own_refusal
from ductile_gateway.outbound.lifecycle import LifecycleEvent

EVENT_TYPE = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
"""Types that Ductile takes; to be matched in full."""
SKEWED = "outside allowed clock skew"
SECRETS_DIFFER = "the peer's secret in Ductile is not the one that is set here, or something on the way says so"
_ACCEPTED = 202
_FORBIDDEN = 403
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


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
    """What Ductile answered: `job_id` is empty where it named none, `error` where it accepted the event.

    unheard: it said that it accepted the event, and that no job came of it: nobody listens. `own`: these are Ductile's
    own words, not those of something on the way.
    """

    status: int
    job_id: str
    error: str
    unheard: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class RelayedEvent:
    """An event under its dedupe key. `baggage`: what Ductile's context is to carry, as far as it lets the peer."""

    type: str
    key: str
    payload: Mapping[str, JsonValue]
    baggage: Mapping[str, JsonValue]


def envelope_body(event: LifecycleEvent, peer: str) -> bytes:
    """The request's body for what became of a run, with the run as baggage."""
    return relayed_body(RelayedEvent(event.type, event.key, event.payload, {"run_id": event.run_id}), peer)


def relayed_body(event: RelayedEvent, peer: str) -> bytes:
    """The request's body for an event of the peer."""
    envelope = {
        "event": {"type": event.type, "payload": dict(event.payload), "dedupe_key": event.key},
        "origin": {"instance": peer, "event_id": event.key},
        "baggage": dict(event.baggage),
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
    is_id = isinstance(job_id, str) and _JOB_ID.fullmatch(job_id)
    unheard = status == _ACCEPTED and fields.get("status") == "accepted" and not job_id
    own = unheard or own_refusal(status, body) is not None
    return Reply(status, str(job_id) if is_id else "", str(error or "")[:200], unheard, own)


def accepted(reply: Reply) -> bool:
    return reply.status == _ACCEPTED


def skewed(reply: Reply) -> bool:
    """Whether only the timestamp was wrong: a fresh one may be right."""
    return reply.status == 403 and SKEWED in reply.error


def unsigned(reply: Reply) -> bool:
    """Whether it said, in the words that it has for a signature that does not fit, that the event is not let in."""
    return reply.status == _FORBIDDEN and reply.error == FORBIDDEN


def permanent(reply: Reply) -> bool:
    """Whether Ductile itself says that it will not accept the same event."""
    return reply.own
