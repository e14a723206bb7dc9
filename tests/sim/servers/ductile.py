"""A Ductile that keeps a memory of what its plugins did, and may lie: lose answers, forget jobs, be away.

A job of Ductile runs its plugin again by itself only where the plugin says so; the record of runs is the world's.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tests.sim.machines.time import Scheduler
from tests.sim.servers.callers import PEER_SECRET
from tests.sim.servers.http_server import STREAM, Answer, Exchange, HttpServer, Request

Json = dict[str, Any]
Play = Callable[["Job"], Json]
"""What a plugin answers to a job: Ductile's plugin protocol, such as `{"status": "ok", "result": "done"}`."""


@dataclass
class Faults:
    """Each as the chance of one time."""

    answer_lost: float = 0.0
    """A start is carried out, and the connection breaks before it is answered."""
    request_lost: float = 0.0
    """The connection breaks before a start is read."""
    refused: float = 0.0
    """503 to whatever is asked."""
    forgets: float = 0.0
    """A finished job is unknown from then on, but for its line in the lists."""
    wrong_job: float = 0.0
    """A start is answered with the id of an older job of another command."""


@dataclass(eq=False)
class Job:
    id: str
    plugin: str
    command: str
    payload: Json
    created_at: datetime
    status: str = "queued"
    answer: Json = field(default_factory=dict)
    completed_at: datetime | None = None
    forgotten: bool = False

    @property
    def call(self) -> str:
        """The id of the call that asked for it, which the gateway sends along."""
        return str(self.payload.get("agentic_call_id", ""))


@dataclass(frozen=True)
class Plugin:
    """`commands`: by name, `read` or `write`. `plays`: what a run of it answers. `echoes`: whether its result names the
    call, so that one whose answer was lost can be found."""

    commands: Mapping[str, str]
    plays: Play
    takes_s: float = 0.05
    first_takes_s: float | None = None
    """Of the first attempt of a call, where it is not as quick as the others."""
    echoes: bool = True
    output: str = "trusted"

    def lasts_s(self, job: Job) -> float:
        return self.first_takes_s if self.first_takes_s and job.call.endswith(":1") else self.takes_s


