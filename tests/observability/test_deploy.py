"""The dashboard, the alerts and the configuration in deploy/observability read what running services export."""

import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest

from agent_service.workbench.dev import DevStack
from tests.observability.queries import (
    FOLDER,
    alerts,
    annotations,
    exported,
    labels_in,
    metrics_in,
    panels,
)
from tests.observability.story import gateway_url, observed_stack, play

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="no promtool: Debian's package `prometheus` has it")
QUERIES = [query for queries in panels().values() for query in queries]
ALERTED = [str(alert["expr"]) for alert in alerts().values()]


@needs_promtool
@pytest.mark.parametrize("check", [("check", "config", "prometheus.yml"), ("test", "rules", "rules_test.yml")])
def test_promtool_finds_nothing_wrong(check: tuple[str, ...]) -> None:
    done = subprocess.run([str(PROMTOOL), *check], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried() -> None:
    tried = re.findall(r'alertname="(\w+)"', (FOLDER / "rules_test.yml").read_text())
    assert set(tried) == set(alerts())


@pytest.mark.parametrize("name", alerts())
def test_every_alert_says_what_to_do_now(name: str) -> None:
    alert = alerts()[name]
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert {"summary", "description", "runbook"} == set(alert["annotations"])
    assert len(alert["annotations"]["runbook"]) > 40


async def test_dashboard_and_alerts_name_only_what_running_services_export(tmp_path: Path) -> None:
    async with observed_stack(tmp_path) as made:
        await play(made)
        found = await _exported_by(made)
    for query in [*QUERIES, *annotations(), *ALERTED]:
        for metric in metrics_in(query):
            assert metric in found, f"{metric} of {query}"
            assert labels_in(query) - _labels_of_others(query, metric, found) <= found[metric], query


def _labels_of_others(query: str, metric: str, found: dict[str, set[str]]) -> set[str]:
    """Where a query reads several metrics, a label may belong to another one of them."""
    return {label for other in metrics_in(query) - {metric} for label in found.get(other, ())}


async def _exported_by(made: DevStack) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"up": set()}
    async with httpx2.AsyncClient(trust_env=False) as client:
        for url in (made.url, gateway_url(made)):
            text = (await client.get(f"{url}/metrics")).text
            for metric, labels in exported(text).items():
                found.setdefault(metric, set()).update(labels)
    return found
