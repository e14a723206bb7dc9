"""Reads the status of Ductile jobs and the responses of plugins as verdicts. Pure.

An unknown status counts as unfinished. A job that Ductile has retried is not retryable unless its plugin says so. A
failed job with an ok response: the tool succeeded, and a later part failed.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue

from ductile_gateway.calls.artifacts import STDERR_BYTES, tail
from ductile_gateway.calls.call import JobFacts, ToolCall, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.plugins.response import outcome_of
from groundwork.service.secret import masked
from schemas.values import dataclass, replace

MOST_ATTEMPTS = 10**6
FINISHED = frozenset({"succeeded", "failed", "timed_out", "skipped", "dead"})
NO_ERROR = "it did not say what"
NEVER = datetime.min.replace(tzinfo=UTC)
_PROTOCOL = frozenset(
    {"status", "result", "error", "retry", "events", "state_updates", "logs"}
    | {"artifacts", "error_class", "continuation"}
)

Document = Mapping[str, JsonValue]


def objects(found: JsonValue) -> list[dict[str, JsonValue]]:
    """Objects of a list; none for anything else."""
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """One request to start a call. `path`: of the URL. `lost`: sent, and the outcome is unknown. `status`: of Ductile's
    own answer, if any."""

    path: str
    began_at: datetime
    ended_at: datetime
    outcome: Literal["accepted", "refused", "not_sent", "lost"]
    status: int | None = None
    job_id: str | None = None
    why: str = ""


OnStart = Callable[[ToolCall, StartAttempt], None]
"""Returns at once and raises nothing."""


@dataclass(eq=False)
class DuctileHealth:
    """`queue`: number of jobs waiting or running; None while it is unknown."""

    trouble: str = "it was not asked yet"
    queue: int | None = None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """`retrying`: an attempt has failed, and Ductile will make another."""

    retrying: bool = False


def read_job(job: Document) -> Unfinished | Verdict | None:
    """None for a finished job without result, or that failed although its plugin did not: the log has the error."""
    status, result = job.get("status"), job.get("result")
    if status not in FINISHED:
        return Unfinished(retrying=_is_retried(job))
    if status == "failed" and not (isinstance(result, dict) and result.get("status") == "error"):
        return None
    return None if status == "succeeded" and "result" not in job else _verdict(job)


def _is_retried(job: Document) -> bool:
    return job.get("status") == "queued" and "started_at" in job


def read_log(entries: Sequence[Document]) -> Unfinished | Verdict:
    """`entries`: of one job, newest first; none if it is unfinished."""
    return _verdict(entries[0]) if entries and entries[0].get("status") in FINISHED else Unfinished()


def read_tree(jobs: Sequence[Document]) -> Unfinished | Verdict:
    """Verdict on a pipeline by its tree of jobs: the first failure, else the result of the last step."""
    if not jobs or any(job.get("status") not in FINISHED for job in jobs):
        return Unfinished(retrying=any(map(_is_retried, jobs)))
    in_order = sorted(jobs, key=lambda job: next(_instants([job], "completed_at"), NEVER))
    for job in in_order:
        if job.get("status") not in ("succeeded", "skipped"):
            return _of_step(job)
    return _of_step(next((job for job in reversed(in_order) if job.get("status") == "succeeded"), in_order[-1]))


def facts_of(job_id: str, entries: Sequence[Document], *, is_error: bool, secrets: Sequence[str] = ()) -> JobFacts:
    """`entries`: of a job or of a pipeline's jobs, newest of each first. Ductile knows no exit code."""
    attempts = (entry.get("attempt") for entry in entries)
    most = max((number for number in attempts if isinstance(number, int) and number <= MOST_ATTEMPTS), default=None)
    texts = [entry.get("stderr") for entry in entries if entry.get("status") != "succeeded"] if is_error else []
    stderr = next((text for text in reversed(texts) if isinstance(text, str) and text.strip()), "")
    return JobFacts(
        job_id,
        attempts=most,
        stderr=tail(masked(stderr, secrets), STDERR_BYTES),
        began_at=min(_instants(entries, "created_at"), default=None),
        ended_at=max(_instants(entries, "completed_at"), default=None),
    )


def _instants(entries: Sequence[Document], name: str) -> Iterator[datetime]:
    for entry in entries:
        with contextlib.suppress(ValueError):
            yield instant(entry.get(name))


def instant(text: JsonValue) -> datetime:
    """Raises ValueError."""
    at = datetime.fromisoformat(str(text))
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def last_error(jobs: Sequence[Document]) -> str:
    errors = (job.get("last_error") for job in reversed(jobs) if job.get("status") not in FINISHED)
    return next((text for text in errors if isinstance(text, str) and text.strip()), NO_ERROR)


def _of_step(job: Document) -> Verdict:
    result, plugin = job.get("result"), job.get("plugin")
    if job.get("status") == "succeeded" and isinstance(result, dict) and not _has_response(job):
        return ToolOutcome("ok", text=f"the pipeline has ended with {plugin}", output=result)
    verdict = _verdict(job)
    return replace(verdict, said_by=plugin) if isinstance(verdict, ToolOutcome) and isinstance(plugin, str) else verdict


def _verdict(job: Document) -> Verdict:
    result = job.get("result")
    match job.get("status"):
        case "succeeded" if isinstance(result, dict):
            return _outcome(result)
        case "succeeded":
            return ToolOutcome("ok", text="The tool has succeeded, says Ductile, but its result cannot be read.")
        case "failed" if isinstance(result, dict) and _has_response(job):
            return _failed(job, result)
        case "failed":
            # The start may have failed, or only the output: the work may be done.
            return failed("bad_output", _message(job, "the job has failed in Ductile"), retryable=False)
        case "timed_out":
            return failed("timeout", _message(job, "the plugin exceeded Ductile's time limit"), retryable=False)
        case "skipped":
            reason = result.get("reason") if isinstance(result, dict) else None
            return ToolOutcome("ok", text=f"Skipped by Ductile: {reason}" if reason else "Skipped by Ductile.")
    return Unknown(_message(job, "Ductile was interrupted and has given the job up"))


def _has_response(job: Document) -> bool:
    """True if the plugin gave a response of the protocol. Only the log says what is wrong with another."""
    result = job.get("result")
    return isinstance(result, dict) and result.get("status") in ("ok", "error")


def _failed(job: Document, result: Document) -> ToolOutcome:
    outcome = _outcome(result)
    if outcome.status == "error":
        return replace(outcome, retryable=outcome.retryable and result.get("retry") is True)
    note = _message(job, "Ductile could not store its state or pass on its events")
    return replace(outcome, text=f"{outcome.text}\n[the tool has succeeded, but what follows from it failed: {note}]")


def _outcome(result: Document) -> ToolOutcome:
    """Outcome of a response. Its own fields (`output` may be one) and emitted events become the output, unless
    it has an `output` as we define it."""
    if isinstance(result.get("output"), dict):
        return outcome_of(result)
    outcome = outcome_of({name: value for name, value in result.items() if name != "output"})
    if outcome.status == "error":
        return outcome
    own = {name: value for name, value in result.items() if name not in _PROTOCOL}
    if result.get("output") is None:
        own.pop("output", None)
    if emitted := objects(result.get("events")):
        own["events"] = [{"type": event.get("type"), "payload": event.get("payload")} for event in emitted]
    return replace(outcome, output=own)


def _message(job: Document, otherwise: str) -> str:
    error = job.get("last_error")
    words = error.replace("\0", "\ufffd").strip() if isinstance(error, str) else ""
    return f"{otherwise}: {words}" if words else otherwise
