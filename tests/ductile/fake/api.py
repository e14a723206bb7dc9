"""The HTTP API of the fake with the scopes of its tokens, and its relay ingress, by which signed events start jobs."""

import hashlib
import hmac
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.ductile.fake.jobs import Job, Queue
from tests.ductile.fake.server import STREAM, Refused, Request, says
from tests.ductile.under_test import Peer
from tests.kit.http_server import Response

_INVOKE = {"detail", "invoke"}
_JOBS = {"status", "result", "tree", "logs"}
_OF_BOTH: Mapping[str, set[str]] = {
    "*": {"catalog", *_INVOKE, "write", *_JOBS, "follow", "view"},
    "plugin:rw": {"catalog", *_INVOKE, "write"},
    "jobs:ro": _JOBS,
    "events:ro": {"follow"},
    "system:ro": {"view"},
}
GRANTS: Mapping[str, Mapping[str, set[str]]] = {
    "M": {**_OF_BOTH, "plugin:ro": _INVOKE},
    "N": {
        **_OF_BOTH,
        "plugin:ro": {"catalog", "detail"},
        "plugin:catalog:ro": {"catalog", "detail"},
        "plugin:invoke:ro": {"invoke"},
        **{f"jobs:{what}:ro": {what} for what in _JOBS},
        "events:meta:ro": {"follow"},
    },
}
"""Scopes are exact strings; unknown ones give nothing. M lets every valid token list plugins and skills; N has scopes
of its own for the list, for calls and for results."""
_IN_TREE = ("job_id", "plugin", "command", "status", "last_error", "started_at", "completed_at")
_IN_JOB = tuple(name for name in _IN_TREE if name != "last_error")


class Api:
    """`plugins`: manifests by name. `pipelines`: event and plugin by name."""

    def __init__(
        self,
        jobs: Queue,
        plugins: Mapping[str, Mapping[str, Any]],
        pipelines: Mapping[str, tuple[str, str]],
        *,
        version: str,
        tokens: Mapping[str, Iterable[str]],
    ) -> None:
        self._jobs, self._plugins, self._pipelines = jobs, plugins, pipelines
        self.uptime_s = 10**6
        always = {"catalog"} if version == "M" else set()
        self._may = {
            token: always.union(*(GRANTS[version].get(scope, set()) for scope in scopes))
            for token, scopes in tokens.items()
        }
        self._routes: tuple[tuple[str, str | None, Callable[..., Response]], ...] = (
            (r"GET /healthz", None, self._health),
            (r"GET /skills", "catalog", self._skills),
            (r"GET /plugin/([^/]+)", "detail", self._plugin),
            (r"POST /plugin/([^/]+)/([^/]+)", "invoke", self._call),
            (r"POST /pipeline/([^/]+)", "write", self._pipeline),
            (r"GET /job/([^/]+)", "status", self._job),
            (r"GET /job/([^/]+)/tree", "tree", self._tree),
            (r"GET /jobs", "status", lambda asked: says(200, jobs.listed(asked.query))),
            (r"GET /job-logs", "logs", lambda asked: _or_blank(lambda: jobs.logged(asked.query))),
            (r"GET /events", "follow", lambda _: Response(200, content_type=STREAM, stream=jobs.follow)),
            (r"GET /config/view", "view", lambda _: says(200, {"service": {"name": "fake"}})),
        )

    def answer(self, request: Request) -> Response:
        for route, permission, handle in self._routes:
            if found := re.fullmatch(route, f"{request.method} {request.path}"):
                if permission and not self._allowed(request, permission):
                    raise Refused(403, "insufficient scope")
                return handle(request, *found.groups())
        return Response(404, b"404 page not found\n", "text/plain; charset=utf-8")

    def _allowed(self, request: Request, permission: str) -> bool:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self._may:
            raise Refused(401, "invalid token")
        return permission in self._may[token]

    def _health(self, _: Request) -> Response:
        told = {"status": "ok", "queue_depth": len(self._jobs.outstanding()), "version": "dev"}
        return says(
            200,
            told | {"uptime_seconds": self.uptime_s, "plugins_loaded": len(self._plugins), "plugins_circuit_open": 0},
        )

    def _skills(self, _: Request) -> Response:
        return says(200, {"skills": [{"kind": "pipeline", "pipeline": name} for name in self._pipelines]})

    def _plugin(self, _: Request, name: str) -> Response:
        if name not in self._plugins:
            raise Refused(404, "plugin not found")
        told = ("name", "version", "description", "protocol", "commands")
        return says(200, {name: value for name, value in self._plugins[name].items() if name in told})

    def _call(self, request: Request, plugin: str, command: str) -> Response:
        """A repeated request is a second job (measured of Ductile)."""
        if plugin not in self._plugins:
            raise Refused(400, "plugin not found")
        known = next((one for one in self._plugins[plugin]["commands"] if one["name"] == command), None)
        if known is None:
            raise Refused(400, "command not supported by plugin")
        if known["type"] != "read" and not self._allowed(request, "write"):
            raise Refused(403, "insufficient scope")
        return self._queued(request, plugin, command)

    def _pipeline(self, request: Request, name: str) -> Response:
        if name not in self._pipelines:
            raise Refused(404, "pipeline not found")
        return self._queued(request, self._pipelines[name][1], "handle")

    def _queued(self, request: Request, plugin: str, command: str) -> Response:
        """A chunked body is not read: such a call runs without its payload (measured of Ductile)."""
        payload = request.json().get("payload", {})
        job_id = self._jobs.enqueue(Job(plugin, command, payload, "api"))
        return says(202, {"job_id": job_id, "status": "queued", "plugin": plugin, "command": command})

    def _job(self, _: Request, job_id: str) -> Response:
        if (job := self._jobs.get(job_id)) is None:
            raise Refused(404, "job not found")
        return _or_blank(lambda: job.shown(*_IN_JOB))

    def _tree(self, _: Request, job_id: str) -> Response:
        job = self._jobs.get(job_id)
        return _or_blank(lambda: [job.shown(*_IN_TREE)] if job else [])


def _or_blank(body: Callable[[], Any]) -> Response:
    """Ductile fails to encode stdout that is not JSON after the head is sent: 200 with an empty body."""
    try:
        return says(200, body())
    except ValueError:
        return Response(200)


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
    """The order of the checks and their words were measured. The signature is HMAC-SHA256 over method, path without
    query, timestamp and body, joined by line feeds."""
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
