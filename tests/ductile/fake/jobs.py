"""The queue and the log of jobs, in memory. What is terminal is logged once, with its last attempt."""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

TERMINAL = frozenset({"succeeded", "failed", "timed_out", "skipped", "dead"})


def now() -> str:
    """RFC 3339, UTC."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class Job:
    """payload: of the request (of `handle`: of its event). result: the raw stdout, JSON or not."""

    plugin: str
    command: str
    payload: Mapping[str, Any]
    submitted_by: str
    dedupe_key: str | None = None
    parent: str | None = None
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
    def target(self) -> tuple[str | None, str, str]:
        """What deduplication goes by: the key counts for one plugin and command alone (measured of Ductile)."""
        return (self.dedupe_key, self.plugin, self.command)


def shown(job: Job, *names: str, with_result: bool = True) -> dict[str, Any]:
    """These fields of a job; what it does not have is absent. Raises ValueError for a result that is not JSON."""
    fields = {name: getattr(job, name) for name in names}
    if with_result and job.result:
        fields["result"] = json.loads(job.result)
    return {name: value for name, value in fields.items() if value is not None}


class Jobs:
    """All jobs by id; every change is seen by whoever waits for one."""

    def __init__(self, *, outstanding_are_duplicates: bool) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._outstanding_are_duplicates = outstanding_are_duplicates
        self._queue: dict[str, Job] = {}
        self._log: dict[str, Job] = {}

    def add(self, job: Job) -> str | None:
        """Enqueue; or the id of the job that this one repeats.

        Version M knows a recent success only, N a queued or running job too. A failed one never counts.
        """
        statuses = {"succeeded"} | ({"queued", "running"} if self._outstanding_are_duplicates else set())
        with self.changed:
            for other in self._queue.values():
                if job.dedupe_key and other.target == job.target and other.status in statuses:
                    return other.job_id
            self._queue[job.job_id] = job
            return None

    def get(self, job_id: str) -> Job | None:
        """The job, or None where it is unknown or pruned."""
        return self._queue.get(job_id)

    def newest(self) -> Iterator[Job]:
        """What is in the queue, finished or not, newest first."""
        return reversed(list(self._queue.values()))

    def logged(self) -> Iterator[Job]:
        """What is terminal, newest first, pruned or not."""
        return reversed(list(self._log.values()))

    def tree(self, job_id: str) -> list[Job]:
        """The job and its descendants; nothing for an unknown one."""
        root = self.get(job_id)
        children = [job for job in self._queue.values() if job.parent == job_id]
        return [] if root is None else [root, *(one for child in children for one in self.tree(child.job_id))]

    def update(self, job: Job, **fields: Any) -> None:
        """Change a job; a terminal status completes and logs it."""
        with self.changed:
            for name, value in fields.items():
                setattr(job, name, value)
            if job.status in TERMINAL:
                job.completed_at = now()
                self._log[job.job_id] = job
            self.changed.notify_all()

    def prune(self, job_id: str) -> None:
        """Forget a finished job but for its line in the log."""
        with self.changed:
            del self._queue[job_id]

    def outstanding(self) -> list[Job]:
        """What is queued or running, oldest first."""
        return [job for job in self._queue.values() if job.status not in TERMINAL]
