"""Fake Ductile in virtual time. It may lose answers, forget jobs, or be away."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas import subjects
from tests.ductile.fake.api import PATH, Api, accept
from tests.ductile.fake.jobs import Job as Job
from tests.ductile.fake.jobs import Queue
from tests.ductile.fake.server import STREAM, Refused, Request, says
from tests.ductile.under_test import TOKENS, Peer
from tests.kit.http_server import Response
from tests.sim.machines.time import Scheduler
from tests.sim.servers.callers import PEER_SECRET
from tests.sim.servers.http_server import Exchange, HttpServer

Json = dict[str, Any]
Play = Callable[[Job], Json]
"""Returns a plugin's answer to a job in Ductile's plugin protocol, such as `{"status": "ok", "result": "done"}`."""


@dataclass(frozen=True)
class Plugin:
    """Plugin with one command `handle`. `tier` is `read` or `write`. `plays` returns the answer of a run. `echoes`: its
    result names the call, so that a call whose answer was lost can be found."""

    tier: str
    plays: Play
    takes_s: float = 0.05
    first_takes_s: float | None = None
    """Seconds of the first attempt of a call, if it is slower than the others."""
    echoes: bool = True
    output: str = "trusted"

    def lasts_s(self, job: Job) -> float:
        return self.first_takes_s if self.first_takes_s and job.call.endswith(":1") else self.takes_s


class Jobs(Queue):
    """Runs each job once; records its effect before its end can be read."""

    def __init__(self, scheduler: Scheduler, plugins: Mapping[str, Plugin]) -> None:
        super().__init__()
        self.on_run: Callable[[Job], None] = lambda _: None
        self.on_end: Callable[[Job], None] = lambda _: None
        self._scheduler = scheduler
        self._plugins = plugins
        self._forgotten: set[str] = set()

    def enqueue(self, job: Job) -> str:
        job.job_id, job.created_at = f"job-{len(self._queue) + 1}", self._now()
        self._queue[job.job_id] = job
        self._scheduler.after(0.01, lambda: self._run(job))
        return job.job_id

    def get(self, job_id: str) -> Job | None:
        job = super().get(job_id)
        if job and job.completed_at and self._scheduler.chance("job forgotten"):
            self._forgotten.add(job_id)
        return None if job_id in self._forgotten else job

    def _run(self, job: Job) -> None:
        plugin = self._plugins[job.plugin]
        answer = plugin.plays(job) | ({"call": job.call} if plugin.echoes else {})
        job.status, job.started_at, job.result = "running", self._now(), json.dumps(answer).encode()
        self.on_run(job)
        status = "succeeded" if answer.get("status") == "ok" else "failed"
        self._scheduler.after(plugin.lasts_s(job), lambda: self._end(job, status))

    def _end(self, job: Job, status: str) -> None:
        job.status, job.completed_at = status, self._now()
        self.on_end(job)

    def _now(self) -> str:
        return self._scheduler.wall().isoformat()


class Ductile:
    def __init__(self, scheduler: Scheduler, plugins: Mapping[str, Plugin], token: str) -> None:
        self.jobs = Jobs(scheduler, plugins)
        self.jobs.on_end = self._tell_end
        self.on_relayed: Callable[[Json], None] = lambda _: None
        self.lose_next_answer = False
        self.server = HttpServer(self._answer)
        manifests = {name: _manifest(name, plugin) for name, plugin in plugins.items()}
        self._api = Api(self.jobs, manifests, {}, version="M", tokens={token: TOKENS["gateway"]})
        accepts = (*subjects.ENDINGS, subjects.WAITING, subjects.REOPENED, subjects.PROGRESS)
        self._peer = Peer("agentic-gateway", "v1", PEER_SECRET, "/ingest/peer/agentic-gateway", accepts)
        self._scheduler = scheduler
        self._streams: list[Exchange] = []

    def goes_away(self, seconds: float) -> None:
        self.server.up = False
        for exchange in list(self.server.open):
            exchange.connection.cut()
        self._scheduler.after(seconds, lambda: setattr(self.server, "up", True))

    def _answer(self, request: Request, exchange: Exchange) -> Response | None:
        chance = self._scheduler.chance
        if chance("Ductile busy"):
            return says(503, {"error": "busy"})
        if request.path == "/events":
            self._streams.append(exchange)
            return Response(200, b"", STREAM)
        if request.method != "POST" or not request.path.startswith("/plugin/"):
            return self._answer_of_api(request)
        if chance("job not started"):
            exchange.connection.cut()
            return None
        started = self._answer_of_api(request)
        if chance("start unheard") or self.lose_next_answer:
            self.lose_next_answer = False
            exchange.connection.cut()
            return None
        return started

    def _answer_of_api(self, request: Request) -> Response:
        try:
            if not PATH.fullmatch(request.path):
                return self._api.answer(request)
            answer = accept(request, self._peer, {}, self.jobs)
        except Refused as refused:
            return refused.answer
        self.on_relayed(request.json())
        return answer

    def _tell_end(self, job: Job) -> None:
        for exchange in self._streams:
            exchange.send_event(f"job.{'completed' if job.status == 'succeeded' else 'failed'}", {"job_id": job.job_id})


def _manifest(name: str, plugin: Plugin) -> Json:
    output = {"type": "object", "x-output": plugin.output}
    commands = [{"name": "handle", "type": plugin.tier, "output_schema": output}]
    return {"name": name, "version": "1.0.0", "protocol": 2, "description": name, "commands": commands}
