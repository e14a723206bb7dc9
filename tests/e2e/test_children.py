"""Runs that are steps of runs, on a real bus: killed, cancelled, forged for, and with what they made."""

from pathlib import Path
from typing import Any

from tests.e2e.bodies import FRAME
from tests.e2e.by_hand import Bench, bench
from tests.kit.waiting import until

FAMILY: dict[str, Any] = {"limits": {"max_depth": 1, "parallel_reads": 2}}
MET = [{"item": f"d{n}", "evidence": "step:1"} for n in (1, 2, 3)]
END = {"phase": "reflect", "reflect": {"verdict": "done", "summary": "done", "met": MET}}


def _agent(goal: str) -> dict[str, Any]:
    return {"tool": "agent", "command": "run", "arguments": {"goal": goal}}


LOOK = {"tool": "look", "command": "handle", "arguments": {}}
HALVES = {
    "name": "halves",
    "rules": [
        FRAME,
        {"phase": "plan", "when": {"goal": "^half"}, "plan": {"action": LOOK}},
        {"phase": "plan", "plan": {"action": _agent("half one"), "also": [_agent("half two")]}},
        END,
    ],
}
"""The run that is asked for starts two others at once, each of which looks once."""


async def looks_of(made: Bench, run_id: str) -> list[dict[str, Any]]:
    """What both children ask for."""
    await until(lambda: len(_looks(made)) == 2, within_s=20)
    assert run_id not in [request["run_id"] for request in _looks(made)]
    return _looks(made)


def _looks(made: Bench) -> list[dict[str, Any]]:
    return [request for request in made.requests if request["tool"] == "look"]


async def test_a_killed_agent_starts_no_child_twice_and_brings_both_home(tmp_path: Path) -> None:
    async with bench(tmp_path, HALVES, mortal=True, **FAMILY) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        first, second = await looks_of(made, run_id)
        await made.answer(first)
        await made.ended(first["run_id"])
        made.agent.kill()
        await until(made.is_ready, within_s=20)
        assert (await made.get(f"/v1/runs/{run_id}")).json()["waiting_for"]["kind"] == "child"
        await made.answer(second)
        ended = await made.ended(run_id)
        assert (ended["state"], ended["usage"]["calls"], ended["budget"]["steps"]) == ("done", 9, 4)
        assert len(await made.runs()) == 3
        assert len(_looks(made)) == 2
        own = [request for request in made.requests if request["tool"] == "agent"]
        assert [(request["step"], request["executor"]) for request in own] == [(1, "agentic-loop"), (2, "agentic-loop")]


async def test_a_cancel_ends_the_whole_family_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path, HALVES, **FAMILY) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        children = [request["run_id"] for request in await looks_of(made, run_id)]
        await made.post(f"/v1/runs/{run_id}/cancel")
        for each in (run_id, *children):
            assert (await made.ended(each))["state"] == "cancelled"
