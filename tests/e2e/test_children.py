"""Runs that are steps of runs, on a real bus: killed, cancelled, forged for, and with what they made."""

from pathlib import Path
from typing import Any

import pytest

from groundwork.nats.artifact_bucket import ArtifactBucket
from schemas import subjects
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


async def test_a_result_that_is_made_up_for_a_child_is_refused_and_the_true_one_comes_home(tmp_path: Path) -> None:
    async with bench(tmp_path, HALVES, **FAMILY) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        looks = await looks_of(made, run_id)
        await made.answer({"run_id": run_id, "step": 1, "tool": "agent"}, attempt=1)
        refused = await made.client.jetstream().subscribe(subjects.REJECTED)
        letter = await refused.next_msg(timeout=20)
        assert "has not ended" in letter.data.decode()
        for look in looks:
            await made.answer(look)
        ended = await made.ended(run_id)
        assert [step["summary"] for step in ended["steps"]] == ["done", "done"]


async def test_what_a_child_made_is_among_its_parents_artifacts(tmp_path: Path) -> None:
    async with bench(tmp_path, HALVES, **FAMILY) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        first, second = await looks_of(made, run_id)
        bucket = ArtifactBucket(made.link, subjects.ARTIFACT_BUCKET)
        await bucket.put(f"{first['run_id']}/page.md", b"# A page", "text/markdown")
        await made.answer(first, result={"summary": "seen", "artifact_path": "artifacts/page.md"})
        await made.answer(second)
        (path,) = (await made.ended(run_id))["artifacts"]
        assert await bucket.get(f"{run_id}/{path.removeprefix('artifacts/')}") == b"# A page"


@pytest.mark.parametrize("depth", [{"parent_run_id": "the run"}, {"depth": 2}])
async def test_nobody_gets_deeper_than_the_deepest_by_asking_from_outside(
    tmp_path: Path, depth: dict[str, object]
) -> None:
    async with bench(tmp_path, HALVES, **FAMILY) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        (look, _) = await looks_of(made, run_id)
        named = {name: look["run_id"] if value == "the run" else value for name, value in depth.items()}
        answer = await made.wake("outside", **named)
        assert answer.status_code == 422
        assert "agents may call each other 1 times in a row" in answer.text
