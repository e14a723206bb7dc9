"""docs/OPERATIONS.md lists the exported metrics; dashboard, alerts and queries use no others."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import httpx2
import pytest
import yaml

from agent_service.api.http import request_durations
from agent_service.metrics import AgentMetrics
from agent_service.serving import observe_agent
from ductile_gateway.ductile.jobs import DuctileHealth
from ductile_gateway.telemetry import GatewayMetrics
from groundwork.telemetry.metrics import Counter, Instrument, Instruments
from tests.kit.stack import one_step, running

TEXT = Path("docs/OPERATIONS.md").read_text(encoding="utf-8").partition("## The page")[0]
AGENT, GATEWAY = TEXT.split("## The gateway")
_ROW = re.compile(r"^\| `([a-z_]+)(?:\{([a-z_, ]+)\})?` \| (\w+) \| .+ \|$", re.MULTILINE)
_NAME = re.compile(r"`(agentic_\w+)`")
DEPLOY = Path("deploy/observability")
DASHBOARD = json.loads((DEPLOY / "grafana" / "agentic.json").read_text())
RULES = yaml.safe_load((DEPLOY / "rules.yml").read_text())
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
OF_PROCESSES = re.findall(r"`(process_\w+)`", TEXT)
OF_A_DUCTILE = re.compile("agentic_ductile_(up|queue)")
QUESTIONS = re.findall(r"^\| [^|`]+ \| `(.+)` \|$", TEXT.partition("## Questions")[2], re.MULTILINE)


Row = tuple[str, str, str]
"""Name, labels and type."""


def documented(text: str) -> set[Row]:
    return set(_ROW.findall(text))


def of_the_gateway() -> Instruments:
    metrics = GatewayMetrics()
    metrics.observe_gateway(dict, lambda: 0)
    metrics.observe_ductiles({"": DuctileHealth()})
    metrics.observe_calls(lambda: 0, tuple, lambda: 0)
    return metrics.instruments


def of_the_agent() -> Instruments:
    agent = MagicMock(metrics=AgentMetrics("scripted"))
    instruments = observe_agent(agent)
    request_durations(instruments)
    return instruments


def row(instrument: Instrument) -> Row:
    name = instrument.name + ("_total" if isinstance(instrument, Counter) else "")
    labels = ", ".join(instrument.labels)
    return name, labels, type(instrument).__name__.lower()


def test_every_metric_of_the_agent_is_documented_with_its_type_and_labels_and_no_other_is() -> None:
    assert documented(AGENT) == set(map(row, of_the_agent().all))


def test_every_metric_of_the_gateway_is_documented_once() -> None:
    there = set(map(row, of_the_gateway().all))
    named_like_the_agents = {name for name, _, _ in there} & set(_NAME.findall(GATEWAY.partition("| metric |")[0]))
    assert documented(GATEWAY) == {one for one in there if one[0] not in named_like_the_agents}
    assert {one for one in there if one[0] in named_like_the_agents} <= documented(AGENT)


async def test_running_services_export_what_is_documented(tmp_path: Path) -> None:
    async with running(tmp_path, one_step("echo")) as made, httpx2.AsyncClient(trust_env=False) as client:
        http = json.loads(made.config.read_text())["gateway"]["http"]
        exported = [
            set(re.findall(r"^# TYPE (\w+) ", (await client.get(f"{url}/metrics")).text, re.MULTILINE))
            for url in (made.url, f"http://{http['host']}:{http['port']}")
        ]
    for there, instruments in zip(exported, (of_the_agent(), of_the_gateway()), strict=True):
        documented = {name for name, _, _ in map(row, instruments.all) if not OF_A_DUCTILE.match(name)}
        assert documented <= there
        assert {name for name in there if name.startswith("agentic_")} <= documented


def queries() -> Iterator[str]:
    """Queries of Prometheus, without the variables of Grafana."""
    panels = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked += [one["expr"] for one in DASHBOARD["annotations"]["list"]]
    for query in (*asked, *(alert["expr"] for alert in ALERTS.values()), *QUESTIONS):
        yield query.replace("$__rate_interval", "10s").replace("$__range", "1m")


def test_dashboard_alerts_and_questions_read_what_is_documented() -> None:
    labels: dict[str, set[str]] = {_bare(name): set() for name in OF_PROCESSES}
    labels |= {_bare(name): set(labels.split(", ")) for name, labels, _ in documented(TEXT)}
    assert QUESTIONS
    for query in queries():
        read = set(map(_bare, metrics_in(query)))
        assert read <= labels.keys(), query
        assert labels_in(query) <= set().union(*(labels[name] for name in read)), query


_OF_A_METRIC = re.compile(r"\b(?:agentic|gen_ai|http|messaging|process)_[a-z0-9_]+(?=[{\[)\s,]|$)")
_BY = re.compile(r"\b(?:by|on|without|group_left|group_right)\s*\([^)]*\)")
_MATCHERS = re.compile(r"\{[^}]*\}")


def _bare(name: str) -> str:
    return re.sub("_(bucket|count|sum|total)$", "", name)


def metrics_in(query: str) -> list[str]:
    return _OF_A_METRIC.findall(_MATCHERS.sub("", _BY.sub("", query)))


def labels_in(query: str) -> set[str]:
    """Labels in a query, without those of Prometheus itself."""
    told = [*_BY.findall(query), *_MATCHERS.findall(query)]
    names = {name for text in told for name in re.findall(r"([a-z_]+)\s*(?:[=!]~?|[,)])", text)}
    return names - {"job", "instance", "le"}


PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(not PROMTOOL, reason="no promtool: Debian's package `prometheus` has it")
@pytest.mark.parametrize("check", [("check", "config", "prometheus.yml"), ("test", "rules", "rules_test.yml")])
def test_promtool_finds_nothing_wrong(check: tuple[str, ...]) -> None:
    done = subprocess.run([str(PROMTOOL), *check], cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried_and_says_what_to_do() -> None:
    tried = re.findall(r'alertname="(\w+)"', (DEPLOY / "rules_test.yml").read_text())
    assert set(tried) == set(ALERTS)
    for alert in ALERTS.values():
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert {"summary", "description", "runbook"} == set(alert["annotations"])
        assert len(alert["annotations"]["runbook"]) > 40
