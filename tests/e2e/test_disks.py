"""Disks that fill up, and power failures that lose unsynced data."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from nats.js.errors import NotFoundError

from agent_service.bus.health import CANNOT_WRITE
from agent_service.cli.doctor.report import api
from agent_service.settings import load
from groundwork.nats.link import NatsLink
from schemas import subjects
from tests.kit import stack
from tests.kit.bus import a_stream
from tests.kit.cluster import Cluster
from tests.kit.disks import ForgetfulDisk, fill, forgetful_disk, small_disk
from tests.kit.fleet import Fleet, FleetOptions, fleet

RUNS, STEPS = 12, 3
NEVER = "1h"
"""A sync interval longer than any test."""


async def test_a_run_goes_on_by_itself_once_a_disk_that_nats_shares_has_room_again(tmp_path: Path) -> None:
    """Readiness says meanwhile why nothing is stored."""
    rules = stack.recording(tmp_path / "marks" / "lines", steps=1)
    frame, plan, end = rules["rules"]
    waits = {"phase": "plan", "wait": {"seconds": 3, "why": "the disk is filled"}}
    rules["rules"] = [frame, plan | {"when": {"feedback": "you have waited"}}, waits, end]
    with small_disk(tmp_path / "disk", "64m") as disk:
        async with stack.running(disk, rules) as made:
            run_id = await stack.wake(made)
            await stack.shown(made, run_id, lambda run: "the disk is filled" in str(run.get("summary")))
            filler = fill(disk)
            await stack.until(lambda: stack.get(made, "/readyz"), lambda said: CANNOT_WRITE in said.text, within_s=90)
            settings = load(made.config, {})
            assert "systemctl restart agentic-nats" in (await api(settings.http, settings.store)).remedy
            filler.unlink()
            assert (await stack.to_the_end(made, run_id))["state"] == "done"
            await stack.until(lambda: stack.is_ready(made))


async def _stored(link: NatsLink) -> int:
    with suppress(NotFoundError):
        return int((await link.client.jetstream().stream_info("WORK")).state.messages)
    return -1


@asynccontextmanager
async def on_forgetful_disks(folder: Path) -> AsyncIterator[tuple[Fleet, ForgetfulDisk, list[ForgetfulDisk]]]:
    """Each service has its store on its own disk, and the bus another, which never syncs by itself."""
    rules = stack.slowed(stack.recording(folder / "marks" / "$goal", steps=STEPS), 0.3)
    options = FleetOptions(folder=folder / "fleet", replicas=1, script=rules, plugins=(stack.PROBES,))
    async with AsyncExitStack() as opened:
        of_bus = opened.enter_context(forgetful_disk(folder / "nodes" / "n1" / "store"))
        stores = [opened.enter_context(forgetful_disk(folder / "fleet" / name)) for name in ("agent", "gateway")]
        bus = await opened.enter_async_context(Cluster(folder / "nodes", nodes=1, sync_interval=NEVER))
        yield await opened.enter_async_context(fleet(bus, options)), of_bus, stores


@pytest.mark.timeout(300)
@pytest.mark.parametrize("services", [True, False], ids=["everything loses power", "only the bus does"])
async def test_what_the_bus_forgot_is_said_again_and_every_run_completes(tmp_path: Path, services: bool) -> None:
    """If the gateway's disk lost a tool's answer, its write is in doubt and not repeated."""
    files = [tmp_path / "marks" / f"w{number}" for number in range(RUNS)]
    async with on_forgetful_disks(tmp_path) as (ships, of_bus, stores):
        (agent,), (node,) = ships.agents, ships.cluster.nodes
        async with ships.cluster.linked() as link:
            await a_stream(link)
        run_ids = await asyncio.gather(*(stack.wake(agent, file.name) for file in files))
        await stack.until(lambda: sum(map(stack.lines, files)) >= RUNS // 2)
        of_bus.sync()
        async with ships.cluster.linked() as link:
            await link.publish("work.new", b"acknowledged", msg_id="one", headers={})
        await stack.until(lambda: sum(map(stack.lines, files)) >= RUNS + RUNS // 2)
        node.kill()
        for member in ships.members if services else ():
            member.kill()
        for disk in (of_bus, *stores) if services else (of_bus,):
            disk.lose_power()
        await ships.cluster.heal()
        await ships.heal()
        ended = [await stack.to_the_end(agent, run_id) for run_id in run_ids]
        async with ships.cluster.linked() as link:
            assert await _stored(link) == 0, "the bus forgot nothing: the test shows nothing"
            completed = await stack.payloads(link, subjects.COMPLETED)
    done = [run["run_id"] for run in ended if run["state"] == "done"]
    assert sorted(event["run_id"] for event in completed) == sorted(done)
    assert len(done) == RUNS or (services and done)
    for run, file in zip(ended, files, strict=True):
        assert (run["state"], run["class"]) in (("done", "completed"), ("escalated", "in_doubt")), run
        assert stack.lines(file) == STEPS if run["state"] == "done" else stack.lines(file) <= STEPS, run
