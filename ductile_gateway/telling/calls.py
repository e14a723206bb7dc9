"""Tells of each call: a line of the log at its begin and its answer, its spans, and what is counted.

The spans are children of the attempt that the request is of. Their ids are derived, so that a repeated span is the
same. They are kept until the SDK is loaded, which takes a fifth of a second that no call is to wait.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from urllib.parse import urlsplit

from ductile_gateway.calls.call import Asked, ToolCall, ToolOutcome
from ductile_gateway.ductile.settings import owner
from ductile_gateway.ductile.starts import Sent
from ductile_gateway.telling.metrics import GatewayMetrics
from groundwork.service.beginning import loaded
from groundwork.service.machine import in_daemon_thread, utc_now
from groundwork.service.serving import head_start
from groundwork.telemetry.settings import Receiver
from groundwork.telemetry.span import Kind, Span, Value, span_id
from schemas import keys, subjects

MOST_KEPT, AT_ONCE = 2048, 512
EVERY_S, LAST_WITHIN_S = 1.0, 2.0

LONGEST_ERROR = 100

log = logging.getLogger(__name__)


class Spans:
    """On their way to a receiver, if there is one. The oldest are lost where too many wait."""

    def __init__(self, receiver: Receiver | None) -> None:
        self._receiver = receiver
        self._kept = deque[Span](maxlen=MOST_KEPT)
        self._sender = cache(
            lambda: loaded("groundwork.telemetry.sending:SpanSender")(receiver, subjects.SERVICE_GATEWAY)
        )

    def take(self, span: Span) -> None:
        if self._receiver:
            self._kept.append(span)

    async def keep_sending(self) -> None:
        await head_start()
        while self._receiver:
            await asyncio.sleep(EVERY_S)
            await self._send()

    async def send_the_last(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WITHIN_S):
                await self._send()

    async def _send(self) -> None:
        try:
            while self._kept:
                await in_daemon_thread(self._send_some, name="traces")
        except Exception:
            log.exception("spans are not sent")

    def _send_some(self) -> None:
        self._sender().send([self._kept.popleft() for _ in range(min(AT_ONCE, len(self._kept)))])


class CallsTold:
    """Fills the port Observer, and hears of starts. `urls`: of each Ductile, by name."""

    def __init__(self, metrics: GatewayMetrics, spans: Spans, *, urls: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._spans = spans
        self._urls = urls
        self._began: dict[str, datetime] = {}

    def begun(self, asked: Asked) -> None:
        now = self._began[asked.key] = utc_now()
        self._metrics.waits.record((now - asked.request.requested_at).total_seconds(), asked.request.tool)
        log.info("call begun", extra=self._line(asked, "call_begun", "asked->begun"))

    def put_off(self, asked: Asked) -> None:
        self._metrics.retries.add("call", "try_again")
        log.debug("call put off", extra=self._line(asked, "call_put_off", "asked->asked"))

    def answered(self, asked: Asked, outcome: ToolOutcome) -> None:
        now, began_at, job = utc_now(), self._began.pop(asked.key, None), outcome.job
        since, was_run = began_at or job.began_at or now, bool(job.job_id or job.began_at)
        self._metrics.answered(asked, outcome, (now - since).total_seconds())
        transition = "begun->answered" if began_at or was_run else "asked->answered"
        told: dict[str, object] = {"status": outcome.status, "error_class": outcome.error_class}
        told |= {"job_id": job.job_id, "attempts": job.attempts, "exit_code": job.exit_code}
        log.info("call answered", extra=self._line(asked, "call_answered", transition) | told)
        if asked.trace.sampled and was_run:
            self._spans.take(job_span(asked, outcome, job.began_at or since, job.ended_at or now))

    def known(self, asked: Asked) -> None:
        self._metrics.dedupe.add("request")
        log.debug("call answered before", extra=self._line(asked, "call_answered", "answered->answered"))

    def sent(self, call: ToolCall, sent: Sent) -> None:
        self._metrics.sent(sent)
        if call.asked.trace.sampled:
            self._spans.take(sent_span(call.asked, sent, url=self._urls[owner(call.asked.route, self._urls)]))

    def _line(self, asked: Asked, event: str, transition: str) -> dict[str, object]:
        took = (utc_now() - asked.request.requested_at).total_seconds()
        facts = {"event": event, "state_transition": transition, "latency_ms": max(0, round(took * 1000))}
        return asked.facts() | facts


def sent_span(asked: Asked, sent: Sent, *, url: str) -> Span:
    """One request to the Ductile at `url` that was to start the call."""
    address = urlsplit(url)
    attributes: dict[str, Value | None] = {
        "http.request.method": "POST",
        "url.template": sent.path,
        "server.address": address.hostname or "",
        "server.port": address.port or {"https": 443}.get(address.scheme, 80),
        "http.response.status_code": sent.status,
        "agentic.job_id": sent.job_id,
        "error.type": None if sent.fate == "accepted" else sent.fate,
    }
    name, times = f"POST {sent.path}", (sent.began_at, sent.ended_at)
    return _span(asked, name, times, attributes, id_of=f"sent {sent.began_at.isoformat()}", kind="client")


def job_span(asked: Asked, outcome: ToolOutcome, began_at: datetime, ended_at: datetime) -> Span:
    job = outcome.job
    attributes: dict[str, Value | None] = {
        "agentic.job_id": job.job_id,
        "agentic.job_attempts": job.attempts,
        "process.exit.code": job.exit_code,
        "error.type": (outcome.error_class or "tool_error")[:LONGEST_ERROR] if outcome.status == "error" else None,
    }
    name = f"job {asked.route} {asked.request.tool_command}"
    return _span(asked, name, (began_at, ended_at), attributes, id_of="job")


def _span(
    asked: Asked,
    name: str,
    times: tuple[datetime, datetime],
    attributes: Mapping[str, Value | None],
    *,
    id_of: str,
    kind: Kind = "internal",
) -> Span:
    request = asked.request
    known: dict[str, Value | None] = {
        "agentic.run_id": request.run_id,
        "agentic.step": request.step,
        "agentic.attempt": request.attempt,
        "gen_ai.tool.name": request.tool,
        "gen_ai.tool.call.id": asked.key,
        "agentic.task": request.task,
        "agentic.round": request.round,
        **attributes,
    }
    of, error = (
        keys.request(request.run_id, request.step, request.attempt, request.task, request.round),
        known["error.type"],
    )
    return Span(
        trace_id=asked.trace.trace_id,
        span_id=span_id(f"{of} {id_of}"),
        parent_id=asked.trace.span_id or None,
        name=name,
        kind=kind,
        started_at=times[0],
        ended_at=times[1],
        attributes={name: value for name, value in known.items() if value is not None},
        error=None if error is None else str(error),
    )
