"""Jobs of the fake: the queue, the threads that run them, the log and the event stream."""

import json
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.ductile.fake.behaviours import Behaviour, Outcome, answers
from tests.ductile.probe.run import OUTPUT_LIMIT_BYTES
from tests.ductile.under_test import Execution

TERMINAL = frozenset({"succeeded", "failed", "timed_out", "skipped", "dead"})
MAX_ATTEMPTS = 4
"""The configuration cannot change it (measured of Ductile, version M)."""
ORPHANED = f"Job marked dead during crash recovery: max attempts ({MAX_ATTEMPTS}) reached"
KEEP_ALIVE_SECONDS = 15.0
_TOLD = ("job_id", "status", "plugin", "command", "started_at", "completed_at")
_LISTED = (*_TOLD, "created_at", "attempt")
_LOGGED = ("job_id", "plugin", "command", "status", "attempt", "submitted_by", "created_at", "completed_at")


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class Job:
    """payload: of the request (of `handle`: of its event). result: raw stdout, JSON or not."""

    plugin: str
    command: str
    payload: Mapping[str, Any]
    submitted_by: str
    dedupe_key: str | None = None
    job_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    created_at: str = field(default_factory=now)
    status: str = "queued"
    attempt: int = 1
    started_at: str | None = None
    completed_at: str | None = None
    result: bytes | None = None
    last_error: str | None = None
    stderr: str | None = None

    @property
    def call(self) -> str:
        return str(self.payload.get("agentic_call_id", ""))

    @property
    def target(self) -> tuple[str | None, str, str]:
        """Deduplication: a key counts for one plugin and command alone (measured of Ductile)."""
        return (self.dedupe_key, self.plugin, self.command)

    def shown(self, *names: str, with_result: bool = True) -> dict[str, Any]:
        """Named fields without missing ones. Raises ValueError for a result that is not JSON."""
        fields = {name: getattr(self, name) for name in names}
        if with_result and self.result:
            fields["result"] = json.loads(self.result)
        return {name: value for name, value in fields.items() if value is not None}

    def mentions(self, needle: str) -> bool:
        """True for a match in result, error or stderr, like SQL's LIKE: `_` stands for any character."""
        pattern = re.escape(needle).replace("_", ".")
        texts = (self.last_error or "", self.stderr or "", (self.result or b"").decode(errors="replace"))
        return any(re.search(pattern, text, re.IGNORECASE | re.DOTALL) for text in texts)


class Queue:
    """All jobs by id, the oldest first."""

    def __init__(self) -> None:
        self._queue: dict[str, Job] = {}

    def get(self, job_id: str) -> Job | None:
        return self._queue.get(job_id)

    def outstanding(self) -> list[Job]:
        return [job for job in list(self._queue.values()) if job.status not in TERMINAL]

    def enqueue(self, job: Job) -> str:
        """Returns the id of the job, or of the one that it repeats."""
        self._queue[job.job_id] = job
        return job.job_id

    def lose(self) -> None:
        self._queue.clear()

    def follow(self) -> Iterator[bytes]:
        return iter(())

    def listed(self, query: Mapping[str, str]) -> dict[str, Any]:
        """GET /jobs: newest first, without payloads and results."""
        found = _matching(self._queue.values(), query)
        return {"jobs": [job.shown(*_LISTED, with_result=False) for job in found], "total": len(found)}

    def logged(self, query: Mapping[str, str]) -> dict[str, Any]:
        """GET /job-logs: terminal jobs. Raises ValueError for unreadable results."""
        ended = [job for job in _matching(self._queue.values(), query) if job.status in TERMINAL]
        found = [job for job in ended if job.mentions(query.get("query", ""))]
        names, with_result = (*_LOGGED, "last_error", "stderr"), "include_result" in query
        lines = [job.shown(*names, with_result=with_result) | {"log_id": job.job_id} for job in found]
        return {"logs": lines, "total": len(found)}


