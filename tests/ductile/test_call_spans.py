"""The spans of calls in a Ductile, as a receiver gets them: all below the span that published the request."""

from pathlib import Path

from groundwork.telemetry.span import span_id
from schemas import keys
from tests.ductile.serving import served
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.parts import RUN, TRACE
from tests.kit.otlp import receiving
from tests.kit.waiting import until

PROCESS, PUBLISH = "process agentic.tool_request.probe", "publish agentic.tool_result"
PUBLISHED = span_id(keys.request(RUN, 1, 1))
"""The id of the span that published the request, whoever tells of it."""


async def test_a_call_is_told_as_its_delivery_its_request_its_job_and_its_result(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    with receiving() as otlp:
        async with served(tmp_path, ductile, telemetry=otlp.url) as home, home.living():
            await home.ask("look", {"do": "answer"}, step=1)
            await home.answers()
            await until(lambda: len(otlp.spans) == 4, within_s=30)
    spans = {span.name: span for span in otlp.trace(TRACE).spans}
    assert {name: span.kind for name, span in spans.items()} == {
        PROCESS: "consumer",
        "POST /plugin/probe/look": "client",
        "job probe look": "internal",
        PUBLISH: "producer",
    }
    assert {span.parent_id for span in spans.values()} == {PUBLISHED}
    assert {span.service for span in spans.values()} == {"ductile-gateway"}
    assert spans[PROCESS].links == ((TRACE, PUBLISHED),)
    assert spans[PROCESS].attributes["messaging.nats.delivery_count"] == 1
    job, request = spans["job probe look"], spans["POST /plugin/probe/look"]
    (execution,) = ductile.executions
    assert job.attributes["agentic.job_id"] == request.attributes["agentic.job_id"] == execution.job_id
    assert request.attributes["http.response.status_code"] == 202
    assert spans[PUBLISH].span_id == span_id(keys.result(RUN, 1, 1))
    assert all(span.error is None for span in spans.values())
