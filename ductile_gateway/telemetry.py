"""Log lines, spans and metrics of calls.

The spans of a call are children of the agent's attempt. Their ids are derived, so a repeated span is the same. They are
queued until the SDK is loaded, which takes a fifth of a second. Metrics have few series, and none for a run, a call or
a text: docs/OPERATIONS.md.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from ductile_gateway.calls.call import CallRequest, ToolCall, ToolOutcome
from ductile_gateway.ductile.jobs import DuctileHealth, StartAttempt
from ductile_gateway.ductile.settings import owner
from groundwork.service.machine import in_daemon_thread, utc_now
from groundwork.sqlite.group_commit import StoreMetrics
from groundwork.telemetry.metrics import Attributes, Instruments, RepeatMetrics
from groundwork.telemetry.settings import SendSpans
from groundwork.telemetry.span import Span, Value, span_id
from schemas import keys
from schemas.values import dataclass

CALL_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
TOOL, OUTCOME, ERROR = "gen_ai.tool.name", "agentic.outcome", "error.type"
NONE = ""
"""Prometheus treats an empty label as absent."""
_OUTCOMES = {NONE: "ok", "not_allowed": "denied", "timeout": "timeout", "expired": "timeout"}
MOST_KEPT, AT_ONCE = 2048, 512
EVERY_S, LAST_WITHIN_S = 1.0, 2.0
LONGEST_ERROR = 100

log = logging.getLogger(__name__)


class GatewayMetrics(RepeatMetrics):
    def __init__(self) -> None:
        made = self.instruments = Instruments()
        self.store = StoreMetrics(made)
        super().__init__(
            made,
            "What is done again: calls put off, requests to Ductile that were not sent or lost, publishing",
            retries=[("call", "try_again"), ("ductile", "not_sent"), ("ductile", "lost")],
            dedupe=["request"],
        )
        text = "A call, from the start of its tool to its durable answer; 0 of one whose tool was not started"
        of_a_call = TOOL, OUTCOME, ERROR
        self.calls = made.histogram("agentic.gateway.call.duration", text, *of_a_call, bounds=CALL_SECONDS)
        text = "From the agent's request to the start of the tool: on the bus, for a place, for a Ductile that is away"
        self.waits = made.histogram("agentic.gateway.call.wait", text, TOOL, bounds=CALL_SECONDS)
        text = "A request to Ductile that was to start a call"
        self.starts = made.histogram("agentic.ductile.request.duration", text, OUTCOME)
        text = "How often Ductile itself ran a job again"
        self.reruns = made.counter("agentic.ductile.job.reruns", text, unit="{run}")
        text = "Tries to tell others of runs: arrived, unheard (no listener in Ductile), put_off, dead"
        of_a_try, known = ("agentic.target", OUTCOME), [(target, "dead") for target in ("relay", "callback")]
        self.deliveries = made.counter("agentic.outbound.deliveries", text, *of_a_try, unit="{try}", known=known)
        text = "Messages that claim to be the agent's, and are not signed by it"
        self.refused = made.counter("agentic.gateway.refused", text, unit="{message}")
        text = "Events from outside: accepted, ignored, refused, put_off"
        self.received = made.counter("agentic.ingress.events", text, "agentic.ingress", OUTCOME, unit="{event}")

    def observe_gateway(self, wrong: Callable[[], Mapping[str, str]], outbox: Callable[[], int]) -> None:
        """`wrong`: trouble by dependency, as in /readyz. `outbox`: number of deliveries that wait."""

        def ready() -> Mapping[Attributes, float]:
            return {(name,): float(not why) for name, why in wrong().items()}

        self.instruments.levels(
            ("agentic.ready", "1 for each dependency that works, else 0", "", ready, "agentic.check"),
            ("agentic.outbound.waiting", "Deliveries to others that wait", "{event}", outbox),
        )

    def observe_ductiles(self, healths: Mapping[str, DuctileHealth]) -> None:
        which = ("agentic.ductile.name",) if any(healths) else ()
        series = {(name,) if which else (): health for name, health in healths.items()}

        def up() -> Mapping[Attributes, float]:
            return {name: not health.trouble for name, health in series.items()}

        def queue() -> Mapping[Attributes, float]:
            return {name: health.queue for name, health in series.items() if health.queue is not None}

        text = "Jobs waiting or running in Ductile, of any client"
        self.instruments.levels(
            ("agentic.ductile.up", "1 while Ductile answers, else 0", "", up, *which),
            ("agentic.ductile.queue", text, "{job}", queue, *which),
        )

    def observe_calls(
        self, in_hand: Callable[[], int], waiting: Callable[[], Sequence[object]], open_intents: Callable[[], int]
    ) -> None:
        put_off = "Calls that are put off for some time"
        self.instruments.levels(
            ("agentic.gateway.calls.in_hand", "Requests in hand", "{call}", in_hand),
            ("agentic.gateway.calls.waiting", put_off, "{call}", lambda: len(waiting())),
            ("agentic.ledger.open", "Calls that were begun and are not answered", "{call}", open_intents),
        )


@dataclass(eq=False)
class Spans:
    """Queue of spans for the receiver, if there is one. Drops the oldest when it is full. Recovery begins before the
    first are sent."""

    send: SendSpans | None
    _kept: deque[Span] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))

    def wanted(self, asked: CallRequest) -> bool:
        return self.send is not None and asked.trace.sampled

    def take(self, span: Span) -> None:
        self._kept.append(span)

    async def keep_sending(self) -> None:
        while self.send:
            await asyncio.sleep(EVERY_S)
            await self._send()

    async def send_the_last(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WITHIN_S):
                await self._send()

    async def _send(self) -> None:
        while self.send and (some := list(islice(self._kept, AT_ONCE))):
            try:
                if not await in_daemon_thread(partial(self.send, some), name="traces"):
                    return
            except Exception:
                log.exception("spans cannot be sent: they are dropped")
            for span in some:
                if self._kept and self._kept[0] is span:  # else a full queue has dropped it
                    self._kept.popleft()


@dataclass(eq=False)
class CallTelemetry:
    metrics: GatewayMetrics
    spans: Spans
    urls: Mapping[str, str]
    _began: dict[str, datetime] = field(default_factory=dict)

    def begun(self, asked: CallRequest) -> None:
        now = self._began[asked.key] = utc_now()
        if len(self._began) > MOST_KEPT:  # another gateway has answered it
            del self._began[next(iter(self._began))]
        self.metrics.waits.record((now - asked.request.requested_at).total_seconds(), asked.request.tool)
        log.info("call begun", extra=_line(asked, "call_begun", "asked->begun", now))

    def put_off(self, asked: CallRequest) -> None:
        self.metrics.retries.add("call", "try_again")
        log.debug("call put off", extra=_line(asked, "call_put_off", "asked->asked", utc_now()))

    def answered(self, asked: CallRequest, outcome: ToolOutcome) -> None:
        now, began_at, job = utc_now(), self._began.pop(asked.key, None), outcome.job
        since, was_run = began_at or job.began_at or now, bool(job.job_id or job.began_at)
        error = outcome.error_class or "tool_error" if outcome.status == "error" else NONE
        label = outcome.status if outcome.status == "continuation" else _OUTCOMES.get(error, "error")
        self.metrics.calls.record((now - since).total_seconds(), asked.request.tool, label, error)
        if job.job_id and job.attempts:
            self.metrics.reruns.add(by=job.attempts - 1)
        transition = "begun->answered" if began_at or was_run else "asked->answered"
        facts: dict[str, object] = {"status": outcome.status, "error_class": outcome.error_class}
        facts |= {"job_id": job.job_id, "attempts": job.attempts, "exit_code": job.exit_code}
        log.info("call answered", extra=_line(asked, "call_answered", transition, now) | facts)
        if was_run and self.spans.wanted(asked):
            self.spans.take(job_span(asked, outcome, job.began_at or since, job.ended_at or now))

    def known(self, asked: CallRequest) -> None:
        self.metrics.dedupe.add("request")
        log.debug("call answered before", extra=_line(asked, "call_answered", "answered->answered", utc_now()))

    def sent(self, call: ToolCall, sent: StartAttempt) -> None:
        self.metrics.starts.record((sent.ended_at - sent.began_at).total_seconds(), sent.outcome)
        if sent.outcome in ("not_sent", "lost"):
            self.metrics.retries.add("ductile", sent.outcome)
        if self.spans.wanted(call.asked):
            self.spans.take(sent_span(call.asked, sent, url=self.urls[owner(call.asked.route, self.urls)]))


def _line(asked: CallRequest, event: str, transition: str, now: datetime) -> dict[str, object]:
    took = (now - asked.request.requested_at).total_seconds()
    facts = {"event": event, "state_transition": transition, "latency_ms": max(0, round(took * 1000))}
    return asked.facts | facts


def sent_span(asked: CallRequest, sent: StartAttempt, *, url: str) -> Span:
    address = urlsplit(url)
    attributes: dict[str, Value | None] = {
        "http.request.method": "POST",
        "url.template": sent.path,
        "server.address": address.hostname or "",
        "server.port": address.port or {"https": 443}.get(address.scheme, 80),
        "http.response.status_code": sent.status,
        "agentic.job_id": sent.job_id,
        "error.type": None if sent.outcome == "accepted" else sent.outcome,
    }
    times = {"started_at": sent.began_at, "ended_at": sent.ended_at}
    id_of, name = f"sent {sent.began_at.isoformat()}", f"POST {sent.path}"
    return _span(asked, id_of, attributes, name=name, kind="client", **times)


def job_span(asked: CallRequest, outcome: ToolOutcome, began_at: datetime, ended_at: datetime) -> Span:
    job = outcome.job
    attributes: dict[str, Value | None] = {
        "agentic.job_id": job.job_id,
        "agentic.job_attempts": job.attempts,
        "process.exit.code": job.exit_code,
        "error.type": (outcome.error_class or "tool_error")[:LONGEST_ERROR] if outcome.status == "error" else None,
    }
    name = f"job {asked.route} {asked.request.tool_command}"
    return _span(asked, "job", attributes, name=name, kind="internal", started_at=began_at, ended_at=ended_at)


def _span(asked: CallRequest, id_of: str, attributes: Mapping[str, Value | None], **facts: Any) -> Span:
    """`id_of`: the part of the call that the id follows from. `facts`: name, kind and times."""
    request = asked.request
    known: dict[str, Value | None] = {
        "agentic.run_id": request.run_id,
        "agentic.step": request.step,
        "agentic.attempt": request.attempt,
        TOOL: request.tool,
        "gen_ai.tool.call.id": asked.key,
        "agentic.task": request.task,
        "agentic.round": request.round,
        **attributes,
    }
    error = known[ERROR]
    of = keys.request(request.run_id, request.step, request.attempt, request.task, request.round)
    return Span(
        trace_id=asked.trace.trace_id,
        span_id=span_id(f"{of} {id_of}"),
        parent_id=asked.trace.span_id or None,
        attributes={name: value for name, value in known.items() if value is not None},
        error=None if error is None else str(error),
        **facts,
    )
