"""An executor that knows RFC-103 alone: no catalog, no attempts, one key for the results of all attempts of a step."""

from pathlib import Path
from typing import Any

from schemas import keys
from tests.e2e.by_hand import READ, bench, one_step
from tests.kit.waiting import until

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


async def test_answers_to_two_attempts_that_are_equal_to_the_byte_count_as_two(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look")) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        for attempt in (1, 2):
            await made.answer(await made.request(attempt), **FAILED)
        await made.answer(await made.request(3))
        assert (await made.ended(run_id))["state"] == "done"
        assert [request["attempt"] for request in made.requests] == [1, 2, 3]


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


async def test_one_that_names_its_attempts_is_not_asked_again_by_an_agent_that_was_killed(tmp_path: Path) -> None:
    async with bench(tmp_path, one_step("look"), mortal=True) as made:
        run_id = (await made.wake("w")).json()["run_id"]
        await made.answer(await made.request(1), attempt=1, **FAILED)
        second = await made.request(2)
        made.agent.kill()
        await until(lambda: (tmp_path / "agent.log").read_text().count("the bus is informed") == 2, within_s=20)
        await made.answer(second, attempt=2, msg_id=keys.result(run_id, 1, 2))
        assert (await made.ended(run_id))["state"] == "done"
        assert [request["attempt"] for request in made.requests] == [1, 2]
