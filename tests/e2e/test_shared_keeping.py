"""What several agents keep together goes by the same rules as what one keeps, and is gone for all of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from tests.e2e.bodies import recording, to_the_end, wake
from tests.kit.cluster import Cluster
from tests.kit.fleet import Fleet, FleetOptions, Member, configure, fleet
from tests.kit.waiting import until

MANIFEST = """
manifest_spec: ductile.plugin
manifest_version: 1
name: probe
version: 0.1.0
protocol: 2
entrypoint: run.sh
description: "Writes a page."
output: trusted
commands:
  - name: record
    type: read
    description: "Write a page."
    idempotent: true
    retry_safe: true
    input_schema: {type: object, properties: {}, required: [], additionalProperties: true}
"""
RUN = """#!/bin/sh
echo '{"status": "ok", "result": "w", "artifacts": [{"name": "page.md", "content_type": "text/plain", "text": "x"}]}'
"""
AT_ONCE = 0.000001
"""A tenth of a second in days, a kilobyte in GiB."""


def writes_pages(folder: Path) -> Path:
    plugin = folder / "plugins" / "probe"
    plugin.mkdir(parents=True)
    (plugin / "manifest.yaml").write_text(MANIFEST)
    (plugin / "run.sh").write_text(RUN)
    (plugin / "run.sh").chmod(0o755)
    return plugin.parent


async def prune(member: Member) -> dict[str, Any]:
    async with httpx2.AsyncClient(base_url=member.url, trust_env=False, timeout=20) as client:
        pruned: dict[str, Any] = (await client.post("/v1/prune", json={})).json()
    return pruned


async def gone(ships: Fleet, path: str) -> set[tuple[int, str]]:
    """What the agents answer to who asks for it."""
    answers = set()
    for member in ships.agents:
        async with httpx2.AsyncClient(base_url=member.url, trust_env=False, timeout=20) as client:
            answer = await client.get(path)
            answers.add((answer.status_code, "" if answer.is_success else answer.json()["code"]))
    return answers


async def test_artifacts_go_by_their_days_and_runs_by_the_bytes_of_the_copy(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text(json.dumps(recording(tmp_path / "marks" / "lines", steps=1)))
    options = FleetOptions(
        folder=tmp_path / "fleet",
        agents=2,
        gateways=1,
        store="jetstream",
        script=tmp_path / "script.json",
        plugins=(writes_pages(tmp_path),),
        agent={"keep_runs": {"artifacts_days": AT_ONCE}},
    )
    async with fleet(cluster, options) as ships:
        first, second = ships.agents
        run_id = await wake(first)
        ended = await to_the_end(first, run_id)
        assert ended["state"] == "done", ended
        page = f"/v1/runs/{run_id}/workspace/{ended['artifacts'][0]}"
        assert await gone(ships, page) == {(200, "")}
        await until(lambda: _went(second, "artifacts"), within_s=30)
        assert await gone(ships, page) == {(410, "artifacts_gone")}
        assert await gone(ships, f"/v1/runs/{run_id}") == {(200, "")}

        for member in ships.agents:
            configure(
                member, replace(options, agent={"keep_runs": {"max_gib": {"journal": AT_ONCE}}}), cluster.settings.urls
            )
            member.kill()
        await ships.heal()
        await until(lambda: _went(first, "runs"), within_s=30)
        assert await gone(ships, f"/v1/runs/{run_id}") == {(410, "gone")}


async def _went(member: Member, kind: str) -> bool:
    return bool((await prune(member))[kind])
