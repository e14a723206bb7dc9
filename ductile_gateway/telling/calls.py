"""Tells of each call: a line of the log at its begin and its answer, its spans, and what is counted."""

import logging
from collections.abc import Mapping
from datetime import datetime

from ductile_gateway.calls.call import Asked, ToolCall, ToolOutcome
from ductile_gateway.ductile.settings import owner
from ductile_gateway.ductile.starts import Sent
from ductile_gateway.ports import Clock
from ductile_gateway.telling import spans
from ductile_gateway.telling.metrics import GatewayMetrics
from ductile_gateway.telling.sending import Ended

log = logging.getLogger(__name__)


class CallsTold:
    """Fills the port Observer, and hears of starts. `ended` takes spans; `urls`: of each Ductile, by
    name."""

    def __init__(self, metrics: GatewayMetrics, ended: Ended | None, *, urls: Mapping[str, str], clock: Clock) -> None:
        self._metrics = metrics
        self._ended = ended
        self._urls = urls
        self._clock = clock
        self._began: dict[str, datetime] = {}

    def begun(self, asked: Asked) -> None:
        now = self._began[asked.key] = self._clock.now()
        self._metrics.begun(asked, (now - asked.request.requested_at).total_seconds())
        log.info("call begun", extra=self._line(asked, "call_begun", "asked->begun"))

    def put_off(self, asked: Asked) -> None:
        self._metrics.put_off()
        log.debug("call put off", extra=self._line(asked, "call_put_off", "asked->asked"))

    def answered(self, asked: Asked, outcome: ToolOutcome) -> None:
        now, began_at = self._clock.now(), self._began.pop(asked.key, None)
        since = began_at or outcome.job.began_at or now
        self._metrics.answered(asked, outcome, (now - since).total_seconds())
        transition = "begun->answered" if began_at or _was_run(outcome) else "asked->answered"
        told = {"status": outcome.status, "error_class": outcome.error_class} | _of_job(outcome)
        log.info("call answered", extra=self._line(asked, "call_answered", transition) | told)
        if self._ended and asked.trace.sampled and _was_run(outcome):
            self._ended(spans.job_span(asked, outcome, outcome.job.began_at or since, outcome.job.ended_at or now))

    def known(self, asked: Asked) -> None:
        self._metrics.known()
        log.debug("call answered before", extra=self._line(asked, "call_answered", "answered->answered"))

    def sent(self, call: ToolCall, sent: Sent) -> None:
        self._metrics.sent(sent)
        if self._ended and call.asked.trace.sampled:
            url = self._urls[owner(call.asked.route, self._urls)]
            self._ended(spans.sent_span(call.asked, sent, url=url))

    def _line(self, asked: Asked, event: str, transition: str) -> dict[str, object]:
        took = (self._clock.now() - asked.request.requested_at).total_seconds()
        facts = {"event": event, "state_transition": transition, "latency_ms": max(0, round(took * 1000))}
        return asked.facts() | facts


def _of_job(outcome: ToolOutcome) -> dict[str, object]:
    job = outcome.job
    return {"job_id": job.job_id, "attempts": job.attempts, "exit_code": job.exit_code}


def _was_run(outcome: ToolOutcome) -> bool:
    job = outcome.job
    return bool(job.job_id or job.began_at)
