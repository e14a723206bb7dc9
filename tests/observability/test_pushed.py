"""A running agent sends an OTLP receiver what it tells Prometheus."""

from pathlib import Path

from tests.kit.otlp import receiving
from tests.observability.story import observed_stack, play


async def test_an_agent_pushes_its_metrics_and_once_more_when_it_ends(tmp_path: Path) -> None:
    with receiving() as otlp:
        async with observed_stack(tmp_path, agent={"telemetry": {"endpoint": otlp.url}}) as made:
            await play(made)
        ended = [metric for service, metric in otlp.metrics if metric.name == "agentic.run.completed"]
        names = {metric.name for service, metric in otlp.metrics if service == "agentic-loop"}
    by_state = {point.attributes[0].value.string_value: point.as_double for point in ended[-1].sum.data_points}
    assert by_state["done"] >= 3
    assert {"agentic.wake.duration", "agentic.consumer.pending", "gen_ai.client.token.usage"} <= names
