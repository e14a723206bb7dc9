"""Metrics of a story, as Prometheus reads them."""

from agent_service.metrics import AgentMetrics
from agent_service.run.journal import replay
from groundwork.telemetry.metrics import Instruments
from tests.core.script import Script
from tests.projections.journals import entries_of


def measured(*stories: Script) -> dict[str, float]:
    """Series that are not zero, by their text without empty labels and buckets."""
    metrics = AgentMetrics("anthropic")
    for story in stories:
        for change in replay(entries_of(story)):
            metrics.committed(change)
    return readings(metrics.instruments)


def readings(instruments: Instruments) -> dict[str, float]:
    text = instruments.text().decode()
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith(("#", "process_", "target_")))
    found = {_short(series): float(value) for series, _, value in lines if "_bucket{" not in series}
    return {series: value for series, value in found.items() if value}


def _short(series: str) -> str:
    name, _, labels = series.rstrip("}").partition("{")
    told = [label for label in labels.split(",") if not label.endswith('=""')]
    return f"{name}{{{','.join(told)}}}" if labels else name
