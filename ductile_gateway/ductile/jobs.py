"""Reads a Ductile job's status and its plugin's response as a verdict. Pure.

A status that is not known is waited for. A job that Ductile has retried is not worth another attempt unless its plugin
says so. `failed` beside a response that is ok means that what follows the tool went wrong, never the tool.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import JsonValue

from ductile_gateway.calls.artifacts import STDERR_BYTES, end_of, masked, printable
from ductile_gateway.calls.call import JobFacts, ToolCall, ToolOutcome, Unknown, Verdict, failed
from ductile_gateway.plugins.response import MAX_MESSAGE, outcome_of
from schemas.values import dataclass, replace

FINISHED = frozenset({"succeeded", "failed", "timed_out", "skipped", "dead"})
MOST_ATTEMPTS = 10**6
_PROTOCOL = frozenset(
    {"status", "result", "error", "retry", "events", "state_updates", "logs"}
    | {"output", "artifacts", "error_class", "continuation"}
)

Document = Mapping[str, JsonValue]


Fate = Literal["accepted", "refused", "not_sent", "lost"]
"""`lost`: it was sent, and no answer says what became of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request to start a call. `path`: that of the URL. `status`: of Ductile's answer, where it gave one of its
    own."""

    path: str
    began_at: datetime
    ended_at: datetime
    fate: Fate
    status: int | None = None
    job_id: str | None = None
    why: str = ""


ToldOfSent = Callable[[ToolCall, Sent], None]
"""Returns at once and raises nothing."""
Queue = Callable[[], int | None]
"""The number of jobs waiting or running in a Ductile; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Going:
    """Not finished. `retrying`: an attempt has failed, and Ductile will make another."""

    retrying: bool = False


@dataclass(frozen=True, slots=True)
class SeeLog:
    """Finished, and the log of jobs has to tell how: the status is there, the result or the error is not."""


def read_job(job: Document) -> Going | SeeLog | Verdict:
    status = job.get("status")
    if status not in FINISHED:
        return Going(retrying=status == "queued" and "started_at" in job)
    if status in ("succeeded", "failed") and ("result" not in job or (status == "failed" and not _answers(job))):
        return SeeLog()
    return _verdict(job)


def read_log(entries: Sequence[Document]) -> Going | Verdict:
    """What the log says of a job, newest entry first; without an entry it is not finished."""
    return _verdict(entries[0]) if entries and entries[0].get("status") in FINISHED else Going()


def read_tree(jobs: Sequence[Document]) -> Going | Verdict:
    """What a pipeline has come to, by its tree of jobs: the worst that happened, else the last step's result."""
    if not jobs or any(job.get("status") not in FINISHED for job in jobs):
        return Going()
    in_order = sorted(jobs, key=lambda job: str(job.get("completed_at") or ""))
    for job in in_order:
        if job.get("status") not in ("succeeded", "skipped"):
            return _of_step(job)
    return _of_step(next((job for job in reversed(in_order) if job.get("status") == "succeeded"), in_order[-1]))


def facts_of(job_id: str, entries: Sequence[Document], *, is_error: bool, secrets: Sequence[str] = ()) -> JobFacts:
    """What the log has of a job, or of those of a pipeline, newest entry of each first. Ductile tells no exit code."""
    attempts = (entry.get("attempt") for entry in entries)
    most = max((number for number in attempts if isinstance(number, int) and number <= MOST_ATTEMPTS), default=None)
    said = [entry.get("stderr") for entry in entries if entry.get("status") != "succeeded"] if is_error else []
    stderr = next((text for text in reversed(said) if isinstance(text, str) and text.strip()), "")
    return JobFacts(
        job_id,
        attempts=most,
        stderr=end_of(masked(stderr, secrets), STDERR_BYTES),
        began_at=min(_instants(entries, "created_at"), default=None),
        ended_at=max(_instants(entries, "completed_at"), default=None),
    )


def _instants(entries: Sequence[Document], name: str) -> Iterator[datetime]:
    for entry in entries:
        with contextlib.suppress(ValueError):
            said = datetime.fromisoformat(str(entry.get(name)))
            yield said if said.tzinfo else said.replace(tzinfo=UTC)


def last_error(jobs: Sequence[Document]) -> str:
    said = [job.get("last_error") for job in jobs if job.get("status") not in FINISHED]
    told = [printable(text, MAX_MESSAGE) for text in said if isinstance(text, str) and text.strip()]
    return told[-1] if told else "it did not say what"


def _of_step(job: Document) -> Verdict:
    result, plugin = job.get("result"), job.get("plugin")
    if job.get("status") == "succeeded" and isinstance(result, dict) and not _answers(job):
        return ToolOutcome("ok", text=f"the pipeline has ended with {plugin}", output=result)
    verdict = _verdict(job)
    return replace(verdict, said_by=plugin) if isinstance(verdict, ToolOutcome) and isinstance(plugin, str) else verdict


def _verdict(job: Document) -> Verdict:
    result = job.get("result")
    match job.get("status"):
        case "succeeded" if isinstance(result, dict):
            return _answered(result)
        case "succeeded":
            return ToolOutcome("ok", text="The tool has succeeded, says Ductile, but its result cannot be read.")
        case "failed" if isinstance(result, dict) and _answers(job):
            return _failed(job, result)
        case "failed":
            # What failed may have been the start, the output or anything between: the work may be done.
            return failed("bad_output", _said(job, "the plugin gave no valid response"), retryable=False)
        case "timed_out":
            return failed("timeout", _said(job, "the plugin exceeded Ductile's time limit"), retryable=False)
        case "skipped":
            reason = result.get("reason") if isinstance(result, dict) else None
            return ToolOutcome("ok", text=f"Skipped by Ductile: {reason}" if reason else "Skipped by Ductile.")
    return Unknown(_said(job, "Ductile was interrupted and has given the job up"))


def _answers(job: Document) -> bool:
    """Returns whether its plugin gave a response of the protocol. What was wrong with another is in the log alone."""
    result = job.get("result")
    return isinstance(result, dict) and result.get("status") in ("ok", "error")


def _failed(job: Document, result: Document) -> ToolOutcome:
    outcome = _answered(result)
    if outcome.status == "error":
        return replace(outcome, retryable=outcome.retryable and result.get("retry") is True)
    note = _said(job, "Ductile could not store its state or pass on its events")
    return replace(outcome, text=f"{outcome.text}\n[the tool has succeeded, but what follows from it failed: {note}]")


def _answered(result: Document) -> ToolOutcome:
    """What a response says; beside `output`, its own fields and the events that the plugin emitted are for programs."""
    outcome = outcome_of(result)
    if outcome.status == "error" or "output" in result:
        return outcome
    output = {name: value for name, value in result.items() if name not in _PROTOCOL}
    events = result.get("events")
    emitted = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
    if emitted:
        output["events"] = [{"type": event.get("type"), "payload": event.get("payload")} for event in emitted]
    return replace(outcome, output=output)


def _said(job: Document, otherwise: str) -> str:
    error = job.get("last_error")
    words = error.replace("\0", "\ufffd").strip() if isinstance(error, str) else ""
    return f"{otherwise}: {words}"[:MAX_MESSAGE] if words else otherwise
