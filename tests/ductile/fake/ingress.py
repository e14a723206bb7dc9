"""The relay ingress: signed events of a known peer become jobs of the pipelines that listen.

The order of the checks and their words were measured of Ductile; reading a body comes after its headers.
"""

import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.ductile.fake.catalog import Catalog
from tests.ductile.fake.dispatch import Dispatcher
from tests.ductile.fake.jobs import Job
from tests.ductile.fake.wire import Answer, Refused, Request, says
from tests.ductile.under_test import Peer

MAX_BODY_BYTES = 256 * 1024
CLOCK_SKEW = timedelta(minutes=5)
EVENT_TYPE = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
PATH = re.compile(r"/ingest/peer/([^/]+)")


def accept(request: Request, peer: Peer, catalog: Catalog, life: Dispatcher) -> Answer:
    """202, with the id of the first job; without one where nothing listens. Raises Refused."""
    _check(request, peer)
    envelope = _envelope(request.body)
    event, origin = envelope["event"], envelope.get("origin") or {}
    if origin.get("instance", "") not in ("", peer.name):
        raise Refused(403, "origin instance mismatch")
    if event["type"] not in peer.accepts:
        raise Refused(422, "event type not allowed for peer")
    key, event_id = event.get("dedupe_key", "").strip(), origin.get("event_id", "").strip()
    if not key and event_id:
        key = f"relay:{peer.name}:{origin.get('instance', '')}:{event_id}"
    job_ids = [
        life.enqueue(Job(one.plugin, "handle", event["payload"], f"relay:{peer.name}", key or None))
        for one in catalog.listening(event["type"])
    ]
    told = {"status": "accepted", "peer": peer.name, "event_type": event["type"], "receiver_event_id": uuid.uuid4().hex}
    return says(202, told | ({"job_id": job_ids[0]} if job_ids else {}))


def _check(request: Request, peer: Peer) -> None:
    """The signature is HMAC-SHA256 over method, path without query, timestamp and body, joined by line feeds."""

    def header(name: str) -> str:
        return request.headers.get(f"x-ductile-{name}", "").strip()

    def too_old() -> bool:
        return abs(datetime.now(UTC) - _instant(header("timestamp"))) > CLOCK_SKEW

    def forged() -> bool:
        signed = "\n".join([request.method, request.path, header("timestamp"), ""]).encode() + request.body
        expected = hmac.new(peer.secret.encode(), signed, hashlib.sha256).hexdigest()
        return not hmac.compare_digest(expected, header("signature").removeprefix("sha256=").lower())

    found = PATH.fullmatch(request.path)
    checks: tuple[tuple[Callable[[], bool], int, str], ...] = (
        (lambda: found is None or found[1] != peer.name, 403, "unknown relay peer"),
        (lambda: header("peer") != peer.name, 403, "peer identity mismatch"),
        (too_old, 403, "relay timestamp outside allowed clock skew"),
        (lambda: not header("key-id"), 403, "missing relay key id"),
        (lambda: header("key-id") != peer.key_id, 403, "relay key id mismatch"),
        (lambda: not header("signature"), 403, "missing relay signature"),
        (lambda: len(request.body) > MAX_BODY_BYTES, 413, "relay payload too large"),
        (forged, 403, "forbidden"),
    )
    for is_wrong, status, words in checks:
        if is_wrong():
            raise Refused(status, words)


def _instant(raw: str) -> datetime:
    """RFC 3339 with a zone, or whole Unix seconds."""
    if not raw:
        raise Refused(403, "missing relay timestamp")
    if not raw.isdecimal() and not RFC_3339.fullmatch(raw):
        raise Refused(403, "invalid relay timestamp")
    return datetime.fromtimestamp(int(raw), UTC) if raw.isdecimal() else datetime.fromisoformat(raw)


def _envelope(body: bytes) -> dict[str, Any]:
    """An envelope whose event has a type and a payload."""
    try:
        envelope: dict[str, Any] = json.loads(body)
        event: dict[str, Any] = dict(envelope.get("event") or {})
        payload = dict((event.get("payload") or {}).items())
    except (ValueError, AttributeError, TypeError) as error:
        raise Refused(400, "invalid JSON body") from error
    kind = str(event.get("type", "")).strip()
    if not kind:
        raise Refused(400, "event.type is required")
    if not EVENT_TYPE.fullmatch(kind):
        raise Refused(400, "event.type must use lower-case dotted form")
    return envelope | {"event": event | {"type": kind, "payload": payload}}
