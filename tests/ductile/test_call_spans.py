"""Spans of calls in a Ductile: all below the span that published the request."""

from pathlib import Path

from groundwork.telemetry.span import span_id
from schemas import keys
from tests.ductile.serving import served
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.parts import RUN, TRACE
from tests.kit.otlp import receiving
from tests.kit.waiting import until


async def test_a_call_is_told_as_its_request_to_a_ductile_and_its_job(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    with receiving() as otlp:
        async with served(tmp_path, ductile, telemetry=otlp.url) as home, home.living():
            await home.ask("look", {"do": "answer"}, step=1)
            await home.answers()
            await until(lambda: len(otlp.spans) == 2, within_s=30)
    spans = {span.name: span for span in otlp.trace(TRACE).spans}
    assert len(spans) == 2
    job, request = spans["job probe look"], spans["POST /plugin/probe/look"]
    (execution,) = ductile.executions
    assert job.attributes["agentic.job_id"] == request.attributes["agentic.job_id"] == execution.job_id
    assert (request.kind, request.attributes["http.response.status_code"]) == ("client", 202)
    assert {span.parent_id for span in spans.values()} == {span_id(keys.request(RUN, 1, 1))}
    assert all(span.error is None for span in spans.values())