class Ductile:
    def __init__(self, scheduler: Scheduler, plugins: Mapping[str, Plugin]) -> None:
        self.faults = Faults()
        self.jobs: dict[str, Job] = {}
        self.on_run: Callable[[Job], None] = lambda _: None
        """Told of every run of a plugin: of what was done to the outside."""
        self.on_relayed: Callable[[Json], None] = lambda _: None
        """Told of every event that was relayed to it."""
        self.lose_next_answer = False
        self.server = HttpServer(self._answer)
        self.plugins = plugins
        self._scheduler = scheduler
        self._streams: list[Exchange] = []

    def goes_away(self, seconds: float) -> None:
        self.server.up = False
        for exchange in list(self.server.open):
            exchange.connection.cut()
        self._scheduler.after(seconds, self._comes_back)

    def _comes_back(self) -> None:
        self.server.up = True

    def _answer(self, request: Request, exchange: Exchange) -> Answer | None:
        chance = self._scheduler.chance
        if chance(self.faults.refused):
            return Answer.says(503, {"error": "busy"})
        if request.path == "/events":
            self._streams.append(exchange)
            return Answer(200, b"", STREAM)
        if request.method == "POST" and (found := re.fullmatch(r"/plugin/([^/]+)/([^/]+)", request.path)):
            if chance(self.faults.request_lost):
                exchange.connection.cut()
                return None
            started = self._start(request, *found.groups())
            if chance(self.faults.answer_lost) or self.lose_next_answer:
                self.lose_next_answer = False
                exchange.connection.cut()
                return None
            return started
        if request.method == "POST" and request.path.startswith("/ingest/"):
            return self._relayed(request)
        return self._told(request)

    def _relayed(self, request: Request) -> Answer:
        about = "\n".join(["POST", request.path, request.headers["x-ductile-timestamp"], ""]).encode()
        signature = hmac.new(PEER_SECRET.encode(), about + request.body, hashlib.sha256).hexdigest()
        if signature != request.headers["x-ductile-signature"]:
            return Answer.says(403, {"error": "forbidden"})
        self.on_relayed(request.json())
        return Answer.says(202, {"status": "accepted"})

    def _start(self, request: Request, plugin: str, command: str) -> Answer:
        if plugin not in self.plugins:
            return Answer.says(400, {"error": "plugin not found"})
        if command not in self.plugins[plugin].commands:
            return Answer.says(400, {"error": "command not supported by plugin"})
        older = [job.id for job in self.jobs.values() if (job.plugin, job.command) != (plugin, command)]
        payload = request.json().get("payload") or {}
        named = f"job-{len(self.jobs) + 1}"
        job = Job(named, plugin, command, payload, self._scheduler.wall())
        self.jobs[job.id] = job
        self._scheduler.after(0.01, lambda: self._run(job))
        told = older[-1] if older and self._scheduler.chance(self.faults.wrong_job) else job.id
        return Answer.says(202, {"job_id": told, "status": "queued", "plugin": plugin, "command": command})

    def _run(self, job: Job) -> None:
        job.status = "running"
        plugin = self.plugins[job.plugin]
        answer = plugin.plays(job)
        job.answer = {**answer, "call": job.call} if plugin.echoes else answer
        self.on_run(job)
        self._scheduler.after(plugin.lasts_s(job), lambda: self._end(job))

    def _end(self, job: Job) -> None:
        job.status = "succeeded" if job.answer.get("status") == "ok" else "failed"
        job.completed_at = self._scheduler.wall()
        for exchange in self._streams:
            exchange.send_event(f"job.{'completed' if job.status == 'succeeded' else 'failed'}", {"job_id": job.id})

    def _told(self, request: Request) -> Answer:
        match request.path.strip("/").split("/"):
            case ["healthz"]:
                waiting = sum(job.completed_at is None for job in self.jobs.values())
                return Answer.says(200, {"status": "ok", "queue_depth": waiting, "version": "dev"})
            case ["skills"]:
                return Answer.says(200, {"skills": []})
            case ["plugin", name, *_]:
                return self._plugin(name, request.method)
            case ["pipeline", _]:
                return Answer.says(404, {"error": "pipeline not found"})
        return self._of_jobs(request)

    def _of_jobs(self, request: Request) -> Answer:
        match request.path.strip("/").split("/"):
            case ["jobs"]:
                return Answer.says(200, {"jobs": [self._line(job) for job in self._listed(request)]})
            case ["job-logs"]:
                return Answer.says(200, {"logs": [self._line(job, whole=True) for job in self._logged(request)]})
            case ["job", job_id, *_]:
                return self._job(job_id)
        return Answer(404, b"404 page not found\n", "text/plain")

    def _plugin(self, name: str, method: str) -> Answer:
        if method == "GET" and name in self.plugins:
            return Answer.says(200, self._detail(name))
        return Answer.says(404 if method == "GET" else 400, {"error": "plugin not found"})

    def _detail(self, name: str) -> Json:
        plugin = self.plugins[name]
        commands = [
            {"name": command, "type": tier, "output_schema": {"type": "object", "x-output": plugin.output}}
            for command, tier in plugin.commands.items()
        ]
        return {"name": name, "version": "1.0.0", "protocol": 2, "description": name, "commands": commands}

    def _job(self, job_id: str) -> Answer:
        job = self.jobs.get(job_id)
        if job and job.completed_at and self._scheduler.chance(self.faults.forgets):
            job.forgotten = True
        known = job and not job.forgotten
        return (
            Answer.says(200, self._line(job, whole=True))
            if job and known
            else Answer.says(404, {"error": "job not found"})
        )

    def _listed(self, request: Request) -> list[Job]:
        wanted = {name: request.query[name] for name in ("plugin", "command") if name in request.query}
        found = [job for job in self.jobs.values() if all(getattr(job, n) == v for n, v in wanted.items())]
        return list(reversed(found))[: int(request.query.get("limit", "50"))]

    def _logged(self, request: Request) -> list[Job]:
        ended = [job for job in self._listed(request) if job.completed_at]
        if job_id := request.query.get("job_id"):
            return [job for job in ended if job.id == job_id]
        return [job for job in ended if request.query.get("query", "") in str(job.answer)]

    def _line(self, job: Job, *, whole: bool = False) -> Json:
        told: Json = {"job_id": job.id, "plugin": job.plugin, "command": job.command, "status": job.status}
        told |= {"created_at": job.created_at.isoformat(), "attempt": 1}
        if job.completed_at:
            told["completed_at"] = job.completed_at.isoformat()
        if whole and job.completed_at:
            told["result"] = job.answer
        return told
