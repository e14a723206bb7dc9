"""An executor that knows RFC-103 alone: no catalog, no attempts, one key for the results of all attempts of a step."""

from pathlib import Path
from typing import Any

from tests.e2e.by_hand import READ, bench, one_step

FAILED: dict[str, Any] = {
    "status": "error",
    "error": {"class": "upstream", "message": "not now", "retryable": True},
    "result": None,
}


async def test_a_tool_of_one_that_answers_no_catalog_is_called_once_the_settings_declare_it(tmp_path: Path) -> None:
    tool = READ | {"name": "jina-reader", "route": "jina-reader"}
    async with bench(tmp_path, one_step("jina-reader"), offers=(), tools={"declared": [tool]}) as made:
        assert await made.is_ready()
        run_id = (await made.wake("w")).json()["run_id"]
        request = await made.request(1)
        assert (request["tool"], request["executor"]) == ("jina-reader", None)
        await made.answer(request)
        assert (await made.ended(run_id))["state"] == "done"


async def test_a_read_whose_second_answer_was_dropped_while_the_agent_was_killed_is_asked_again_at_once(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path, one_step("look"), mortal=True) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        await made.answer(await made.request(1), **FAILED)
        second = await made.request(2)
        made.agent.kill()
        assert (await made.answer(second)).duplicate
        await made.answer(await made.request(3))
        assert (await made.ended(run_id))["state"] == "done"
