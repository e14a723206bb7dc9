"""Several reads at once on a real bus: their requests leave together, and a killed agent waits for those still out."""

from pathlib import Path
from typing import Any

from schemas import subjects
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


async def test_a_read_that_fails_is_asked_for_again_while_the_others_are_in(tmp_path: Path) -> None:
    failed = {"class": "upstream", "message": "503", "retryable": True}
    async with bench(tmp_path, reads(3), **SIDE_BY_SIDE) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        await made.request(3)
        await made.answer(made.requests[0], status="error", result=None, error=failed)
        again = await made.request(4)
        assert (again["step"], again["attempt"]) == (1, 2)
        for request in (made.requests[1], made.requests[2]):
            await made.answer(request)
        await made.answer(again, msg_id="again")
        assert (await made.ended(run_id))["state"] == "done"


async def test_what_the_bus_lost_of_several_requests_is_said_again(tmp_path: Path) -> None:
    async with bench(tmp_path, reads(2), **SIDE_BY_SIDE) as made:
        await made.wake("w")
        await made.request(2)
        await made.client.jetstream().purge_stream(subjects.STREAM_REQUESTS)
        await until(lambda: all(made.heard.count(request) > 1 for request in made.requests), within_s=20)
        assert len(made.requests) == 2
