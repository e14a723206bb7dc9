"""The header Idempotency-Key: what is sent again under it is done once, and it names nothing else."""

from typing import Any

import httpx2
import pytest

from agent_service.core.events import SignalReceived
from tests.http.house import House
from tests.http.waiting_runs import with_a_question
from tests.kit.runs import whole_run

GOAL = {"goal": "Find the answer."}
KEY = "Idempotency-Key"
UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"


async def wake(client: httpx2.AsyncClient, key: str, **body: Any) -> httpx2.Response:
    return await client.post("/v1/wake", json=GOAL | body, headers={KEY: key})


async def say(client: httpx2.AsyncClient, run: str, key: str, text: str, part: str = "answers") -> httpx2.Response:
    body = {"answer": text} if part == "answers" else {"kind": "message", "message": text}
    return await client.post(f"/v1/runs/{run}/{part}", json=body, headers={KEY: key})


async def heard(house: House, run: str) -> list[str | None]:
    events = [entry.decoded() for entry in await house.store.entries(run)]
    return [event.signal.message for event in events if isinstance(event, SignalReceived)]


async def test_a_wake_under_the_same_key_is_the_same_run(client: httpx2.AsyncClient, house: House) -> None:
    first, quoted = await wake(client, UUID), await wake(client, f'"{UUID}"')
    assert first.status_code == 202
    assert quoted.json() == first.json()
    assert await house.how_many() == 1


async def test_another_request_under_the_same_key_is_refused(client: httpx2.AsyncClient, house: House) -> None:
    run = (await wake(client, UUID)).json()["run_id"]
    answer = await wake(client, UUID, goal="Another.")
    told = answer.json()
    assert (answer.status_code, told["code"], told["run_id"]) == (422, "idempotency_key_reused", run)
    assert told["errors"][0]["field"] == KEY
    assert await house.how_many() == 1


async def test_a_key_is_its_callers_own(house: House) -> None:
    async with house.client("admin") as ann, house.client("waker") as bob:
        own = [(await wake(client, UUID)).json()["run_id"] for client in (ann, bob, ann)]
        assert own[0] == own[2] != own[1]
        assert (await wake(bob, UUID, goal="Another.")).json()["run_id"] == own[1]
        by_name = await bob.post("/v1/wake", json=GOAL | {"wake_id": UUID})
    assert by_name.json()["run_id"] not in own


@pytest.mark.parametrize("part", ["answers", "signals"])
async def test_another_word_under_the_same_key_is_refused(client: httpx2.AsyncClient, house: House, part: str) -> None:
    run = await house.play(with_a_question() if part == "answers" else whole_run()[:3])
    assert (await say(client, run, UUID, "the cellar", part)).status_code == 202
    answer = await say(client, run, UUID, "the hall", part)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert await heard(house, run) == ["the cellar"]
