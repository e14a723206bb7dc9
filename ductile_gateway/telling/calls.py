"""Tells of each call: a line of the log at its begin and its answer, its spans, and what is counted.

The spans are children of the attempt that the request is of. Their ids are derived, so that a repeated span is the
same. They are kept until the SDK is loaded, which takes a fifth of a second that no call is to wait.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from ductile_gateway.calls.call import Asked, ToolCall, ToolOutcome
from ductile_gateway.ductile.settings import owner
from ductile_gateway.ductile.starts import Sent
from ductile_gateway.telling.metrics import GatewayMetrics
from groundwork.service.beginning import loaded
from groundwork.service.machine import in_daemon_thread, utc_now
from groundwork.service.serving import head_start
from groundwork.telemetry.settings import Receiver, TelemetrySettings
from groundwork.telemetry.span import Kind, Span, Value, span_id
from schemas import keys, subjects

MOST_KEPT, AT_ONCE = 2048, 512
EVERY_S, LAST_WITHIN_S = 1.0, 2.0

Ended = Callable[[Span], None]
"""Takes a span that has ended; returns at once and raises nothing."""

log = logging.getLogger(__name__)


class _Sending:
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._send: Callable[[Sequence[Span]], bool] | None = None
        self.kept = deque[Span](maxlen=MOST_KEPT)

    async def keep_sending(self) -> None:
        await head_start()
        while True:
            await asyncio.sleep(EVERY_S)
            await self.send()

    async def send(self) -> None:
        try:
            while self.kept:
                await in_daemon_thread(self._send_batch, name="traces")
        except Exception:
            log.exception("spans are not sent")

    def _send_batch(self) -> None:
        if self._send is None:
            sender = loaded("groundwork.telemetry.sending:SpanSender")(self._receiver, subjects.SERVICE_GATEWAY)
            self._send = sender.send
        self._send([self.kept.popleft() for _ in range(min(AT_ONCE, len(self.kept)))])


@contextlib.asynccontextmanager
async def open_spans(settings: TelemetrySettings) -> AsyncIterator[Ended | None]:
    """Takes spans inside the context; None where they go nowhere. The oldest are lost where too many wait. On leaving,
    what is left is sent."""
    receiver = settings.receiver("traces")
    if receiver is None:
        yield None
        return
    sending = _Sending(receiver)
    task = asyncio.create_task(sending.keep_sending())
    try:
        yield sending.kept.append
    finally:
        task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WITHIN_S):
                await sending.send()


LONGEST_ERROR = 100

log = logging.getLogger(__name__)


class CallsTold:
    """Fills the port Observer, and hears of starts. `ended` takes spans; `urls`: of each Ductile, by name."""

    def __init__(self, metrics: GatewayMetrics, ended: Ended | None, *, urls: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._ended = ended
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
        if self._ended and asked.trace.sampled and was_run:
            self._ended(job_span(asked, outcome, job.began_at or since, job.ended_at or now))

    def known(self, asked: Asked) -> None:
        self._metrics.dedupe.add("request")
        log.debug("call answered before", extra=self._line(asked, "call_answered", "answered->answered"))

    def sent(self, call: ToolCall, sent: Sent) -> None:
        self._metrics.sent(sent)
        if self._ended and call.asked.trace.sampled:
            self._ended(sent_span(call.asked, sent, url=self._urls[owner(call.asked.route, self._urls)]))

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
    }
    name, error = f"POST {sent.path}", None if sent.fate == "accepted" else sent.fate
    id_of = f"sent {sent.began_at.isoformat()}"
    return _span(asked, id_of, name, (sent.began_at, sent.ended_at), attributes, error, kind="client")


def job_span(asked: Asked, outcome: ToolOutcome, began_at: datetime, ended_at: datetime) -> Span:
    job = outcome.job
    attributes: dict[str, Value | None] = {
        "agentic.job_id": job.job_id,
        "agentic.job_attempts": job.attempts,
        "process.exit.code": job.exit_code,
    }
    error = (outcome.error_class or "tool_error")[:LONGEST_ERROR] if outcome.status == "error" else None
    name = f"job {asked.route} {asked.request.tool_command}"
    return _span(asked, "job", name, (began_at, ended_at), attributes, error)


def _span(
    asked: Asked,
    id_of: str,
    name: str,
    times: tuple[datetime, datetime],
    attributes: Mapping[str, Value | None],
    error: str | None,
    *,
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
        "error.type": error or None,
        **attributes,
    }
    of = keys.request(request.run_id, request.step, request.attempt, request.task, request.round)
    return Span(
        trace_id=asked.trace.trace_id,
        span_id=span_id(f"{of} {id_of}"),
        parent_id=asked.trace.span_id or None,
        name=name,
        kind=kind,
        started_at=times[0],
        ended_at=times[1],
        attributes={name: value for name, value in known.items() if value is not None},
        error=error,
    )
