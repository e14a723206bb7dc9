"""The dashboard, the alerts and the configuration in deploy/observability read what running services export."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path

import httpx2
import pytest
import yaml

from agent_service.workbench.dev import DevStack, free_port
from tests.kit.waiting import until
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
needs_prometheus = pytest.mark.skipif(not PROMETHEUS, reason="no prometheus: Debian's package of that name has it")
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="no promtool: Debian's package `prometheus` has it")
QUERIES = [query for queries in panels().values() for query in queries]
ALERTED = [str(alert["expr"]) for alert in alerts().values()]
ON_A_BAD_DAY = {"agentic_consumer_redelivered"}
"""Shown where something comes again and again: on a good day there is nothing to show."""


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


@needs_prometheus
async def test_every_panel_shows_something_once_runs_went_by(tmp_path: Path) -> None:
    async with observed_stack(tmp_path / "stack") as made, _prometheus(tmp_path, made) as prometheus:
        empty: list[str] = []
        shown = partial(_all_shown, made, prometheus, empty, count(1))
        await until(shown, within_s=60, otherwise=lambda: "\n".join(empty))
        for query in ALERTED:
            await _asked(prometheus, query)


async def _all_shown(made: DevStack, prometheus: httpx2.AsyncClient, empty: list[str], rounds: Iterator[int]) -> bool:
    """Whether every query has an answer, once more has happened; those without are left in `empty`."""
    await play(made, next(rounds))
    asked = [query for query in QUERIES if not metrics_in(query) & ON_A_BAD_DAY]
    empty[:] = [query for query in asked if not await _asked(prometheus, query)]
    return not empty


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


@asynccontextmanager
async def _prometheus(folder: Path, made: DevStack) -> AsyncIterator[httpx2.AsyncClient]:
    """A Prometheus with the example's configuration, which reads this stack, and often."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str((FOLDER / "rules.yml").resolve())]
    for job, url in zip(config["scrape_configs"], (made.url, gateway_url(made)), strict=True):
        job["static_configs"] = [{"targets": [url.removeprefix("http://")]}]
    (folder / "prometheus.yml").write_text(json.dumps(config))
    address = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        *(str(PROMETHEUS), "--config.file=prometheus.yml", "--storage.tsdb.path=data"),
        f"--web.listen-address={address}",
        cwd=folder,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with httpx2.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            await until(lambda: _answers(client), within_s=30)
            yield client
    finally:
        process.terminate()
        await process.wait()


async def _answers(client: httpx2.AsyncClient) -> bool:
    try:
        return bool((await client.get("/-/ready")).is_success)
    except httpx2.TransportError:
        return False


async def _asked(client: httpx2.AsyncClient, query: str) -> list[object]:
    """The series of the answer that have a value."""
    answer = (await client.get("/api/v1/query", params={"query": query})).json()
    assert answer["status"] == "success", answer
    return [one for one in answer["data"]["result"] if one["value"][1] != "NaN"]
