"""Events between Ductile and us, as Ductile's relay has them on the wire: read, written and answered. Pure.

`{"event": {"type", "payload", "dedupe_key"}, "origin": {"instance", "plugin", "job_id", "event_id"}, "baggage"}`; other
fields are passed over. Ductile answers a repeated event with the job that it began before.
"""

import json
from collections.abc import Mapping
from datetime import datetime

from pydantic import JsonValue

from ductile_gateway.calls.call import CALL_ID, Asked
from ductile_gateway.ductile.answers import FORBIDDEN, fields_of, job_id_in, own_refusal
from ductile_gateway.ductile.settings import RelayPeerSettings
from ductile_gateway.webhooks.lifecycle import LifecycleEvent
from ductile_gateway.webhooks.signatures import KEY_ID, PEER, relay_headers
from schemas.events import RESERVED_KEYS
from schemas.values import dataclass

SKEWED = "outside allowed clock skew"
SECRETS_DIFFER = "the peer's secret in Ductile is not the one that is set here, or something on the way says so"
_ACCEPTED, _FORBIDDEN = 202, 403


@dataclass(frozen=True, slots=True)
class SentEvent:
    """An event under its dedupe key. `baggage`: what Ductile's context is to carry, as far as it lets the peer."""

    type: str
    key: str
    payload: Mapping[str, JsonValue]
    baggage: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class RelayAnswer:
    """`unheard`: accepted, and no pipeline listens. `own`: Ductile's own words: it will not accept the same event."""

    status: int
    job_id: str
    error: str
    unheard: bool = False
    own: bool = False

    @property
    def is_accepted(self) -> bool:
        return self.status == _ACCEPTED

    @property
    def is_skewed(self) -> bool:
        return self.status == _FORBIDDEN and SKEWED in self.error

    @property
    def is_unsigned(self) -> bool:
        return self.status == _FORBIDDEN and self.error == FORBIDDEN


def of_lifecycle(event: LifecycleEvent) -> SentEvent:
    return SentEvent(event.type, event.key, event.payload, {"run_id": event.run_id})


def of_call(event_type: str, asked: Asked, payload: Mapping[str, JsonValue]) -> SentEvent:
    """The same event however often it is sent. Correlation stands in the payload and in the baggage; neither a model
    nor a tool can say otherwise (RFC-103, reserved keys). With the capability a pipeline can answer by an event of its
    own."""
    request = asked.request
    belongs: dict[str, JsonValue] = {"run_id": request.run_id, "step": request.step, "tool": request.tool}
    belongs |= {"capability": request.capability} if request.capability else {}
    said = {name: value for name, value in payload.items() if name not in RESERVED_KEYS}
    named: dict[str, JsonValue] = {CALL_ID: payload[CALL_ID]} if CALL_ID in payload else {}
    return SentEvent(event_type, asked.key, said | belongs | {"attempt": request.attempt}, belongs | named)


def body_of(event: SentEvent, peer: str) -> bytes:
    envelope = {
        "event": {"type": event.type, "payload": dict(event.payload), "dedupe_key": event.key},
        "origin": {"instance": peer, "event_id": event.key},
        "baggage": dict(event.baggage),
    }
    return json.dumps(envelope, ensure_ascii=False, separators=(",", ":")).encode()


def signed_headers(us: RelayPeerSettings, body: bytes, *, at: datetime) -> dict[str, str]:
    signed = relay_headers(us.ingress_path, body, us.secret.get_secret_value(), at=at)
    return {"Content-Type": "application/json", PEER: us.peer, KEY_ID: us.key_id} | signed


def read_answer(status: int, body: bytes) -> RelayAnswer:
    fields = fields_of(body)
    job_id, error = job_id_in(fields), str(fields.get("error") or "")[:200]
    unheard = status == _ACCEPTED and fields.get("status") == "accepted" and not fields.get("job_id")
    return RelayAnswer(status, job_id, error, unheard, own=unheard or own_refusal(body) is not None)
