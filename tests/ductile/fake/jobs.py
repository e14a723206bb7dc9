"""The queue and the log of jobs, in memory, and GET /jobs and /job-logs. What is terminal is logged with its last
attempt."""

import json
import re
import threading
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.ductile.fake.wire import Refused

TERMINAL = frozenset({"succeeded", "failed", "timed_out", "skipped", "dead"})
_LISTED = ("job_id", "plugin", "command", "status", "created_at", "started_at", "completed_at", "attempt")
_LOGGED = ("job_id", "plugin", "command", "status", "attempt", "submitted_by", "created_at", "completed_at")


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

    def shown(self, *names: str, with_result: bool = True) -> dict[str, Any]:
        """These fields; what it does not have is absent. Raises ValueError for a result that is not JSON."""
        fields = {name: getattr(self, name) for name in names}
        if with_result and self.result:
            fields["result"] = json.loads(self.result)
        return {name: value for name, value in fields.items() if value is not None}

    def mentions(self, needle: str) -> bool:
        """As the LIKE of SQL does it: `_` stands for any character and `%` for any text."""
        pattern = re.escape(needle).replace("_", ".").replace("%", ".*")
        texts = (self.last_error or "", self.stderr or "", (self.result or b"").decode(errors="replace"))
        return any(re.search(pattern, text, re.IGNORECASE | re.DOTALL) for text in texts)


class Jobs:
    """All jobs by id, the oldest first. Who changes one holds the `lock`."""

    def __init__(self, *, outstanding_are_duplicates: bool) -> None:
        self.lock = threading.RLock()
        self._counts = {"succeeded"} | ({"queued", "running"} if outstanding_are_duplicates else set())
        self._queue: dict[str, Job] = {}
        self._log: dict[str, Job] = {}

    def add(self, job: Job) -> str | None:
        """Enqueue; or the id of the job that this one repeats.

        Version M knows a recent success only, N a queued or running job too. A failed one never counts.
        """
        with self.lock:
            for other in self._queue.values():
                if job.dedupe_key and other.target == job.target and other.status in self._counts:
                    return other.job_id
            self._queue[job.job_id] = job
            return None

    def get(self, job_id: str) -> Job | None:
        return self._queue.get(job_id)

    def update(self, job: Job, **fields: Any) -> None:
        """Change a job; a terminal status completes and logs it."""
        with self.lock:
            for name, value in fields.items():
                setattr(job, name, value)
            if job.status in TERMINAL:
                job.completed_at = now()
                self._log[job.job_id] = job

    def outstanding(self) -> list[Job]:
        """What is queued or running."""
        return [job for job in list(self._queue.values()) if job.status not in TERMINAL]

    def listed(self, query: Mapping[str, str], *, most: int | None) -> dict[str, Any]:
        """GET /jobs: newest first, finished or not, without payloads and results."""
        limit = _limit(query, most)
        found = _matching(self._queue.values(), query, "plugin", "command")
        return {"jobs": [job.shown(*_LISTED, with_result=False) for job in found[:limit]], "total": len(found)}

    def logged(self, query: Mapping[str, str], *, whole: bool) -> dict[str, Any]:
        """GET /job-logs: terminal jobs. Raises ValueError for unreadable results.

        `query` looks in results, errors and stderr, whatever the case; the request's payload is not searched.
        """
        limit, needle = _limit(query, 200), query.get("query", "").strip()
        names = (*_LOGGED, "last_error", "stderr") if whole else _LOGGED
        with_result = whole and query.get("include_result", "").lower() == "true"
        matching = _matching(self._log.values(), query, "job_id", "plugin", "command", "submitted_by")
        found = [job for job in matching if job.mentions(needle)]
        lines = [
            job.shown(*names, with_result=with_result) | {"log_id": f"{job.job_id}-{job.attempt}"}
            for job in found[:limit]
        ]
        return {"logs": lines, "total": len(found)}


def _limit(query: Mapping[str, str], most: int | None) -> int:
    raw = query.get("limit", "50").strip()
    if not raw.isdecimal() or int(raw) == 0:
        raise Refused(400, "limit must be a positive integer")
    if most is not None and int(raw) > most:
        raise Refused(400, f"limit must be <= {most}")
    return int(raw)


def _matching(jobs: Iterable[Job], query: Mapping[str, str], *names: str) -> list[Job]:
    wanted = {name: query[name] for name in names if query.get(name)}
    return [job for job in reversed(list(jobs)) if all(getattr(job, name) == value for name, value in wanted.items())]
