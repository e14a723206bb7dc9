"""The relay ingress: signed events of a known peer become jobs of the pipelines that listen.

The order of the checks and their words were measured of Ductile; reading a body comes after its headers.
"""

import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.ductile.fake.catalog import Catalog
from tests.ductile.fake.jobs import Job
from tests.ductile.fake.wire import Answer, Refused, Request, says
from tests.ductile.under_test import Peer

MAX_BODY_BYTES = 256 * 1024
CLOCK_SKEW = timedelta(minutes=5)
EVENT_TYPE = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
PATH = re.compile(r"/ingest/peer/([^/]+)")

Enqueue = Callable[[Job], str]


class Ingress:
    """One peer, which may send the types in `peer.accepts`."""

    def __init__(self, peer: Peer, catalog: Catalog, *, enqueue: Enqueue) -> None:
        self._peer, self._catalog, self._enqueue = peer, catalog, enqueue

    def accept(self, request: Request) -> Answer:
        """202, with the id of the first job; without one where nothing listens. Raises Refused."""
        self._check_headers(request)
        self._check_signature(request)
        envelope = _envelope(request.body)
        event, origin = envelope["event"], envelope.get("origin") or {}
        if origin.get("instance", "") not in ("", self._peer.name):
            raise Refused(403, "origin instance mismatch")
        if event["type"] not in self._peer.accepts:
            raise Refused(422, "event type not allowed for peer")
        job_ids = [
            self._enqueue(Job(one.plugin, "handle", event["payload"], self._submitter, self._key(event, origin)))
            for one in self._catalog.listening(event["type"])
        ]
        accepted = {
            "status": "accepted",
            "peer": self._peer.name,
            "event_type": event["type"],
            "receiver_event_id": str(uuid.uuid4()),
        }
        return says(202, accepted | ({"job_id": job_ids[0]} if job_ids else {}), enqueued=True)

    @property
    def _submitter(self) -> str:
        return f"relay:{self._peer.name}"

    def _key(self, event: Mapping[str, Any], origin: Mapping[str, Any]) -> str | None:
        """What the sender says, else what its own event id gives, else none."""
        if key := event.get("dedupe_key", "").strip():
            return str(key)
        event_id = origin.get("event_id", "").strip()
        return f"relay:{self._peer.name}:{origin.get('instance', '')}:{event_id}" if event_id else None

    def _check_headers(self, request: Request) -> None:
        headers, found = request.headers, PATH.fullmatch(request.path)
        if found is None or found[1] != self._peer.name:
            raise Refused(403, "unknown relay peer")
        if headers.get("x-ductile-peer", "").strip() != found[1]:
            raise Refused(403, "peer identity mismatch")
        if abs(datetime.now(UTC) - _timestamp(headers)) > CLOCK_SKEW:
            raise Refused(403, "relay timestamp outside allowed clock skew")
        if not (key_id := headers.get("x-ductile-key-id", "").strip()):
            raise Refused(403, "missing relay key id")
        if key_id != self._peer.key_id:
            raise Refused(403, "relay key id mismatch")

    def _check_signature(self, request: Request) -> None:
        """HMAC-SHA256 over method, path without query, timestamp and body, joined by line feeds."""
        signature = request.headers.get("x-ductile-signature", "").strip()
        if not signature:
            raise Refused(403, "missing relay signature")
        if len(request.body) > MAX_BODY_BYTES:
            raise Refused(413, "relay payload too large")
        timestamp = request.headers["x-ductile-timestamp"].strip()
        signed = b"\n".join([request.method.encode(), request.path.encode(), timestamp.encode(), request.body])
        expected = hmac.new(self._peer.secret.encode(), signed, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected.encode(), signature.removeprefix("sha256=").lower().encode()):
            raise Refused(403, "forbidden")


def _timestamp(headers: Mapping[str, str]) -> datetime:
    """RFC 3339 with a zone, or whole Unix seconds."""
    raw = headers.get("x-ductile-timestamp", "").strip()
    if not raw:
        raise Refused(403, "missing relay timestamp")
    try:
        if raw.isdecimal():
            return datetime.fromtimestamp(int(raw), UTC)
        if RFC_3339.fullmatch(raw):
            return datetime.fromisoformat(raw)
    except ValueError as error:
        raise Refused(403, "invalid relay timestamp") from error
    raise Refused(403, "invalid relay timestamp")


def _envelope(body: bytes) -> dict[str, Any]:
    """An envelope whose event has a type and a payload."""
    try:
        envelope: dict[str, Any] = json.loads(body)
        event: dict[str, Any] = dict(envelope.get("event") or {})
        payload: dict[str, Any] = _object(event.get("payload") or {})
    except (ValueError, AttributeError, TypeError) as error:
        raise Refused(400, "invalid JSON body") from error
    kind = str(event.get("type", "")).strip()
    if not kind:
        raise Refused(400, "event.type is required")
    if not EVENT_TYPE.fullmatch(kind):
        raise Refused(400, "event.type must use lower-case dotted form")
    return envelope | {"event": event | {"type": kind, "payload": payload}}


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    return value
