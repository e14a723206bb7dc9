"""What is told of calls: lines of the log with the fields of the external sibling card, and spans of their trace."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from ductile_gateway.calls.call import Asked, JobFacts, ToolOutcome, failed, read_request
from ductile_gateway.telling.calls import CallsTold
from ductile_gateway.telling.metrics import GatewayMetrics
from groundwork.telemetry.span import Context, Span, context_of, span_id
from schemas import keys
from tests.gateway.parts import NOON, RUN, TRACE, FakeRunner, World, a_request, asked_for, message_of

RAN = JobFacts(exit_code=0, began_at=NOON + timedelta(seconds=1), ended_at=NOON + timedelta(seconds=3))
DONE = ToolOutcome("ok", text="done", job=RAN)
PUBLISHED = span_id(keys.request(RUN, 1, 1))


class Watched(World):
    """A world in which every span is kept."""

    def __init__(self, outcome: ToolOutcome = DONE) -> None:
        super().__init__(runner=FakeRunner(outcome))
        self.spans: list[Span] = []
        self.metrics = GatewayMetrics()
        self.observer = CallsTold(self.metrics, self.spans.append, urls={"": ""}, clock=self.clock)


def asked_with(traceparent: str | None) -> Asked:
    subject, body, headers = message_of(a_request())
    return read_request(subject, body, headers | {"traceparent": traceparent or ""})


async def test_a_job_has_the_times_of_whoever_ran_it_and_is_below_the_span_of_its_request() -> None:
    world = Watched()
    await world.relay().take(asked_for())
    job, result = world.spans
    assert (job.name, job.started_at, job.ended_at) == ("job jina-reader handle", RAN.began_at, RAN.ended_at)
    assert (job.trace_id, job.parent_id, result.parent_id) == (TRACE, PUBLISHED, PUBLISHED)
    assert job.attributes["process.exit.code"] == 0
    assert (job.error, result.error) == (None, None)


async def test_where_in_its_trace_a_call_was_asked_for_survives_a_restart() -> None:
    world = Watched()
    world.bus.down = True
    with pytest.raises(Exception, match="not connected"):
        await world.relay().take(asked_with(f"00-{TRACE}-{PUBLISHED}-00"))
    world.bus.down = False
    await world.relay().say_again()
    ((*_, headers),) = world.bus.messages
    assert context_of(headers["traceparent"]) == Context(TRACE, span_id(keys.result(RUN, 1, 1)), sampled=False)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if getattr(record, "state_transition", None)]


async def test_each_committed_step_of_a_call_is_one_line_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = Watched(failed("not_found", "no such page", retryable=False))
    world.clock.pass_by(0.25)
    await world.relay().take(asked_for())
    begun, answered = lines(caplog)
    assert [line["state_transition"] for line in (begun, answered)] == ["asked->begun", "begun->answered"]
    for line in (begun, answered):
        assert (line["run_id"], line["step"], line["tool"], line["attempt"]) == (RUN, 1, "fetch", 1)
        assert (line["trace_id"], line["latency_ms"], line["levelname"]) == (TRACE, 250, "INFO")
    assert (answered["status"], answered["error_class"]) == ("error", "not_found")
