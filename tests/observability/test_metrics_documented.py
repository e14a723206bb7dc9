"""docs/METRICS.md lists the metrics that there are, with type and labels."""

import re
from pathlib import Path
from typing import cast

from agent_service.bus.levels import BusLevels
from agent_service.metrics.agent import AgentMetrics
from agent_service.metrics.levels import People, Standing, observe_disk, observe_inbox, observe_readiness, observe_runs
from groundwork.nats.link import NatsLink
from groundwork.telemetry.metrics import Counter, Instrument, Instruments, prometheus_label, prometheus_name
from tests.kit.fakes import FakeClock
from tests.observability.queries import alerts, labels_in, metrics_in

TEXT = Path("docs/METRICS.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z_]+)(?:\{([a-z_, ]+)\})?` \| (\w+) \| .+ \|$", TEXT, re.MULTILINE)
QUESTIONS = re.findall(r"^\| [^|`]+ \| `(.+)` \|$", TEXT.partition("## Questions")[2], re.MULTILINE)


def documented() -> set[tuple[str, str, str]]:
    return {(name, labels, kind) for name, labels, kind in ROWS}


def of_the_agent() -> Instruments:
    """All of the agent's instruments, without an agent to be asked."""
    instruments = AgentMetrics("scripted").instruments
    observe_runs(instruments, cast("Standing", None), FakeClock(), lambda: 0)
    observe_inbox(instruments, cast("People", None))
    observe_disk(instruments, Path("runs.db"))
    observe_readiness(instruments, _ready)
    BusLevels(instruments, cast("NatsLink", None))
    return instruments


async def _ready() -> dict[str, str]:
    return {}


def row(instrument: Instrument) -> tuple[str, str, str]:
    name = prometheus_name(instrument) + ("_total" if isinstance(instrument, Counter) else "")
    labels = ", ".join(map(prometheus_label, instrument.described.attributes))
    return name, labels, type(instrument).__name__.lower()


def test_every_metric_is_documented_with_its_type_and_labels_and_no_other_is() -> None:
    assert documented() == set(map(row, of_the_agent().all))


def test_every_query_that_answers_a_question_reads_what_is_documented() -> None:
    labels = {name: set(labels.split(", ")) for name, labels, _ in documented()}
    assert QUESTIONS
    for query in QUESTIONS:
        for metric in metrics_in(query):
            assert labels_in(query) <= labels[metric], query


def test_a_query_in_a_runbook_reads_what_is_documented() -> None:
    known = {name for name, _, _ in documented()} | {"process_cpu_seconds_total"}
    runbooks = [alert["annotations"]["runbook"] for alert in alerts().values()]
    told = [query for runbook in runbooks for query in re.findall(r"`([^`]+\([^`]*)`", runbook)]
    assert told
    for query in told:
        assert metrics_in(query) <= known
