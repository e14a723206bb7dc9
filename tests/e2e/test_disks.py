"""Disks that fill up, power failures, and a total loss while runs are in progress: they go on from what there is."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from nats.js.errors import NotFoundError

from agent_service.bus.health import CANNOT_WRITE
from agent_service.cli.doctor.report import api
from agent_service.settings import load
from groundwork.nats.link import NatsLink
from schemas import subjects
from tests.cli.invoke import agentic
from tests.kit import stack
from tests.kit.bus import a_stream
from tests.kit.cluster import Cluster
from tests.kit.disks import ForgetfulDisk, fill, forgetful_disk, small_disk
from tests.kit.fleet import Fleet, FleetOptions, fleet
from tests.kit.stack import DONE, MET, PROBES, lines, of_goal, planning, post, script, shown, touch, until, wake

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


Store = Literal["jetstream", "sqlite"]
AT_LAST = {"verdict": "done", "summary": "done", "met": [item | {"evidence": "step:2"} for item in MET]}


def rules(tmp_path: Path, thinks_s: float) -> dict[str, Any]:
    """`writes` records two lines, the first after `go1`; `thinks` thinks and records one; `ends` reads and is done."""
    marks = tmp_path / "marks"
    writes, thinks = (planning("probe", "record", file=str(marks / name)) for name in ("writes", "thinks"))
    first = planning("probe", "record", file=str(marks / "writes"), wait_for=str(marks / "go1"))
    on = {"phase": "reflect", "reflect": {"verdict": "continue", "summary": "on"}}
    return script(
        *of_goal("ends", planning("probe", "show")),
        *of_goal("writes", first | {"when": {"steps": 0}}, on | {"when": {"steps": 1}, "plan": writes["plan"]}),
        *of_goal(
            "thinks",
            on | {"when": {"status": "error"}, "plan": thinks["plan"]},
            thinks | {"wait_s": thinks_s},
            {"phase": "reflect", "when": {"steps": 2}, "reflect": AT_LAST},
        ),
        DONE,
    )


@asynccontextmanager
async def machine(tmp_path: Path, name: str, store: Store = "sqlite", *, thinks_s: float = 0) -> AsyncIterator[Fleet]:
    """An installation in its own folder: its bus is set up, its services are not started."""
    options = FleetOptions(
        folder=tmp_path / name,
        store=store,
        replicas=1,
        script=rules(tmp_path, thinks_s),
        plugins=(PROBES,),
        begun=False,
    )
    cluster = Cluster(tmp_path / f"{name}-bus", nodes=1, sync_interval="1s")
    async with cluster, fleet(cluster, options) as made:
        yield made


def lose(here: Fleet) -> None:
    for member in here.members:
        member.kill()


async def called(here: Fleet, *arguments: str | Path) -> dict[str, Any]:
    done = await asyncio.to_thread(agentic, *arguments, "--config", here.agents[0].config, "--json")
    assert done.code == 0, done
    document: dict[str, Any] = done.document
    return document


async def comes_to(here: Fleet, run_id: str, state: str, *, steps: int = 0) -> dict[str, Any]:
    return await shown(here.agents[0], run_id, lambda run: run["state"] == state and len(run["steps"]) >= steps)


async def answer(here: Fleet, run_id: str, outcome: str) -> None:
    said = {"kind": "answer", "outcome": outcome, "message": "I have looked."}
    assert (await post(here.agents[0], f"/v1/runs/{run_id}/signals", **said)).is_success


@pytest.mark.timeout(300)
@pytest.mark.parametrize("store", ["sqlite", "jetstream"])
async def test_runs_go_on_from_a_backup_and_no_write_that_may_have_been_done_since_is_repeated(
    tmp_path: Path, store: Store
) -> None:
    place, marks = tmp_path / "it.zip", tmp_path / "marks"
    async with machine(tmp_path, "lost", store, thinks_s=600) as lost:
        await lost.heal()
        ends, writes, thinks = [await wake(lost.agents[0], goal) for goal in ("ends", "writes", "thinks")]
        await comes_to(lost, ends, "done")
        await until(lambda: lines(marks / "writes") == 1)
        made = await called(lost, "backup", place)
        assert made["about"]["agent"] == {"runs": 3, "of them under way": 2}
        touch(marks / "go", 1)
        await comes_to(lost, writes, "done", steps=2)
        await comes_to(lost, await wake(lost.agents[0], "ends"), "done")
        lose(lost)
    assert (lines(marks / "writes"), lines(marks / "thinks")) == (2, 0)
    async with machine(tmp_path, "new", store) as new:
        for name in ("agent.keys", "gateway.keys"):  # which an operator keeps in another place
            shutil.copy(lost.options.folder / name, new.options.folder / name)
        told = await called(new, "restore", place)
        assert (told["runs"], set(told["under_way"])) == (3, {writes, thinks})
        await new.heal()
        assert (await comes_to(new, ends, "done"))["wake_id"]
        for run_id in (writes, thinks):
            assert (await comes_to(new, run_id, "escalated"))["class"] == "in_doubt"
        await answer(new, writes, "ran")
        await comes_to(new, writes, "escalated", steps=2)
        await answer(new, writes, "ran")
        await comes_to(new, writes, "done", steps=2)
        assert (lines(marks / "writes"), lines(marks / "thinks")) == (2, 0)
        await answer(new, thinks, "did_not_run")
        await comes_to(new, thinks, "done", steps=2)
        assert lines(marks / "thinks") == 1
        await comes_to(new, await wake(new.agents[0], "thinks"), "done")
        assert (await called(new, "verify", "--all"))["ok"]


async def test_a_move_leaves_nothing_in_doubt_for_nothing_was_done_since(tmp_path: Path) -> None:
    place = tmp_path / "it.zip"
    async with machine(tmp_path, "old", thinks_s=600) as old:
        await old.heal()
        thinks = await wake(old.agents[0], "thinks")
        await shown(old.agents[0], thinks, lambda run: (run["waiting_for"] or {}).get("kind") == "model")
        lose(old)
        await called(old, "backup", place, "--with-keys")
    async with machine(tmp_path, "new") as new:
        told = await called(new, "restore", place, "--moved")
        assert (told["moved"], set(told["under_way"])) == (True, {thinks})
        await new.heal()
        await comes_to(new, thinks, "done")
    assert lines(tmp_path / "marks" / "thinks") == 1
