"""docs/METRICS.md lists the metrics that there are, with type and labels."""

import re
from pathlib import Path
from typing import cast

from agent_service.admission.spending import Spending
from agent_service.bus.findings import BusLevels
from agent_service.kill_switch import Brake
from agent_service.metrics.levels import (
    People,
    Standing,
    observe_brake,
    observe_disk,
    observe_inbox,
    observe_readiness,
    observe_runs,
    observe_spending,
)
from agent_service.metrics.runs import AgentMetrics
from ductile_gateway.ductile.discovery import DuctileHealth
from ductile_gateway.telling.metrics import GatewayMetrics, observe_calls, observe_ductiles, observe_outbox
from ductile_gateway.telling.metrics import observe_readiness as observe_gateway
from groundwork.http.metrics import request_durations
from groundwork.nats.link import NatsLink
from groundwork.telemetry.metrics import Counter, Instrument, Instruments, prometheus_label, prometheus_name
from tests.kit.fakes import FakeClock
from tests.observability.queries import labels_in, metrics_in

TEXT = Path("docs/METRICS.md").read_text(encoding="utf-8")
AGENT, GATEWAY = TEXT.split("## The gateway")
_ROW = re.compile(r"^\| `([a-z_]+)(?:\{([a-z_, ]+)\})?` \| (\w+) \| .+ \|$", re.MULTILINE)
_NAME = re.compile(r"`(agentic_\w+)`")
QUESTIONS = re.findall(r"^\| [^|`]+ \| `(.+)` \|$", TEXT.partition("## Questions")[2], re.MULTILINE)


Row = tuple[str, str, str]
"""Name, labels and type."""


def documented(text: str) -> set[Row]:
    return set(_ROW.findall(text))


def of_the_gateway() -> Instruments:
    instruments = GatewayMetrics().instruments
    observe_gateway(instruments, dict)
    observe_ductiles(instruments, {"": cast("DuctileHealth", None)})
    observe_calls(instruments, in_hand=lambda: 0, waiting=tuple, open_intents=lambda: 0)
    observe_outbox(instruments, lambda: 0)
    return instruments


def of_the_agent() -> Instruments:
    """All of the agent's instruments, without an agent to be asked."""
    instruments = AgentMetrics("scripted").instruments
    observe_runs(instruments, cast("Standing", None), FakeClock(), lambda: 0)
    observe_inbox(instruments, cast("People", None))
    observe_disk(instruments, Path("runs.db"))
    observe_brake(instruments, Brake())
    observe_spending(instruments, Spending(FakeClock()))
    observe_readiness(instruments, _ready)
    BusLevels(instruments, cast("NatsLink", None))
    request_durations(instruments)
    return instruments


async def _ready() -> dict[str, str]:
    return {}


def row(instrument: Instrument) -> Row:
    name = prometheus_name(instrument) + ("_total" if isinstance(instrument, Counter) else "")
    labels = ", ".join(map(prometheus_label, instrument.described.attributes))
    return name, labels, type(instrument).__name__.lower()


def test_every_metric_of_the_agent_is_documented_with_its_type_and_labels_and_no_other_is() -> None:
    assert documented(AGENT) == set(map(row, of_the_agent().all))


def test_every_metric_of_the_gateway_is_documented_once() -> None:
    there = set(map(row, of_the_gateway().all))
    named_like_the_agents = {name for name, _, _ in there} & set(_NAME.findall(GATEWAY.partition("| metric |")[0]))
    assert documented(GATEWAY) == {one for one in there if one[0] not in named_like_the_agents}
    assert {one for one in there if one[0] in named_like_the_agents} <= documented(AGENT)


def test_every_query_that_answers_a_question_reads_what_is_documented() -> None:
    labels = {name: set(labels.split(", ")) for name, labels, _ in documented(TEXT)}
    assert QUESTIONS
    for query in QUESTIONS:
        for metric in metrics_in(query):
            assert labels_in(query) <= labels[metric], query
