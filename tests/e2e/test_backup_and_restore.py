"""Everything is lost with runs under way; a machine and a bus on which nothing is goes on from the last backup."""

import asyncio
import shutil
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.e2e.bodies import FRAME, lines, touch, written
from tests.e2e.machine import Machine, machine
from tests.kit.waiting import until


def recorded(file: Path, **more: str) -> dict[str, Any]:
    return {"action": {"tool": "probe", "command": "record", "arguments": {"file": str(file), **more}}}


def met(step: int) -> list[dict[str, str]]:
    return [{"item": f"d{n}", "evidence": f"step:{step}"} for n in (1, 2, 3)]


def script(tmp_path: Path, *, thinks_s: float = 0) -> Path:
    """`writes` records two lines, the first of which waits for `go1`; `thinks` records one, and thinks before; `ends`
    reads and is done."""
    done = {"verdict": "done", "summary": "done", "met": met(1)}
    at_last = done | {"met": met(2)}
    on = {"verdict": "continue", "summary": "on"}
    shown = {"action": {"tool": "probe", "command": "show", "arguments": {}}}
    writes, thinks, go = (tmp_path / "marks" / name for name in ("writes", "thinks", "go"))
    twice = recorded(writes, wait_for=f"{go}1")
    rules = [
        FRAME,
        {"phase": "plan", "when": {"goal": "ends"}, "plan": shown},
        {"phase": "plan", "when": {"goal": "writes", "steps": 0}, "plan": twice},
        {
            "phase": "reflect",
            "when": {"goal": "writes", "steps": 1},
            "reflect": on,
            "plan": recorded(writes),
        },
        {
            "phase": "reflect",
            "when": {"goal": "thinks", "status": "error"},
            "reflect": on,
            "plan": recorded(thinks),
        },
        {
            "phase": "plan",
            "when": {"goal": "thinks"},
            "wait_s": thinks_s,
            "plan": recorded(thinks),
        },
        {"phase": "reflect", "when": {"goal": "thinks", "steps": 2}, "reflect": at_last},
        {"phase": "reflect", "reflect": done},
    ]
    return written({"name": "recording", "rules": rules}, tmp_path)


async def backed_up(here: Machine, place: Path, *more: str) -> dict[str, Any]:
    called = await asyncio.to_thread(here.call, "backup", place, *more)
    assert called.code == 0, called
    made: dict[str, Any] = called.document
    return made


async def restored(here: Machine, place: Path, *more: str) -> dict[str, Any]:
    called = await asyncio.to_thread(here.call, "restore", place, *more)
    assert called.code == 0, called
    made: dict[str, Any] = called.document
    return made


def with_keys_of(lost: Machine, new: Machine) -> None:
    """What an operator keeps in another place."""
    for name in ("agent.keys", "gateway.keys"):
        shutil.copy(lost.folder / name, new.folder / name)


@pytest.mark.parametrize("store", ["sqlite", "jetstream"])
async def test_runs_go_on_from_a_backup_and_no_write_that_may_have_been_done_since_is_repeated(
    tmp_path: Path, store: Literal["jetstream", "sqlite"]
) -> None:
    place = tmp_path / "agentic.backup"
    async with machine(tmp_path / "lost", script(tmp_path, thinks_s=600), store=store) as lost:
        await lost.begin()
        ends, writes, thinks = [await lost.wake(goal) for goal in ("ends", "writes", "thinks")]
        await lost.comes_to(ends, "done")
        await until(lambda: lines(tmp_path / "marks" / "writes") == 1)
        made = await backed_up(lost, place)
        assert made["about"]["agent"] == {"runs": 3, "of them under way": 2}
        touch(tmp_path / "marks" / "go", 1)
        await lost.comes_to(writes, "done")
        woken_later = await lost.wake("ends")
        await lost.comes_to(woken_later, "done")
        lost.lose()
    assert (lines(tmp_path / "marks" / "writes"), lines(tmp_path / "marks" / "thinks")) == (2, 0)
    async with machine(tmp_path / "new", script(tmp_path), store=store) as new:
        with_keys_of(lost, new)
        told = await restored(new, place)
        assert (told["runs"], set(told["under_way"])) == (3, {writes, thinks})
        await new.begin()
        assert (await new.comes_to(ends, "done"))["wake_id"]
        for run_id in (writes, thinks):
            assert (await new.comes_to(run_id, "escalated"))["class"] == "in_doubt"
        await new.answer(writes, "ran")
        await until(lambda: _step(new, writes, 2))
        await new.comes_to(writes, "escalated")
        await new.answer(writes, "ran")
        await new.comes_to(writes, "done")
        assert (lines(tmp_path / "marks" / "writes"), lines(tmp_path / "marks" / "thinks")) == (2, 0)
        await new.answer(thinks, "did_not_run")
        await new.comes_to(thinks, "done")
        assert lines(tmp_path / "marks" / "thinks") == 1
        fresh = await new.wake("thinks")
        await new.comes_to(fresh, "done")
        verdict = await asyncio.to_thread(new.call, "verify", "--all")
        assert verdict.document["ok"], verdict


async def _step(here: Machine, run_id: str, number: int) -> bool:
    found = await here.comes_to(run_id, "escalated")
    return len(found["steps"]) == number


async def test_a_move_leaves_nothing_in_doubt_for_nothing_was_done_since(tmp_path: Path) -> None:
    place = tmp_path / "agentic.backup"
    async with machine(tmp_path / "old", script(tmp_path, thinks_s=600)) as old:
        await old.begin()
        thinks = await old.wake("thinks")
        await old.waits_for(thinks, "model")
        old.lose()
        await backed_up(old, place, "--with-keys")
    async with machine(tmp_path / "new", script(tmp_path)) as new:
        told = await restored(new, place, "--moved")
        assert (told["moved"], set(told["under_way"])) == (True, {thinks})
        await new.begin()
        await new.comes_to(thinks, "done")
    assert lines(tmp_path / "marks" / "thinks") == 1
