"""What Ductile answers to each request, apart from its relay ingress, faults and sockets."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.ductile.fake.catalog import Catalog, granted
from tests.ductile.fake.dispatch import Dispatcher
from tests.ductile.fake.jobs import Job, Jobs
from tests.ductile.fake.wire import Answer, Refused, Request, says

_JOB = ("job_id", "status", "plugin", "command", "started_at", "completed_at")
_IN_TREE = ("job_id", "plugin", "command", "status", "last_error", "started_at", "completed_at")


class Api:
    """One version of the HTTP API over these jobs, in one life of Ductile."""

    def __init__(
        self, jobs: Jobs, catalog: Catalog, life: Dispatcher, *, version: str, tokens: Mapping[str, Iterable[str]]
    ) -> None:
        self._jobs, self._catalog, self._life, self._version = jobs, catalog, life, version
        self._may = {token: granted(version, scopes) for token, scopes in tokens.items()}
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
            ("GET", r"/events", "follow", lambda _: Answer(200, b"", "text/event-stream", stream=life.follow)),
            ("GET", r"/config/view", "view", lambda _: says(200, {"service": {"name": "fake"}})),
        )

    def answer(self, request: Request) -> Answer:
        """Raises Refused."""
        here = [(route, found) for route in self._routes if (found := re.fullmatch(route[1], request.path))]
        if not here:
            return Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")
        for (method, _, permission, handle), found in here:
            if method == request.method:
                if permission and not self._allowed(request, permission):
                    raise Refused(403, "insufficient scope")
                return handle(request, *found.groups())
        return Answer(405, content_type=None, headers={"Allow": here[0][0][0]})

    def _allowed(self, request: Request, permission: str) -> bool:
        header = request.headers.get("authorization", "")
        if header and not header.startswith("Bearer "):
            raise Refused(401, "invalid Authorization header format")
        if not (token := header.removeprefix("Bearer ").strip()):
            raise Refused(401, "missing or invalid Authorization header")
        if token not in self._may:
            raise Refused(401, "invalid token")
        return permission in self._may[token]

    def _health(self, _: Request) -> Answer:
        told = {"status": "ok", "uptime_seconds": 0, "queue_depth": len(self._jobs.outstanding()), "version": "dev"}
        told |= {"plugins_loaded": len(self._catalog.plugins), "plugins_circuit_open": 0}
        return says(200, told | ({"posture": "gateway"} if self._version == "N" else {}))

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
        return self._queued(Job(plugin, command, payload, "api"), plugin, command)

    def _pipeline(self, request: Request, name: str) -> Answer:
        if (pipeline := self._catalog.pipelines.get(name)) is None:
            raise Refused(404, "pipeline not found")
        if not isinstance(payload := _payload(request), dict):
            raise Refused(400, "payload must be a JSON object")
        return self._queued(Job(pipeline.plugin, "handle", payload, "api"), "pipeline", name)

    def _queued(self, job: Job, plugin: str, command: str) -> Answer:
        told = {"job_id": self._life.enqueue(job), "status": "queued", "plugin": plugin, "command": command}
        return says(202, told)

    def _job(self, request: Request, job_id: str) -> Answer:
        if (job := self._jobs.get(job_id)) is None:
            raise Refused(404, "job not found")
        return _or_blank(lambda: job.shown(*_JOB, with_result=self._allowed(request, "result")))

    def _tree(self, request: Request, job_id: str) -> Answer:
        whole = self._allowed(request, "result")
        names = _IN_TREE if whole else tuple(name for name in _IN_TREE if name != "last_error")
        job = self._jobs.get(job_id)
        return _or_blank(lambda: [job.shown(*names, with_result=whole)] if job else [])

    def _list(self, request: Request) -> Answer:
        return says(200, self._jobs.listed(request.query, most=200 if self._version == "N" else None))

    def _logs(self, request: Request) -> Answer:
        return _or_blank(lambda: self._jobs.logged(request.query, whole=self._allowed(request, "result")))


def _payload(request: Request) -> Any:
    """Nothing of a chunked body is read: such a call runs without its payload (measured of Ductile)."""
    if not request.body:
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