class Jobs(Queue):
    """Runs jobs in threads. After `end` nothing is recorded any more, though plugins go on."""

    def __init__(
        self,
        behaviours: Mapping[tuple[str, str], Behaviour],
        executions: list[Execution],
        backoff_seconds: float,
    ) -> None:
        super().__init__()
        self._behaviours, self._executions = behaviours, executions
        self._backoff_seconds = backoff_seconds
        self._changed = threading.Condition(threading.RLock())
        self._turns: dict[object, threading.Lock] = {}
        self._frames: list[bytes] = []
        self._life = threading.Event()

    def enqueue(self, job: Job) -> str:
        """Returns the id of the job, or of the succeeded one that it repeats."""
        with self._changed:
            for other in self._queue.values():
                if job.dedupe_key and other.target == job.target and other.status == "succeeded":
                    return other.job_id
            self._queue[job.job_id] = job
        self._tell("job.enqueued", job)
        self._start(job)
        return job.job_id

    def end(self) -> None:
        """Drops running jobs and ends every stream."""
        with self._changed:
            self._life.set()
            self._changed.notify_all()

    def begin_again(self) -> None:
        """Queues interrupted jobs for another attempt; those without one left are `dead`."""
        self._life, self._turns, self._frames = threading.Event(), {}, []
        for job in self.outstanding():
            if job.status == "running":
                gone = {"status": "dead", "last_error": ORPHANED}
                fate = {"status": "queued"} if job.attempt < MAX_ATTEMPTS else gone
                self._record(self._life, job, attempt=job.attempt + 1, **fate)
            if job.status == "queued":
                self._start(job)

    def follow(self) -> Iterator[bytes]:
        life, frames, sent = self._life, self._frames, 0
        while not life.is_set():
            with self._changed:
                if not life.is_set() and len(frames) == sent:
                    self._changed.wait(KEEP_ALIVE_SECONDS)
                new, sent = b"".join(frames[sent:]), len(frames)
            yield new or b": keep-alive\n\n"

    def _start(self, job: Job) -> None:
        threading.Thread(target=self._run, args=(job, self._life), daemon=True).start()

    def _run(self, job: Job, life: threading.Event) -> None:
        with self._changed:
            turn = self._turns.setdefault(job.target if job.dedupe_key else job.job_id, threading.Lock())
        with turn:  # jobs with the same key and target never run at the same time
            while self._attempt(job, life):
                life.wait(self._backoff_seconds * 2 ** (job.attempt - 2))

    def _attempt(self, job: Job, life: threading.Event) -> bool:
        """Runs it once. True if another attempt follows."""
        if not self._record(life, job, status="running", started_at=now()):
            return False
        self._tell("job.started", job)
        execution = Execution(job.plugin, job.command, job.payload, job.job_id, job.attempt)
        self._executions.append(execution)
        outcome = self._behaviours.get((job.plugin, job.command), answers())(execution)
        status, error, final = judged(outcome)
        if not final and job.attempt < MAX_ATTEMPTS:
            return self._record(life, job, status="queued", attempt=job.attempt + 1, last_error=error)
        result = None if status in ("timed_out", "dead") else outcome.stdout[:OUTPUT_LIMIT_BYTES]
        kind = {"succeeded": "job.completed", "dead": "job.failed"}.get(status, f"job.{status}")
        if not life.is_set():
            self._tell(kind, job)  # shortly before it is written down
        self._record(life, job, status=status, result=result, last_error=error, stderr=outcome.stderr)
        return False

    def _record(self, life: threading.Event, job: Job, **fields: Any) -> bool:
        """Changes a job. False after the end."""
        with self._changed:
            for name, value in fields.items() if not life.is_set() else ():
                setattr(job, name, value)
            if job.status in TERMINAL:
                job.completed_at = job.completed_at or now()
            return not life.is_set()

    def _tell(self, kind: str, job: Job) -> None:
        data = json.dumps({"job_id": job.job_id, "plugin": job.plugin, "command": job.command})
        with self._changed:
            self._frames.append(f"id: {len(self._frames) + 1}\nevent: {kind}\ndata: {data}\n\n".encode())
            self._changed.notify_all()


def judged(outcome: Outcome) -> tuple[str, str | None, bool]:
    """Status of the job after this outcome, its error, and True if a retry is ruled out."""
    if outcome.ends is not None:
        return outcome.ends, outcome.last_error, outcome.ends != "timed_out"
    if len(outcome.stdout) > OUTPUT_LIMIT_BYTES:
        return "failed", "plugin spawn failed: plugin stdout exceeded max size 10485760 bytes", outcome.never_again
    try:
        response: Any = json.loads(outcome.stdout) if outcome.stdout else None
        fault = _fault(response) if outcome.stdout else "plugin produced no output on stdout"
    except ValueError as error:
        fault = f"plugin output is not valid JSON: {error}"
    if fault:
        return "failed", f"plugin spawn failed: decode response: {fault}", outcome.never_again
    if response["status"] == "error":
        return "failed", response["error"], outcome.never_again or response.get("retry") is False
    return "succeeded", None, True


def _fault(said: dict[str, Any]) -> str:
    """Ductile's objection to the JSON of a plugin."""
    if (status := said["status"]) not in ("ok", "error"):
        return f"invalid status value: \"{status}\" (must be 'ok' or 'error')"
    if not said.get("error" if status == "error" else "result"):
        return f"response has status={status} but no {'error' if status == 'error' else 'result'} message"
    return ""


def _matching(jobs: Iterable[Job], query: Mapping[str, str]) -> list[Job]:
    names = ("job_id", "plugin", "command", "submitted_by")
    wanted = {name: query[name] for name in names if query.get(name)}
    found = [job for job in reversed(list(jobs)) if all(getattr(job, name) == value for name, value in wanted.items())]
    return found[: int(query.get("limit", "50"))]
