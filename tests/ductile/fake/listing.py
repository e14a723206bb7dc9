"""GET /jobs and GET /job-logs: filters, and what a line shows."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tests.ductile.fake.jobs import Job, Jobs, shown
from tests.ductile.fake.wire import Refused

_LISTED = ("job_id", "plugin", "command", "status", "created_at", "started_at", "completed_at", "attempt")
_LOGGED = ("job_id", "plugin", "command", "status", "attempt", "submitted_by", "created_at", "completed_at")


def jobs(known: Jobs, query: Mapping[str, str], *, most: int | None) -> dict[str, Any]:
    """What GET /jobs answers: newest first, finished or not, without payloads and results. Raises Refused."""
    limit = _limit(query, most)
    found = list(_matching(known.newest(), query, "plugin", "command"))
    return {"jobs": [shown(job, *_LISTED, with_result=False) for job in found[:limit]], "total": len(found)}


def logs(known: Jobs, query: Mapping[str, str], *, whole: bool) -> dict[str, Any]:
    """What GET /job-logs answers: terminal jobs, pruned ones too. Raises Refused, ValueError for unreadable results.

    `query` looks in results, errors and stderr, whatever the case; the request's payload is not searched.
    """
    limit = _limit(query, 200)
    found = [
        job
        for job in _matching(known.logged(), query, "job_id", "plugin", "command", "submitted_by")
        if _mentions(job, query.get("query", "").strip())
    ]
    names = (*_LOGGED, "last_error", "stderr") if whole else _LOGGED
    with_result = whole and query.get("include_result", "").lower() == "true"
    lines = [
        shown(job, *names, with_result=with_result) | {"log_id": f"{job.job_id}-{job.attempt}"} for job in found[:limit]
    ]
    return {"logs": lines, "total": len(found)}


def _limit(query: Mapping[str, str], most: int | None) -> int:
    raw = query.get("limit", "50").strip()
    if not raw.isdecimal() or int(raw) == 0:
        raise Refused(400, "limit must be a positive integer")
    if most is not None and int(raw) > most:
        raise Refused(400, f"limit must be <= {most}")
    return int(raw)


def _matching(found: Iterable[Job], query: Mapping[str, str], *names: str) -> Iterable[Job]:
    wanted = {name: query[name] for name in names if query.get(name)}
    return (job for job in found if all(getattr(job, name) == value for name, value in wanted.items()))


def _mentions(job: Job, needle: str) -> bool:
    """As the LIKE of SQL does it: `_` stands for any character and `%` for any text."""
    pattern = re.escape(needle).replace("_", ".").replace("%", ".*")
    texts = (job.last_error or "", job.stderr or "", (job.result or b"").decode(errors="replace"))
    return any(re.search(pattern, text, re.IGNORECASE | re.DOTALL) for text in texts)
