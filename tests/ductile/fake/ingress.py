"""The relay ingress: signed events of a known peer become jobs of listening pipelines.

The order of the checks and their words were measured.
"""

import hashlib
import hmac
import re
import uuid
from collections.abc import Mapping

from tests.ductile.fake.jobs import Job, Queue
from tests.ductile.fake.server import Refused, Request, says
from tests.ductile.under_test import Peer
from tests.kit.http_server import Response

MAX_BODY_BYTES = 256 * 1024
PATH = re.compile(r"/ingest/peer/([^/]+)")


def accept(request: Request, peer: Peer, pipelines: Mapping[str, tuple[str, str]], jobs: Queue) -> Response:
    """202 with the id of the first job, or without one if nothing listens. Raises Refused."""
    _check(request, peer)
    envelope = request.json()
    event, origin = envelope["event"], envelope.get("origin", {})
    if event["type"] not in peer.accepts:
        raise Refused(422, "event type not allowed for peer")
    key, event_id = event.get("dedupe_key", "").strip(), origin.get("event_id", "")
    if not key and event_id:
        key = f"relay:{peer.name}:{origin.get('instance', '')}:{event_id}"
    job_ids = [
        jobs.enqueue(Job(plugin, "handle", event["payload"], f"relay:{peer.name}", key or None))
        for heard, plugin in pipelines.values()
        if heard == event["type"]
    ]
    told = {"status": "accepted", "peer": peer.name, "event_type": event["type"], "receiver_event_id": uuid.uuid4().hex}
    return says(202, told | ({"job_id": job_ids[0]} if job_ids else {}))


def _check(request: Request, peer: Peer) -> None:
    """The signature is HMAC-SHA256 over method, path without query, timestamp and body, joined by line feeds."""
    sent = {name: request.headers[f"x-ductile-{name}"] for name in ("peer", "key-id", "timestamp", "signature")}
    signed = f"{request.method}\n{request.path}\n{sent['timestamp']}\n".encode() + request.body
    expected = hmac.new(peer.secret.encode(), signed, hashlib.sha256).hexdigest()
    for is_wrong, status, words in (
        (request.path != peer.path, 403, "unknown relay peer"),
        (sent["peer"] != peer.name, 403, "peer identity mismatch"),
        (sent["key-id"] != peer.key_id, 403, "relay key id mismatch"),
        (len(request.body) > MAX_BODY_BYTES, 413, "relay payload too large"),
        (sent["signature"] != expected, 403, "forbidden"),
    ):
        if is_wrong:
            raise Refused(status, words)
