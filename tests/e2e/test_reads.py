"""Several reads at once on a real bus: their requests leave together, and a killed agent waits for those still out."""

from pathlib import Path
from typing import Any

from tests.e2e.bodies import FRAME
from tests.e2e.by_hand import bench
from tests.kit.waiting import until

SIDE_BY_SIDE: dict[str, Any] = {"limits": {"parallel_reads": 3}}


def reads(count: int) -> dict[str, Any]:
    """A script that looks at `count` pages at once, and is done."""
    first, *others = ({"tool": "look", "command": "handle", "arguments": {"page": n}} for n in range(count))
    met = [{"item": f"d{n}", "evidence": f"step:{n}"} for n in (1, 2, 3)]
    end = {"verdict": "done", "summary": "done", "met": met}
    plan = {"phase": "plan", "plan": {"action": first, "also": others}}
    return {"name": "reads", "rules": [FRAME, plan, {"phase": "reflect", "when": {"steps": count}, "reflect": end}]}


async def test_a_killed_agent_asks_for_no_read_again_and_goes_on_when_the_last_is_in(tmp_path: Path) -> None:
    async with bench(tmp_path, reads(3), mortal=True, **SIDE_BY_SIDE) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        await made.request(3)
        await made.answer(made.requests[1])
        await until(lambda: has_finished(made.get, run_id, [2]))
        made.agent.kill()
        await until(made.is_ready, within_s=20)
        view = (await made.get(f"/v1/runs/{run_id}")).json()
        assert [(step["step"], step["status"]) for step in view["steps"]] == [(1, "pending"), (2, "ok"), (3, "pending")]
        for request in (made.requests[2], made.requests[0]):
            await made.answer(request)
        ended = await made.ended(run_id)
        assert (ended["state"], ended["usage"]["calls"]) == ("done", 3)
        assert sorted(request["step"] for request in made.requests) == [1, 2, 3]


async def has_finished(get: Any, run_id: str, steps: list[int]) -> bool:
    view = (await get(f"/v1/runs/{run_id}")).json()
    return [step["step"] for step in view["steps"] if step["status"] == "ok"] == steps
