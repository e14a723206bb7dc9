"""An installation of one agent becomes one of several on a cluster while runs are open, and one of one agent again."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2

from tests.cli.calling import Called, agentic
from tests.e2e.bodies import PROBES, lines, recording, touch, written
from tests.kit.cluster import Cluster
from tests.kit.fleet import Fleet, FleetOptions, Member, configure, fleet
from tests.kit.waiting import until

RUNS, STEPS = 4, 2
WITHIN_S = 90.0


def api(member: Member) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=member.url, trust_env=False, timeout=20)


async def wake(member: Member) -> str:
    async with api(member) as client:
        return str((await client.post("/v1/wake", json={"goal": "record"})).json()["run_id"])


async def shown(member: Member, runs: Sequence[str]) -> list[dict[str, Any]]:
    async with api(member) as client:
        return [(await client.get(f"/v1/runs/{run}")).json() for run in runs]


async def states(member: Member, runs: Sequence[str]) -> list[str]:
    return [run["state"] for run in await shown(member, runs)]


async def steps(member: Member, runs: Sequence[str]) -> list[int]:
    return [len(run["steps"]) for run in await shown(member, runs)]


async def command(*arguments: str | Path) -> Called:
    called = await asyncio.to_thread(agentic, *arguments)
    assert called.code == 0, called
    return called


@asynccontextmanager
async def several(ships: Fleet, *numbers: int) -> AsyncIterator[list[Member]]:
    """Agents that share a store, beside the gateway that is there."""
    options = replace(ships.options, store="jetstream", agent={"cache": str(ships.options.folder / "copies")})
    members = [Member("agent", number, options.folder) for number in numbers]
    for member in members:
        configure(member, options, ships.cluster.settings.urls)
        member.start()
    try:
        for member in members:
            await member.ready()
        yield members
        for member in members:
            await member.end()
    finally:
        for member in members:
            member.kill()


async def test_runs_go_on_where_they_were_through_two_moves_and_each_write_is_done_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    file, go = tmp_path / "marks" / "lines", tmp_path / "marks" / "go"
    script = written(recording(file, go=go, steps=STEPS), tmp_path)
    async with fleet(cluster, FleetOptions(folder=tmp_path / "fleet", script=script, plugins=(PROBES,))) as ships:
        alone = ships.agents[0]
        runs = [await wake(alone) for _ in range(RUNS)]
        await until(lambda: _all(steps(alone, runs), 1), within_s=WITHIN_S)
        await command("drain", "--url", alone.url)
        await until(lambda: alone.pid is None)
        await command("setup", "--config", alone.config, "--shared", "--change")
        there = await command("migrate", "--from", "sqlite", "--to", "jetstream", "--config", alone.config, "--json")
        assert there.document["runs"] == RUNS
        async with several(ships, 2, 3) as (one, other):
            touch(go, 1)
            await until(lambda: _all(steps(other, runs), 2), within_s=WITHIN_S)
            one.kill()
            touch(go, 2)
            await until(lambda: _all(states(other, runs), "done"), within_s=WITHIN_S)
        store = ("--sqlite", str(_store(alone)))
        back = await command(
            "migrate", "--from", "jetstream", "--to", "sqlite", "--config", alone.config, *store, "--json"
        )
        assert back.document["runs"] == RUNS
        alone.start()
        await alone.ready()
        assert await states(alone, runs) == ["done"] * RUNS
        runs.append(await wake(alone))
        await until(lambda: _all(states(alone, runs), "done"), within_s=WITHIN_S)
    assert lines(file) == (RUNS + 1) * STEPS


async def _all(asking: Any, wanted: object) -> bool:
    return all(found == wanted for found in await asking)


def _store(member: Member) -> Path:
    return Path(json.loads(member.config.read_text())["agent"]["store"])
