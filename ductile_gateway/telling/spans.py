"""The gateway's spans of a call. Pure.

All are children of the attempt that the request is of. Ids are derived, so that a repeated span is the same.
"""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import urlsplit

from ductile_gateway.calls.call import Asked, ToolOutcome
from ductile_gateway.ductile.starts import Sent
from groundwork.telemetry.span import Attributes, Context, Kind, Span, Value, span_id
from schemas import keys

LONGEST_ERROR = 100


def sent_span(asked: Asked, sent: Sent, *, url: str) -> Span:
    """One request to the Ductile at `url` that was to start the call."""
    address = urlsplit(url)
    known: dict[str, Value | None] = {
        "http.response.status_code": sent.status,
        "agentic.job_id": sent.job_id,
        "server.port": address.port or {"https": 443}.get(address.scheme, 80),
    }
    return _span(
        asked.trace,
        f"{_request_key(asked)} sent {sent.began_at.isoformat()}",
        f"POST {sent.path}",
        sent.began_at,
        sent.ended_at,
        kind="client",
        attributes=_of_request(asked)
        | {"http.request.method": "POST", "url.template": sent.path, "server.address": address.hostname or ""}
        | _present(known),
        error=None if sent.fate == "accepted" else sent.fate,
    )


def job_span(asked: Asked, outcome: ToolOutcome, began_at: datetime, ended_at: datetime) -> Span:
    job, request = outcome.job, asked.request
    known: dict[str, Value | None] = {
        "agentic.job_id": job.job_id,
        "agentic.job_attempts": job.attempts,
        "process.exit.code": job.exit_code,
    }
    return _span(
        asked.trace,
        f"{_request_key(asked)} job",
        f"job {asked.route} {request.tool_command}",
        began_at,
        ended_at,
        attributes=_of_request(asked) | _present(known),
        error=(outcome.error_class or "tool_error")[:LONGEST_ERROR] if outcome.status == "error" else None,
    )


def _request_key(asked: Asked) -> str:
    request = asked.request
    return keys.request(request.run_id, request.step, request.attempt, request.task, request.round)


def _of_request(asked: Asked) -> dict[str, Value]:
    request = asked.request
    named: dict[str, Value] = {
        "agentic.run_id": request.run_id,
        "agentic.step": request.step,
        "agentic.attempt": request.attempt,
        "gen_ai.tool.name": request.tool,
        "gen_ai.tool.call.id": asked.key,
    }
    return named | _present({"agentic.task": request.task, "agentic.round": request.round})


def _present(values: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value is not None}


def _span(
    trace: Context,
    id_of: str,
    name: str,
    began_at: datetime,
    ended_at: datetime,
    *,
    kind: Kind = "internal",
    attributes: Attributes,
    error: str | None = None,
) -> Span:
    return Span(
        trace_id=trace.trace_id,
        span_id=span_id(id_of),
        parent_id=trace.span_id or None,
        name=name,
        kind=kind,
        started_at=began_at,
        ended_at=ended_at,
        attributes={**attributes, "error.type": error} if error else attributes,
        error=error,
    )
