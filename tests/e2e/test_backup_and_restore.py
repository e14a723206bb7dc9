"""Everything is lost while runs are in progress; an empty machine and bus resume from the last backup."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.cli.invoke import agentic
from tests.kit.cluster import Cluster
from tests.kit.fleet import Fleet, FleetOptions, fleet
from tests.kit.stack import DONE, MET, PROBES, lines, of_goal, planning, post, script, shown, touch, until, wake

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
    """Waits for that state and at least that many steps, and returns the view."""
    return await shown(here.agents[0], run_id, lambda run: run["state"] == state and len(run["steps"]) >= steps)


async def answer(here: Fleet, run_id: str, outcome: str) -> None:
    """Answers a write in doubt."""
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
