"""Log lines and spans of calls, and the status of the gateway."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from ductile_gateway.calls.call import JobFacts, failed
from ductile_gateway.status import findings_of
from ductile_gateway.telemetry import CallTelemetry, GatewayMetrics, Spans
from groundwork.telemetry.span import Span
from schemas.status import Finding
from tests.gateway.parts import NOON, RUN, TRACE, FakeRunner, World, asked_for


async def test_each_committed_step_of_a_call_is_one_line_with_its_trace_and_its_job_a_span_of_its_own_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    spans: list[Span] = []

    class Taken(Spans):
        def take(self, span: Span) -> None:
            spans.append(span)

    ran = JobFacts(exit_code=1, began_at=NOON + timedelta(seconds=1), ended_at=NOON + timedelta(seconds=3))
    world = World(runner=FakeRunner(replace(failed("not_found", "no such page", retryable=False), job=ran)))
    world.observer = CallTelemetry(GatewayMetrics(), Taken(None), urls={"": ""})
    world.clock.advance(0.25)
    await world.relay().take(asked_for())
    begun, answered = (vars(record) for record in caplog.records if getattr(record, "state_transition", None))
    assert [line["state_transition"] for line in (begun, answered)] == ["asked->begun", "begun->answered"]
    for line in (begun, answered):
        assert (line["run_id"], line["step"], line["tool"], line["attempt"]) == (RUN, 1, "fetch", 1)
        assert (line["trace_id"], line["latency_ms"], line["levelname"]) == (TRACE, 250, "INFO")
    assert (answered["status"], answered["error_class"]) == ("error", "not_found")
    assert (spans[0].started_at, spans[0].ended_at) == (ran.began_at, ran.ended_at)


async def test_a_part_that_does_not_answer_is_a_finding_and_holds_up_none_of_the_others() -> None:
    async def never() -> Sequence[Finding]:
        await asyncio.Event().wait()
        raise AssertionError

    async def fine() -> Sequence[Finding]:
        return [Finding(name="one", mark="ok", text="as it should be")]

    told = await findings_of({"slow": never, "one": fine}, within_s=0.05)
    assert [(finding.name, finding.mark) for finding in told] == [("slow", "warning"), ("one", "ok")]
