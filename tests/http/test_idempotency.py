"""The header Idempotency-Key: what is sent again under it is done once, and it names nothing else."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.core.events import SignalReceived
from tests.http.house import House, open_house
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


async def test_a_hundred_wakes_at_once_under_one_key_are_one_run(over_http: httpx2.AsyncClient, house: House) -> None:
    answers = await asyncio.gather(*(wake(over_http, UUID) for _ in range(100)))
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert await house.how_many() == 1


async def test_another_request_under_the_same_key_is_refused(client: httpx2.AsyncClient, house: House) -> None:
    run = (await wake(client, UUID)).json()["run_id"]
    answer = await wake(client, UUID, goal="Another.")
    told = answer.json()
    assert (answer.status_code, told["code"], told["run_id"]) == (422, "idempotency_key_reused", run)
    assert told["errors"][0]["field"] == KEY
    assert await house.how_many() == 1


async def test_a_wake_that_names_itself_is_named_so(client: httpx2.AsyncClient, house: House) -> None:
    assert (await wake(client, UUID, wake_id="w-1")).json()["wake_id"] == "w-1"
    answer = await wake(client, UUID, wake_id="w-1", goal="Another.")
    assert (answer.status_code, answer.json()["code"]) == (409, "wake_id_taken")
    assert await house.how_many() == 1


async def test_a_key_is_its_callers_own(house: House) -> None:
    async with house.client("admin") as ann, house.client("waker") as bob:
        own = [(await wake(client, UUID)).json()["run_id"] for client in (ann, bob, ann)]
        assert own[0] == own[2] != own[1]
        assert (await wake(bob, UUID, goal="Another.")).json()["run_id"] == own[1]
        by_name = await bob.post("/v1/wake", json=GOAL | {"wake_id": UUID})
    assert by_name.json()["run_id"] not in own


async def test_without_tokens_a_key_is_the_name_of_the_run(tmp_path: Path) -> None:
    async with open_house(tmp_path, tokens=()) as house, house.client(None) as client:
        assert (await wake(client, UUID)).json()["wake_id"] == UUID
        assert (await wake(client, "child:run_1:1")).json()["wake_id"] != "child:run_1:1"


@pytest.mark.parametrize("key", ["order/21 of ann?", "child:run_1:1", "x" * 200, r"a \"b\" \\"])
async def test_a_key_may_hold_what_an_id_may_not(client: httpx2.AsyncClient, house: House, key: str) -> None:
    first, second = [await wake(client, f'"{key}"') for _ in range(2)]
    assert first.status_code == 202
    assert second.json() == first.json()
    assert await house.how_many() == 1


@pytest.mark.parametrize(
    "key", ["", '""', "x" * 256, '"a', 'a"b"', "a b", "a\tb", '"a\\"', "ключ".encode().decode("latin-1")]
)
async def test_what_can_be_no_key_is_refused(client: httpx2.AsyncClient, house: House, key: str) -> None:
    answer = await client.post("/v1/wake", json=GOAL, headers=[(KEY.encode(), key.encode("latin-1"))])
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, KEY)
    assert await house.how_many() == 0


async def test_an_answer_under_the_same_key_is_heard_once(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(with_a_question())
    answers = [await say(client, run, UUID, "the cellar") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    assert await heard(house, run) == ["the cellar"]


@pytest.mark.parametrize("part", ["answers", "signals"])
async def test_another_word_under_the_same_key_is_refused(client: httpx2.AsyncClient, house: House, part: str) -> None:
    run = await house.play(with_a_question() if part == "answers" else whole_run()[:3])
    assert (await say(client, run, UUID, "the cellar", part)).status_code == 202
    answer = await say(client, run, UUID, "the hall", part)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert await heard(house, run) == ["the cellar"]


async def test_another_word_under_the_same_signal_id_is_refused(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(whole_run()[:3])
    said = {"kind": "message", "message": "look in the cellar", "signal_id": "s-1"}
    for by in ("ann", "bob"):
        assert (await client.post(f"/v1/runs/{run}/signals", json=said | {"by": by})).status_code == 202
    answer = await client.post(f"/v1/runs/{run}/signals", json=said | {"message": "look in the hall"})
    told = answer.json()
    assert (answer.status_code, told["code"], told["errors"][0]["field"]) == (409, "signal_id_taken", "signal_id")
    assert await heard(house, run) == ["look in the cellar"]


async def test_one_key_names_a_word_in_each_of_several_runs(client: httpx2.AsyncClient, house: House) -> None:
    for number in (1, 2):
        run = await house.play(with_a_question(number))
        assert (await say(client, run, UUID, "the cellar")).status_code == 202
        assert await heard(house, run) == ["the cellar"]
