"""The spans of calls in a Ductile, as a receiver gets them: all below the span that published the request."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from groundwork.telemetry.span import span_id
from schemas import keys
from tests.ductile.gateway_house import House, house, kill
from tests.ductile.under_test import DuctileUnderTest
from tests.gateway.parts import RUN, TRACE
from tests.kit.otlp import Otlp, Received, receiving
from tests.kit.waiting import until

PROCESS = "process agentic.tool_request.probe"
PUBLISH = "publish agentic.tool_result"


@pytest.fixture
def otlp() -> Iterator[Otlp]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
async def home(ductile: DuctileUnderTest, tmp_path: Path, otlp: Otlp) -> AsyncIterator[House]:
    async with house(tmp_path, ductile, telemetry=otlp.url) as opened:
        yield opened


def of_step(otlp: Otlp, step: int) -> list[Received]:
    return [
        span for span in otlp.traces().get(TRACE, otlp.trace(TRACE)).spans if span.attributes["agentic.step"] == step
    ]


def published(step: int) -> str:
    """The id of the span that published the request, whoever tells of it."""
    return span_id(keys.request(RUN, step, 1))


async def test_a_call_is_told_as_its_delivery_its_request_its_job_and_its_result(home: House, otlp: Otlp) -> None:
    async with home.living():
        await home.ask("look", {"do": "answer"}, step=1)
        await home.answers()
        await until(lambda: otlp.spans and len(of_step(otlp, 1)) == 4, within_s=30)
    spans = {span.name: span for span in of_step(otlp, 1)}
    assert {name: span.kind for name, span in spans.items()} == {
        PROCESS: "consumer",
        "POST /plugin/probe/look": "client",
        "job probe look": "internal",
        PUBLISH: "producer",
    }
    assert {span.parent_id for span in spans.values()} == {published(1)}
    assert {span.service for span in spans.values()} == {"ductile-gateway"}
    assert spans[PROCESS].links == ((TRACE, published(1)),)
    assert spans[PROCESS].attributes["messaging.nats.delivery_count"] == 1
    job, request = spans["job probe look"], spans["POST /plugin/probe/look"]
    (execution,) = home.ductile.executions
    assert job.attributes["agentic.job_id"] == request.attributes["agentic.job_id"] == execution.job_id
    assert request.attributes["http.response.status_code"] == 202
    assert spans[PUBLISH].span_id == span_id(keys.result(RUN, 1, 1))
    assert all(span.error is None for span in spans.values())


async def test_after_a_kill_nothing_is_missing_above_a_span_and_each_job_is_told_once(
    home: House, otlp: Otlp, tmp_path: Path
) -> None:
    async with home.living() as process:
        await home.ask("look", {}, step=1)
        held = await home.ask("note", {"do": "hold", "until": str(tmp_path / "go")}, step=2)
        await until(lambda: home.disk.accepted() == {held}, within_s=30)
        kill(process)
    (tmp_path / "go").touch()
    async with home.living():
        await home.answers()
        await until(lambda: otlp.spans and PUBLISH in [span.name for span in of_step(otlp, 2)], within_s=30)
    told = otlp.trace(TRACE).spans
    assert {span.parent_id for span in told} <= {published(1), published(2)}
    counted = Counter(span.name for span in told if span.attributes["agentic.step"] == 2)
    assert (counted["job probe note"], counted[PUBLISH]) == (1, 1)
    assert counted["POST /plugin/probe/note"] <= 1
