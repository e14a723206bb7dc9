"""Runs jobs: attempts, retries and what becomes of them. One thread for each job, dropped when its life has ended."""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tests.ductile.fake.behaviours import OUTPUT_LIMIT_BYTES, Behaviour, Outcome, answers
from tests.ductile.fake.catalog import Catalog
from tests.ductile.fake.hub import Hub
from tests.ductile.fake.jobs import Job, Jobs, now
from tests.ductile.under_test import Execution

MAX_ATTEMPTS = 4
"""Whatever the configuration says (measured of Ductile, version M)."""
ORPHANED = f"Job marked dead during crash recovery: max attempts ({MAX_ATTEMPTS}) reached"


class Dispatcher:
    """One life of Ductile: after `end` nothing is recorded any more, though what runs goes on."""

    def __init__(
        self,
        jobs: Jobs,
        catalog: Catalog,
        *,
        hub: Hub,
        behaviours: Mapping[tuple[str, str], Behaviour],
        executions: list[Execution],
        backoff_seconds: float,
    ) -> None:
        self._jobs, self._catalog, self._hub = jobs, catalog, hub
        self._behaviours, self._executions = behaviours, executions
        self._backoff_seconds = backoff_seconds
        self._ended = threading.Event()
        self._turns: dict[object, threading.Lock] = {}

    def recover(self) -> None:
        """What a stop interrupted is queued again with one attempt more, or `dead` when there is none left."""
        for job in self._jobs.outstanding():
            if job.status == "running":
                gone = {"status": "dead", "last_error": ORPHANED}
                fate = {"status": "queued"} if job.attempt < MAX_ATTEMPTS else gone
                self._jobs.update(job, attempt=job.attempt + 1, **fate)
            if job.status == "queued":
                self.start(job)

    def start(self, job: Job) -> None:
        """Run the job in the background."""
        threading.Thread(target=self._run, args=(job,), daemon=True).start()

    def end(self) -> None:
        """Drop what is going on."""
        with self._jobs.changed:
            self._ended.set()

    def _run(self, job: Job) -> None:
        turn = self._turns.setdefault(job.target if job.dedupe_key else job.job_id, threading.Lock())
        with turn:  # jobs with the same key and target never run at the same time
            while self._attempt(job):
                self._ended.wait(self._backoff_seconds * 2 ** (job.attempt - 2))

    def _attempt(self, job: Job) -> bool:
        """Run it once. True if there is to be another attempt."""
        if not self._record(job, status="running", started_at=now()):
            return False
        self._tell("job.started", job, attempt=job.attempt, submitted_by=job.submitted_by)
        execution = Execution(job.plugin, job.command, job.payload, job.job_id, job.attempt)
        self._executions.append(execution)
        outcome = self._behaviours.get((job.plugin, job.command), answers())(execution)
        status, error, final = judged(outcome)
        if not final and job.attempt < MAX_ATTEMPTS:
            self._tell("job.retry_scheduled", job, attempt=job.attempt, max_attempts=MAX_ATTEMPTS)
            return self._record(job, status="queued", attempt=job.attempt + 1, last_error=error)
        self._finish(job, outcome, status=status, error=error)
        return False

    def _finish(self, job: Job, outcome: Outcome, *, status: str, error: str | None) -> None:
        if self._ended.is_set():
            return
        events = json.loads(outcome.stdout).get("events") or [] if status == "succeeded" else []
        children = [child for event in events for child in self._routed(job, event)]
        result = None if status in ("timed_out", "dead") else outcome.stdout[:OUTPUT_LIMIT_BYTES]
        kind = {"succeeded": "job.completed", "dead": "job.failed"}.get(status, f"job.{status}")
        self._tell(kind, job, status=status, **({"error": error} if error else {}))
        self._record(job, status=status, result=result, last_error=error, stderr=outcome.stderr)
        for child in children:
            self.start(child)

    def _routed(self, job: Job, event: Mapping[str, Any]) -> list[Job]:
        """What a job emits makes jobs, whatever started it: they are there before it is terminal, and begin after."""
        found = [
            Job(pipeline.plugin, "handle", event["payload"], "route", event.get("dedupe_key"), parent=job.job_id)
            for pipeline in self._catalog.listening(event["type"])
        ]
        return [child for child in found if self._jobs.add(child) is None]

    def _record(self, job: Job, **fields: Any) -> bool:
        with self._jobs.changed:
            if not self._ended.is_set():
                self._jobs.update(job, **fields)
            return not self._ended.is_set()

    def _tell(self, kind: str, job: Job, **fields: Any) -> None:
        self._hub.publish(kind, {"job_id": job.job_id, "plugin": job.plugin, "command": job.command} | fields)


def judged(outcome: Outcome) -> tuple[str, str | None, bool]:
    """The status of a spawn that ended so, its error, and whether trying again is ruled out."""
    if outcome.ends is not None:
        return outcome.ends, outcome.last_error, outcome.ends != "timed_out"
    if len(outcome.stdout) > OUTPUT_LIMIT_BYTES:
        return "failed", "plugin spawn failed: plugin stdout exceeded max size 10485760 bytes", outcome.never_again
    response, fault = _response(outcome.stdout)
    if fault is not None:
        return "failed", f"plugin spawn failed: decode response: {fault}", outcome.never_again
    if response["status"] == "error":
        return "failed", response["error"], outcome.never_again or response.get("retry") is False
    return "succeeded", None, True


def _response(stdout: bytes) -> tuple[dict[str, Any], str | None]:
    """What the plugin said, or what is wrong with it."""
    if not stdout:
        return {}, "plugin produced no output on stdout"
    try:
        response = json.loads(stdout)
    except ValueError as error:
        return {}, f"plugin output is not valid JSON: {error}"
    for holds, fault in _RULES:
        if not holds(response):
            return {}, fault.format_map(response) if isinstance(response, dict) else fault
    return response, None


_RULES: tuple[tuple[Callable[[Any], bool], str], ...] = (
    (lambda said: isinstance(said, dict), "plugin output is not valid JSON: not an object"),
    (lambda said: bool(said.get("status")), "response missing required field: status"),
    (lambda said: said["status"] in ("ok", "error"), "invalid status value: \"{status}\" (must be 'ok' or 'error')"),
    (lambda said: said["status"] == "ok" or bool(said.get("error")), "response has status=error but no error message"),
    (
        lambda said: said["status"] == "error" or bool(said.get("result")),
        "response has status=ok but no result message",
    ),
)
