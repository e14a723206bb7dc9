"""The spans of calls in a Ductile, as a receiver gets them: all below the span that published the request."""

from collections import Counter
from pathlib import Path

from groundwork.telemetry.span import span_id
from schemas import keys
from tests.ductile.serving import kill, served
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.parts import RUN, TRACE
from tests.kit.otlp import Otlp, Received, receiving
from tests.kit.waiting import until

PROCESS, PUBLISH = "process agentic.tool_request.probe", "publish agentic.tool_result"
PUBLISHED = {step: span_id(keys.request(RUN, step, 1)) for step in (1, 2)}
"""The id of the span that published the request of a step, whoever tells of it."""


def of_step(otlp: Otlp, step: int) -> list[Received]:
    return [span for span in otlp.spans and otlp.trace(TRACE).spans if span.attributes["agentic.step"] == step]


async def test_a_call_is_told_as_its_delivery_its_request_its_job_and_its_result(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    with receiving() as otlp:
        async with served(tmp_path, ductile, telemetry=otlp.url) as home, home.living():
            await home.ask("look", {"do": "answer"}, step=1)
            await home.answers()
            await until(lambda: len(of_step(otlp, 1)) == 4, within_s=30)
    spans = {span.name: span for span in of_step(otlp, 1)}
    assert {name: span.kind for name, span in spans.items()} == {
        PROCESS: "consumer",
        "POST /plugin/probe/look": "client",
        "job probe look": "internal",
        PUBLISH: "producer",
    }
    assert {span.parent_id for span in spans.values()} == {PUBLISHED[1]}
    assert {span.service for span in spans.values()} == {"ductile-gateway"}
    assert spans[PROCESS].links == ((TRACE, PUBLISHED[1]),)
    assert spans[PROCESS].attributes["messaging.nats.delivery_count"] == 1
    job, request = spans["job probe look"], spans["POST /plugin/probe/look"]
    (execution,) = ductile.executions
    assert job.attributes["agentic.job_id"] == request.attributes["agentic.job_id"] == execution.job_id
    assert request.attributes["http.response.status_code"] == 202
    assert spans[PUBLISH].span_id == span_id(keys.result(RUN, 1, 1))
    assert all(span.error is None for span in spans.values())


async def test_after_a_kill_nothing_is_missing_above_a_span_and_each_job_is_told_once(
    ductile: DuctileUnderTest, tmp_path: Path
) -> None:
    with receiving() as otlp:
        async with served(tmp_path, ductile, telemetry=otlp.url) as home:
            async with home.living() as process:
                await home.ask("look", {}, step=1)
                held = await home.ask("note", {"do": "hold", "until": str(tmp_path / "go")}, step=2)
                await until(lambda: home.known("job_id IS NOT NULL") == {held}, within_s=30)
                kill(process)
            (tmp_path / "go").touch()
            async with home.living():
                await home.answers()
                await until(lambda: PUBLISH in [span.name for span in of_step(otlp, 2)], within_s=30)
    assert {span.parent_id for span in otlp.trace(TRACE).spans} <= set(PUBLISHED.values())
    counted = Counter(span.name for span in of_step(otlp, 2))
    assert (counted["job probe note"], counted[PUBLISH]) == (1, 1)
    assert counted["POST /plugin/probe/note"] <= 1
