"""Runs jobs: attempts, retries and what becomes of them, and the stream that tells of it. One thread for each job."""

import contextlib
import json
import queue
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from tests.ductile.fake.behaviours import Behaviour, Outcome, answers
from tests.ductile.fake.jobs import Job, Jobs, now
from tests.ductile.probe.run import OUTPUT_LIMIT_BYTES
from tests.ductile.under_test import Execution

MAX_ATTEMPTS = 4
"""Whatever the configuration says (measured of Ductile, version M)."""
ORPHANED = f"Job marked dead during crash recovery: max attempts ({MAX_ATTEMPTS}) reached"
RING, BUFFERED_PER_READER, KEEP_ALIVE_SECONDS = 256, 128, 15.0


class Dispatcher:
    """One life of Ductile: after `end` nothing is recorded any more, though what runs goes on."""

    def __init__(
        self,
        jobs: Jobs,
        behaviours: Mapping[tuple[str, str], Behaviour],
        executions: list[Execution],
        backoff_seconds: float,
    ) -> None:
        self._jobs = jobs
        self._behaviours, self._executions = behaviours, executions
        self._backoff_seconds = backoff_seconds
        self._ended = threading.Event()
        self._turns: dict[object, threading.Lock] = {}
        self._numbers = count(1)
        self._frames: deque[bytes] = deque(maxlen=RING)
        self._readers: list[queue.Queue[bytes | None]] = []

    def enqueue(self, job: Job) -> str:
        """The id of the job, or of the one that it repeats."""
        if repeated := self._jobs.add(job):
            return repeated
        self._tell("job.enqueued", job, submitted_by=job.submitted_by)
        self._start(job)
        return job.job_id

    def recover(self) -> None:
        """What a stop interrupted is queued again with one attempt more, or `dead` when there is none left."""
        for job in self._jobs.outstanding():
            if job.status == "running":
                gone = {"status": "dead", "last_error": ORPHANED}
                fate = {"status": "queued"} if job.attempt < MAX_ATTEMPTS else gone
                self._jobs.update(job, attempt=job.attempt + 1, **fate)
            if job.status == "queued":
                self._start(job)

    def end(self) -> None:
        """Drop what is going on, and end every stream."""
        with self._jobs.lock:
            self._ended.set()
            for reader in self._readers:
                reader.queue.clear()
                reader.put_nowait(None)

    def follow(self) -> Iterator[bytes]:
        """The frames that the ring holds, then those to come. A reader that is too slow loses events."""
        reader: queue.Queue[bytes | None] = queue.Queue(BUFFERED_PER_READER)
        with self._jobs.lock:
            old = b"".join(self._frames)
            self._readers.append(reader)
        yield old
        while not self._ended.is_set():
            try:
                frame = reader.get(timeout=KEEP_ALIVE_SECONDS)
            except queue.Empty:
                frame = b": keep-alive\n\n"
            if frame is None:
                return
            yield frame

    def _start(self, job: Job) -> None:
        threading.Thread(target=self._run, args=(job,), daemon=True).start()

    def _run(self, job: Job) -> None:
        with self._jobs.lock:
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
        result = None if status in ("timed_out", "dead") else outcome.stdout[:OUTPUT_LIMIT_BYTES]
        kind = {"succeeded": "job.completed", "dead": "job.failed"}.get(status, f"job.{status}")
        self._tell(kind, job, status=status, **({"error": error} if error else {}))
        self._record(job, status=status, result=result, last_error=error, stderr=outcome.stderr)

    def _record(self, job: Job, **fields: Any) -> bool:
        with self._jobs.lock:
            if not self._ended.is_set():
                self._jobs.update(job, **fields)
            return not self._ended.is_set()

    def _tell(self, kind: str, job: Job, **fields: Any) -> None:
        data = {"job_id": job.job_id, "plugin": job.plugin, "command": job.command} | fields
        with self._jobs.lock:
            frame = f"id: {next(self._numbers)}\nevent: {kind}\ndata: {json.dumps(data)}\n\n".encode()
            self._frames.append(frame)
            for reader in self._readers:
                with contextlib.suppress(queue.Full):
                    reader.put_nowait(frame)


def judged(outcome: Outcome) -> tuple[str, str | None, bool]:
    """The status of a spawn that ended so, its error, and whether trying again is ruled out."""
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


def _fault(said: Any) -> str:
    """What Ductile finds wrong with what a plugin said in JSON."""
    if not isinstance(said, dict):
        return "plugin output is not valid JSON: not an object"
    if not (status := said.get("status")):
        return "response missing required field: status"
    if status not in ("ok", "error"):
        return f"invalid status value: \"{status}\" (must be 'ok' or 'error')"
    if not said.get("error" if status == "error" else "result"):
        return f"response has status={status} but no {'error' if status == 'error' else 'result'} message"
    return ""
