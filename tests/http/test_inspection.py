"""Looking into one run."""

import httpx2

from tests.http.house import House
from tests.kit.runs import whole_run


async def test_the_timeline_of_a_run_grows_with_its_journal(client: httpx2.AsyncClient, house: House) -> None:
    open_items = []
    for commit in whole_run():
        run = await house.play([commit])
        told = (await client.get(f"/v1/runs/{run}/timeline")).json()
        assert (told["run_id"], told["state"]) == (run, commit.state.status)
        open_items.append([item["id"] for item in told["items"] if item["ended_at"] is None])
    assert open_items == [["accepted"], ["call:1:2"], ["call:2:3"], ["step:1", "step:1:attempt:1"], ["call:3:5"], []]
    assert told["items"][1]["tokens"] == {"input": 900, "output": 200, "cache_read": 0}
    assert told["items"][1]["started_at"] < told["items"][1]["ended_at"]
