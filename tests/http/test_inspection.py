"""Looking into one run."""

import httpx2
import pytest

from tests.http.house import House
from tests.kit.runs import whole_run


async def test_the_timeline_of_a_run_grows_with_its_journal(client: httpx2.AsyncClient, house: House) -> None:
    open_items = []
    for commit in whole_run():
        run = await house.play([commit])
        told = (await client.get(f"/v1/runs/{run}/timeline")).json()
        assert (told["run_id"], told["status"]) == (run, commit.state.status)
        open_items.append([item["id"] for item in told["items"] if item["ended_at"] is None])
    assert open_items == [["accepted"], ["call:1:2"], ["call:2:3"], ["step:1", "step:1:attempt:1"], ["call:3:5"], []]
    assert told["items"][1]["tokens"] == {"input": 900, "output": 200, "cache_read": 0}
    assert told["items"][1]["started_at"] < told["items"][1]["ended_at"]


async def test_a_step_and_a_call_are_shown_in_full(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(whole_run(steps=2))
    step = (await client.get(f"/v1/runs/{run}/steps/2")).json()
    assert (step["run_id"], step["step"], step["arguments"]) == (run, 2, {"text": "part 2 of the answer"})
    assert step["attempts"][0]["result"]["excerpt"] == "Page 2 says a part of the answer."
    call = (await client.get(f"/v1/runs/{run}/calls/1")).json()
    assert (call["run_id"], call["call"], call["phase"], call["usage"]["input_tokens"]) == (run, 1, "frame", 900)
    assert "<goal>" in "".join(part["text"] for part in call["prompt"] if part["role"] == "user")


@pytest.mark.parametrize(
    ("part", "code"), [("steps/3", "unknown_step"), ("calls/9", "unknown_call"), ("calls/1000000", "unknown_call")]
)
async def test_what_a_run_has_not_done_is_not_found(
    client: httpx2.AsyncClient, house: House, part: str, code: str
) -> None:
    run = await house.play(whole_run(steps=2))
    answer = await client.get(f"/v1/runs/{run}/{part}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, code)
