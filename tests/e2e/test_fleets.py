"""Fleets that change: mixed versions, one agent that becomes several and one again, and a storm."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import agent_service
from tests.cli.invoke import called
from tests.e2e.storm import Plan, figures
from tests.kit.cluster import Cluster
from tests.kit.fleet import Fleet, FleetOptions, Member, configure, fleet
from tests.kit.stack import PROBES, lines, recording, shown, touch, until, view, wake

WITHIN_S = 90.0
NEWER = """
from agent_service.store import messages
messages.VERSION += 1
messages.LEVEL += messages.RULES_BELOW
from agent_service.cli.main import main
main()
"""
FAULTS = ("agent killed", "gateway killed, started at once", "leader killed")


def fleet_options(folder: Path, **more: Any) -> FleetOptions:
    """Runs record two lines, each after its `go`."""
    records = recording(folder / "marks" / "lines", go=folder / "marks" / "go")
    return FleetOptions(folder=folder / "fleet", script=records, plugins=(PROBES,), **more)


async def have(member: Member, runs: Sequence[str], *, steps: int) -> None:
    for run_id in runs:
        await shown(
            member,
            run_id,
            lambda run: run["state"] == "done" if steps > 2 else len(run["steps"]) == steps,
            within_s=WITHIN_S,
        )


def a_newer_version(folder: Path) -> Path:
    package = folder / "agent_service"
    package.mkdir(parents=True)
    real = str(Path(agent_service.__file__).parent)
    (package / "__init__.py").write_text(f"__path__.append({real!r})\n")
    (package / "__main__.py").write_text(NEWER)
    return folder


async def test_an_older_agent_leaves_alone_what_a_newer_one_has_moved_on_and_goes_on_with_its_own(
    cluster: Cluster, tmp_path: Path
) -> None:
    file, go = tmp_path / "marks" / "lines", tmp_path / "marks" / "go"
    async with fleet(cluster, fleet_options(tmp_path, store="jetstream", agents=2)) as ships:
        older, newer = ships.agents
        await newer.end()
        own = await wake(older)
        await have(older, [own], steps=1)
        older.stop()
        newer.code = a_newer_version(tmp_path / "newer")
        newer.start()
        await newer.ready()
        ahead = await wake(newer)
        await have(newer, [ahead], steps=1)
        newer.kill()
        older.go_on()
        await older.ready()
        touch(go, 1, 2)
        await have(older, [own], steps=3)
        await until(lambda: lines(file) == 2 + 1)  # with the one that the other run had asked for
        newer.start()
        await newer.ready()
        await have(newer, [own, ahead], steps=3)
    assert lines(file) == 4


def of_several(ships: Fleet) -> FleetOptions:
    return replace(ships.options, store="jetstream", agent={"cache": str(ships.options.folder / "copies")})


@asynccontextmanager
async def several(ships: Fleet, *numbers: int) -> AsyncIterator[list[Member]]:
    """Agents that share a store, beside the existing gateway."""
    members = [Member("agent", number, ships.options.folder) for number in numbers]
    for member in members:
        configure(member, of_several(ships), ships.cluster.settings.urls)
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


async def command(*arguments: str | Path) -> Any:
    done = await called(*arguments)
    assert done.code == 0, done
    return done.document if "--json" in arguments else None


async def test_runs_go_on_where_they_were_through_two_moves_and_each_write_is_done_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    go = tmp_path / "marks" / "go"
    async with fleet(cluster, fleet_options(tmp_path)) as ships:
        alone = ships.agents[0]
        of_it = ("--config", alone.config)
        runs = [await wake(alone) for _ in range(4)]
        await have(alone, runs, steps=1)
        await command("drain", "--url", alone.url)
        await until(lambda: alone.pid is None)
        await command("setup", *of_it, "--shared", "--change")
        away, home = tmp_path / "away.zip", tmp_path / "home.zip"
        await command("export", "--all", away, *of_it)
        shared = Member("agent", 4, ships.options.folder)
        configure(shared, of_several(ships), cluster.settings.urls)
        there = await command("restore", away, "--config", shared.config, "--json")
        async with several(ships, 2, 3) as (one, other):
            touch(go, 1)
            await have(other, runs, steps=2)
            one.kill()
            touch(go, 2)
            await have(other, runs, steps=3)
        await command("export", "--all", home, "--config", shared.config)
        back = await command("restore", home, *of_it, "--json")
        assert (there["runs"], back["runs"]) == (4, 4)
        alone.start()
        await alone.ready()
        assert [(await view(alone, run_id))["state"] for run_id in runs] == ["done"] * 4
        await have(alone, [await wake(alone)], steps=3)
    assert lines(tmp_path / "marks" / "lines") == (4 + 1) * 2


@pytest.mark.timeout(400)
async def test_nothing_is_lost_or_done_twice_and_what_the_dead_had_goes_on_elsewhere(tmp_path: Path) -> None:
    """A small `make chaos-cluster`."""
    plan = Plan(agents=2, gateways=2, runs=30, open_runs=6, wait_s=0.2, faults=FAULTS, times=1)
    found = await figures(plan, tmp_path)
    assert found["holes"] == {}
    assert (found["lost"], found["never_ended"], found["ended_twice"], found["accepted_twice"]) == (0, [], [], [])
    assert (found["writes_missing"], found["writes_made_twice"]) == (0, [])
    assert found["listed_otherwise_by_another_agent"] == []
    assert found["silence_s"]["agent killed"] < 15.0, found
