"""`?wait`: a call that answers once a run has ended or waits for a person, without being asked again."""

import asyncio
from collections.abc import Sequence

import httpx2
import pytest

from agent_service.run.journal import Commit
from tests.http.house import House, bearer
from tests.http.waiting_runs import handed_over, with_a_question
from tests.kit.runs import accepted, whole_run
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


async def test_a_caller_that_hangs_up_is_waited_for_no_longer(port: int, house: House) -> None:
    run = await house.play([accepted()])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /v1/runs/{run}?wait=300 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    writer.write(f"{head}Authorization: {bearer('reader')['Authorization']}\r\n\r\n".encode())
    await until(lambda: house.feed.followers == 1)
    writer.close()
    await until(lambda: house.feed.followers == 0)
    assert await reader.read() == b""
