"""`?wait`: a call that answers once a run has ended or waits for a person, without being asked again."""

import asyncio
from collections.abc import Sequence

import httpx2
import pytest

from agent_service.api.event_streams import Slots
from agent_service.journal import Commit
from tests.http.house import House, bearer
from tests.http.waiting_runs import handed_over, with_a_question
from tests.kit.runs import accepted, run_id, whole_run
from tests.kit.waiting import until

GOAL = {"goal": "Find the answer."}


async def waiting(client: httpx2.AsyncClient, run: str, wait: float = 30) -> httpx2.Response:
    return await client.get(f"/v1/runs/{run}", params={"wait": wait})


@pytest.mark.parametrize(
    ("commits", "status"), [(whole_run(), "done"), (with_a_question(), "paused"), (handed_over(), "escalated")]
)
async def test_who_waits_is_answered_when_the_run_rests_in_peoples_hands(
    over_http: httpx2.AsyncClient, house: House, commits: Sequence[Commit], status: str
) -> None:
    run = await house.play(commits[:1])
    answer = asyncio.create_task(waiting(over_http, run))
    await until(lambda: house.feed.followers == 1)
    for commit in commits[1:]:
        assert not answer.done()
        await house.play([commit])
    assert (await answer).json()["state"] == status
    assert house.feed.followers == 0


async def test_what_another_process_commits_is_waited_for_too(over_http: httpx2.AsyncClient, house: House) -> None:
    first, *rest = whole_run()
    run = await house.play([first])
    answer = asyncio.create_task(waiting(over_http, run))
    await until(lambda: house.feed.followers == 1)
    for number, commit in enumerate(rest):
        await (house.elsewhere if number % 2 else house.overhear)([commit])
    assert (await answer).json()["state"] == "done"


async def test_a_run_that_rests_already_is_not_waited_for(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(with_a_question())
    async with asyncio.timeout(5):
        assert (await waiting(client, run)).json()["state"] == "paused"


async def test_who_waits_is_answered_when_the_agent_stops(over_http: httpx2.AsyncClient, house: House) -> None:
    woken = asyncio.create_task(over_http.post("/v1/wake", json=GOAL, params={"wait": 30}))
    await until(lambda: house.feed.followers == 1)
    run = (await over_http.get("/v1/runs")).json()["runs"][0]["run_id"]
    shown = asyncio.create_task(waiting(over_http, run))
    await until(lambda: house.feed.followers == 2)
    house.feed.end()
    assert ((await shown).status_code, (await shown).json()["state"]) == (200, "queued")
    assert ((await woken).status_code, (await woken).json()["run"]["state"]) == (202, "queued")
    async with asyncio.timeout(5):
        assert (await waiting(over_http, run)).json()["state"] == "queued", "nor is waited for what comes late"


async def test_nobody_waits_longer_than_asked(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play([accepted()])
    answer = await waiting(client, run, 0.05)
    assert (answer.status_code, answer.json()["state"]) == (200, "queued")


async def test_a_run_that_is_none_is_not_waited_for(client: httpx2.AsyncClient, house: House) -> None:
    assert (await waiting(client, run_id(9))).status_code == 404
    assert house.feed.followers == 0


@pytest.mark.parametrize("wait", ["-1", "301", "long", "nan", "inf"])
async def test_the_time_to_wait_has_bounds(client: httpx2.AsyncClient, house: House, wait: str) -> None:
    for answer in (
        await client.get(f"/v1/runs/{run_id(1)}", params={"wait": wait}),
        await client.post("/v1/wake", params={"wait": wait}, json=GOAL),
    ):
        assert (answer.status_code, [flaw["field"] for flaw in answer.json()["errors"]]) == (422, ["wait"])
    assert await house.how_many() == 0


async def test_a_wake_that_waits_says_how_the_run_stands(client: httpx2.AsyncClient, house: House) -> None:
    answer = await client.post("/v1/wake", params={"wait": 0.05}, json=GOAL)
    told = answer.json()
    assert (answer.status_code, told["run"]["run_id"], told["run"]["state"]) == (202, told["run_id"], "queued")
    assert await house.how_many() == 1


async def test_a_wake_that_has_seen_its_run_end_is_answered_with_200(client: httpx2.AsyncClient) -> None:
    named = {"wake_id": "w-1"} | GOAL
    run = (await client.post("/v1/wake", json=named)).json()["run_id"]
    waker = asyncio.create_task(client.post("/v1/wake", params={"wait": 30}, json=named))
    await client.post(f"/v1/runs/{run}/cancel", json={})
    answer = await waker
    assert (answer.status_code, answer.json()["run"]["state"]) == (200, "cancelled")


async def test_a_caller_that_hangs_up_is_waited_for_no_longer(port: int, house: House) -> None:
    run = await house.play([accepted()])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /v1/runs/{run}?wait=300 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    writer.write(f"{head}Authorization: {bearer('reader')['Authorization']}\r\n\r\n".encode())
    await until(lambda: house.feed.followers == 1)
    writer.close()
    await until(lambda: house.feed.followers == 0)
    assert await reader.read() == b""


async def test_where_too_many_wait_nothing_is_done(client: httpx2.AsyncClient, house: House) -> None:
    house.streams.slots = Slots(most=0)
    for path in ("/v1/wake?wait=1", f"/v1/runs/{run_id(1)}?wait=1"):
        answer = await client.request("POST" if "wake" in path else "GET", path, json=GOAL)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many_streams")
    assert await house.how_many() == 0
    assert (await client.post("/v1/wake", json=GOAL)).status_code == 202
