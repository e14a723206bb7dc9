"""What Ductile answers to each request, apart from faults and sockets."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.ductile.fake import listing
from tests.ductile.fake.catalog import Catalog
from tests.ductile.fake.hub import Hub
from tests.ductile.fake.jobs import Job, Jobs, shown
from tests.ductile.fake.scopes import granted, presented_token
from tests.ductile.fake.wire import Answer, Refused, Request, says

_JOB = ("job_id", "status", "plugin", "command", "started_at", "completed_at")
_IN_TREE = ("job_id", "plugin", "command", "status", "last_error", "started_at", "completed_at")

Enqueue = Callable[[Job, str, Mapping[str, Any]], str]
"""Takes a job, and what the stream is told of it before it may start. Gives its id."""


class Api:
    """One version of the HTTP API over these jobs."""

    def __init__(
        self,
        jobs: Jobs,
        catalog: Catalog,
        *,
        version: str,
        tokens: Mapping[str, Iterable[str]],
        hub: Callable[[], Hub],
        enqueue: Enqueue,
    ) -> None:
        self._jobs, self._catalog, self._version = jobs, catalog, version
        self._may = {token: granted(version, scopes) for token, scopes in tokens.items()}
        self._hub, self._enqueue = hub, enqueue
        self._routes: tuple[tuple[str, str, str | None, Callable[..., Answer]], ...] = (
            ("GET", r"/healthz", None, self._health),
            ("GET", r"/skills", "catalog", lambda _: says(200, {"skills": catalog.skills()})),
            ("GET", r"/plugin/([^/]+)", "detail", self._plugin),
            ("POST", r"/plugin/([^/]+)/([^/]+)", "invoke", self._call),
            ("POST", r"/pipeline/([^/]+)", "write", self._pipeline),
            ("GET", r"/job/([^/]+)", "status", self._job),
            ("GET", r"/job/([^/]+)/tree", "tree", self._tree),
            ("GET", r"/jobs", "status", self._list),
            ("GET", r"/job-logs", "logs", self._logs),
            ("GET", r"/events", "follow", self._events),
            ("GET", r"/config/view", "view", lambda _: says(200, {"service": {"name": "fake"}})),
        )

    def answer(self, request: Request) -> Answer:
        """The answer to any request but those of the relay ingress."""
        here = [(route, found) for route in self._routes if (found := re.fullmatch(route[1], request.path))]
        if not here:
            return Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")
        for (method, _, permission, handle), found in here:
            if method == request.method:
                self._check(request, permission)
                return handle(request, *found.groups())
        return Answer(405, content_type=None, headers={"Allow": here[0][0][0]})

    def _check(self, request: Request, permission: str | None) -> None:
        if permission is None:
            return
        token = presented_token(request)
        if token not in self._may:
            raise Refused(401, "invalid token")
        if permission not in self._may[token]:
            raise Refused(403, "insufficient scope")

    def _allowed(self, request: Request, permission: str) -> bool:
        return permission in self._may[presented_token(request)]

    def _health(self, _: Request) -> Answer:
        health = {
            "status": "ok",
            "uptime_seconds": 0,
            "queue_depth": len(self._jobs.outstanding()),
            "plugins_loaded": len(self._catalog.plugins),
            "plugins_circuit_open": 0,
            "version": "dev",
        }
        return says(200, health | ({"posture": "gateway"} if self._version == "N" else {}))

    def _plugin(self, _: Request, name: str) -> Answer:
        if name not in self._catalog.plugins:
            raise Refused(404, "plugin not found")
        return says(200, self._catalog.detail(name))

    def _call(self, request: Request, plugin: str, command: str) -> Answer:
        """Twice the same is two jobs: nothing in a request makes it one (measured of Ductile)."""
        if plugin not in self._catalog.plugins:
            raise Refused(400, "plugin not found")
        if (known := self._catalog.command(plugin, command)) is None:
            raise Refused(400, "command not supported by plugin")
        if known["type"] != "read" and not self._allowed(request, "write"):
            raise Refused(403, "insufficient scope")
        payload = _payload(request)
        if not isinstance(payload, dict):
            if command == "handle":
                raise Refused(400, "payload must be a JSON object")
            payload = {}  # anything but an object is accepted and does not reach the plugin
        names = {"plugin": plugin, "command": command}
        job = Job(plugin, command, payload, "api")
        job_id = self._enqueue(job, "job.enqueued", names | {"direct": True})
        return says(202, {"job_id": job_id, "status": "queued"} | names, enqueued=True)

    def _pipeline(self, request: Request, name: str) -> Answer:
        if (pipeline := self._catalog.pipelines.get(name)) is None:
            raise Refused(404, "pipeline not found")
        if not isinstance(payload := _payload(request), dict):
            raise Refused(400, "payload must be a JSON object")
        job_id = self._enqueue(Job(pipeline.plugin, "handle", payload, "api"), "pipeline.enqueued", {"pipeline": name})
        queued = {"job_id": job_id, "status": "queued", "plugin": "pipeline", "command": name}
        return says(202, queued, enqueued=True)

    def _job(self, request: Request, job_id: str) -> Answer:
        if (job := self._jobs.get(job_id)) is None:
            raise Refused(404, "job not found")
        return _or_blank(lambda: shown(job, *_JOB, with_result=self._allowed(request, "result")))

    def _tree(self, request: Request, job_id: str) -> Answer:
        whole = self._allowed(request, "result")
        names = _IN_TREE if whole else tuple(name for name in _IN_TREE if name != "last_error")
        return _or_blank(
            lambda: [
                shown(job, *names, with_result=whole) | ({"parent_job_id": job.parent} if job.parent else {})
                for job in self._jobs.tree(job_id)
            ]
        )

    def _list(self, request: Request) -> Answer:
        return says(200, listing.jobs(self._jobs, request.query, most=200 if self._version == "N" else None))

    def _logs(self, request: Request) -> Answer:
        whole = self._allowed(request, "result")
        return _or_blank(lambda: listing.logs(self._jobs, request.query, whole=whole))

    def _events(self, request: Request) -> Answer:
        last = request.headers.get("last-event-id", "")
        hub = self._hub()
        return Answer(200, b"", "text/event-stream", stream=lambda: hub.follow(int(last) if last.isdecimal() else 0))


def _payload(request: Request) -> Any:
    """Nothing of a chunked body is read: such a call runs without its payload (measured of Ductile)."""
    if not request.sized or not request.body:
        return {}
    try:
        body = json.loads(request.body)
    except ValueError as error:
        raise Refused(400, "invalid JSON body") from error
    if not isinstance(body, dict | None):
        raise Refused(400, "invalid JSON body")
    payload = (body or {}).get("payload")
    return {} if payload is None else payload


def _or_blank(body: Callable[[], Any]) -> Answer:
    """Stdout that was not JSON fails to be encoded once the head is out: 200 with an empty body."""
    try:
        return says(200, body())
    except ValueError:
        return Answer(200)
