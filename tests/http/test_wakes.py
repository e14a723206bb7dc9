"""POST /v1/wake: one run per name, durable before it is answered, within the quota of its token, and counted."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import httpx2
import pytest
from pydantic import SecretStr

from agent_service.admission import limits
from agent_service.api.errors import ApiError, Code
from agent_service.api.requests import EVERY_SCOPE, Caller, WakeRequest
from agent_service.api.runs import RunCalls
from agent_service.core.events import SignalReceived
from agent_service.run.journal import Commit
from agent_service.settings import QuotaSettings, TokenSettings, token_caller
from groundwork.service.errors import TryAgain
from schemas import subjects
from tests.http.house import House, known_token, open_house, secret, with_a_question
from tests.kit.runs import whole_run
from tests.kit.waiting import until

GOAL = {"goal": "Find the answer."}
UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"


async def wake(client: httpx2.AsyncClient, key: str | None = None, **body: Any) -> httpx2.Response:
    return await client.post("/v1/wake", json=GOAL | body, headers={"Idempotency-Key": key} if key else {})


async def statuses(client: httpx2.AsyncClient, number: int, **body: Any) -> list[int]:
    return [(await wake(client, **body)).status_code for _ in range(number)]


async def test_a_wake_under_the_same_key_is_the_same_run_and_for_something_else_refused(
    client: httpx2.AsyncClient, house: House
) -> None:
    first, quoted = await wake(client, UUID), await wake(client, f'"{UUID}"')
    assert (first.status_code, quoted.json()) == (202, first.json())
    answer = await wake(client, UUID, goal="Another.")
    told = answer.json()
    assert (answer.status_code, told["code"]) == (422, "idempotency_key_reused")
    assert (told["run_id"], told["errors"][0]["field"]) == (first.json()["run_id"], "Idempotency-Key")
    two = await client.post("/v1/wake", json=GOAL, headers=[("Idempotency-Key", UUID), ("Idempotency-Key", "other")])
    assert (two.status_code, await house.how_many()) == (422, 1)


async def test_a_key_is_its_callers_own_and_names_nothing_else(house: House) -> None:
    async with house.client("admin") as ann, house.client("waker") as bob:
        own = [(await wake(client, UUID)).json()["run_id"] for client in (ann, bob, ann)]
        assert own[0] == own[2] != own[1]
        assert (await wake(bob, UUID, goal="Another.")).json()["run_id"] == own[1]
        assert (await wake(bob, wake_id=UUID)).json()["run_id"] not in own


@pytest.mark.parametrize("part", ["answers", "signals"])
async def test_another_word_under_the_same_key_is_refused(client: httpx2.AsyncClient, house: House, part: str) -> None:
    run = await house.play(with_a_question() if part == "answers" else whole_run()[:3])
    told = []
    for text in ("the cellar", "the hall"):
        body = {"answer": text} if part == "answers" else {"kind": "message", "message": text}
        answer = await client.post(f"/v1/runs/{run}/{part}", json=body, headers={"Idempotency-Key": UUID})
        told.append((answer.status_code, answer.json().get("code")))
    assert told == [(202, None), (422, "idempotency_key_reused")]
    events = [entry.decoded() for entry in await house.store.entries(run)]
    assert [event.signal.message for event in events if isinstance(event, SignalReceived)] == ["the cellar"]


async def test_a_wake_is_told_to_come_back_when_too_many_wait(tmp_path: Path) -> None:
    async with open_house(tmp_path, max_queued=2) as house, house.client() as client:
        first = [await wake(client, wake_id=f"w-{n}") for n in range(2)]
        late = await wake(client, wake_id="w-2")
        assert (late.status_code, late.headers["retry-after"]) == (503, "5")
        assert late.json()["error"]["code"] == "try_again"
        assert (await wake(client, wake_id="w-1")).json() == first[1].json()
        assert await house.how_many() == 2


async def test_a_wake_whose_fate_is_unknown_is_named_so_that_asking_again_is_safe(
    client: httpx2.AsyncClient, house: House
) -> None:
    house.archive.away = True
    told = (await wake(client)).json()
    house.archive.away = False
    assert (told["code"], "stored" in told["detail"]) == ("try_again", False)
    name = told["detail"].rpartition(" ")[2]
    assert [(await wake(client, wake_id=name)).status_code for _ in range(2)] == [202, 202]
    assert await house.how_many() == 1


@pytest.mark.parametrize("lost", [TryAgain("the store is away"), ApiError(Code.GONE, "it was deleted meanwhile")])
async def test_a_wake_is_told_its_run_though_the_run_cannot_be_shown(
    client: httpx2.AsyncClient, house: House, lost: Exception
) -> None:
    house.feed._rest = AsyncMock(side_effect=lost)  # type: ignore[method-assign] # while the caller waits
    answer = await client.post("/v1/wake", json=GOAL, params={"wait": 5})
    assert (answer.status_code, "run" in answer.json(), await house.how_many()) == (202, False, 1)


async def test_a_callback_that_would_never_be_called_is_refused_and_nothing_is_stored(
    client: httpx2.AsyncClient, house: House
) -> None:
    private, public = "https://10.0.0.7/told", "https://example.org/told"
    accepted = await wake(client, wake_id="w-1", callback=private)
    house.outside.refused[private] = "10.0.0.7 is not a public address"
    answer = await wake(client, wake_id="w-2", callback=private)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["field"]) == (422, "callback_refused", "callback")
    assert "10.0.0.7 is not a public address" in error["message"]
    assert (await wake(client, wake_id="w-2", callback=public)).status_code == 202
    assert (await wake(client, wake_id="w-1", callback=private)).json() == accepted.json()
    assert await house.how_many() == 2


async def test_the_address_of_a_callback_is_not_shown_to_who_reads_the_run(client: httpx2.AsyncClient) -> None:
    run = (await wake(client, callback="https://example.org/?token=canary")).json()["status_url"]
    for path, hidden in {"/entries": '"callback":"(hidden)"', "/workspace/context.md": "address is hidden"}.items():
        shown = (await client.get(f"{run}{path}")).text
        assert ("canary" in shown, hidden in shown) == (False, True)


async def test_each_wake_is_counted_with_what_came_of_it(client: httpx2.AsyncClient, house: House) -> None:
    house.outside.refused["https://10.0.0.1/hook"] = "it is in a private network"
    for body in ({}, {}, {}, {"goal": "Find another."}):
        await wake(client, wake_id="w-1", **body)
    async with house.client("waker") as other:
        await wake(other, wake_id="w-1", goal="Find another.")
    await wake(client, constraints={"max_steps": 1_000})
    await wake(client, callback="https://10.0.0.1/hook")
    lines = (await client.get("/metrics")).text.splitlines()
    name = 'agentic_wake_duration_seconds_count{agentic_transport="http",agentic_wake_outcome='
    pairs = (line.removeprefix(name).rpartition("} ") for line in lines if line.startswith(name))
    assert {labels: int(float(value)) for labels, _, value in pairs} == {
        '"accepted",error_type=""': 1,
        '"duplicate",error_type=""': 2,
        '"rejected",error_type="wake_id_taken"': 2,
        '"rejected",error_type="not_granted"': 1,
        '"rejected",error_type="callback_refused"': 1,
    }
    assert 'agentic_dedupe_hits_total{agentic_dedupe_kind="wake"} 2.0' in lines


@asynccontextmanager
async def with_quota(folder: Path, **quota: Any) -> AsyncIterator[tuple[House, httpx2.AsyncClient]]:
    """An agent whose token `waker` has the quota, and a client with this token."""
    waker = TokenSettings(
        name="waker", scopes=frozenset({"wake"}), token=SecretStr(secret("waker")), quota=QuotaSettings(**quota)
    )
    async with open_house(folder, tokens=(waker, known_token("admin"))) as house, house.client("waker") as client:
        yield house, client


@pytest.mark.attack(59)
async def test_beyond_its_wakes_within_a_minute_a_token_is_told_when_to_come_and_others_notice_nothing(
    tmp_path: Path,
) -> None:
    async with with_quota(tmp_path, wakes_per_minute=3) as (house, client):
        assert await statuses(client, 4) == [202, 202, 202, 429]
        refused = await wake(client)
        assert (refused.json()["error"]["code"], refused.headers["retry-after"]) == ("over_quota", "20")
        assert "token waker has asked for 3 wakes within a minute: its quota wakes_per_minute" in refused.text
        assert await house.how_many() == 3
        house.clock.advance(seconds=20)
        assert await statuses(client, 2) == [202, 429]
        async with house.client("admin") as other:
            assert await statuses(other, 5) == [202] * 5


@pytest.mark.attack(59)
async def test_beyond_its_open_runs_a_token_waits_for_one_to_end_and_a_wake_that_comes_again_is_none_more(
    tmp_path: Path,
) -> None:
    async with with_quota(tmp_path, open_runs=2) as (house, client):
        first = (await wake(client, wake_id="w-1")).json()["run_id"]
        assert await statuses(client, 2) == [202, 429]
        assert await statuses(client, 2, wake_id="w-1") == [202, 202]
        async with house.client("admin") as admin:
            await admin.post(f"/v1/runs/{first}/cancel", json={})
        assert await statuses(client, 2) == [202, 429]


@pytest.mark.attack(59)
async def test_the_bytes_that_a_token_may_send_within_a_day_are_remembered_through_a_restart(tmp_path: Path) -> None:
    async with with_quota(tmp_path, bytes_per_day=9000) as (_, client):
        assert await statuses(client, 3, context={"text": "合" * 1700}) == [202, 202, 429]
    async with with_quota(tmp_path, bytes_per_day=9000) as (_, client):
        refused = await wake(client)
        assert (refused.status_code, "bytes_per_day" in refused.text) == (429, True)
        assert int(refused.headers["retry-after"]) <= 12 * 3600


async def test_a_burst_of_wakes_opens_no_more_runs_than_the_quota(tmp_path: Path) -> None:
    async with with_quota(tmp_path, open_runs=10) as (house, client):
        answers = await asyncio.gather(*(wake(client) for _ in range(50)))
        assert [answer.status_code for answer in answers].count(202) == await house.how_many() == 10


async def test_a_run_counts_once_while_its_wake_is_answered(tmp_path: Path) -> None:
    async with with_quota(tmp_path, open_runs=2) as (house, _):
        calls = house.services[0]
        assert isinstance(calls, RunCalls)
        observers, second = calls.intake.turns.observers, list[asyncio.Task[Any]]()
        caller = Caller(by="waker", payer=token_caller("waker"), transport="http", scopes=EVERY_SCOPE)

        def wake_another(_: object) -> None:
            observers.remove(wake_another)
            second.append(asyncio.create_task(calls.wake(caller, WakeRequest(goal="Another."))))

        observers.append(wake_another)
        await calls.wake(caller, WakeRequest(goal="The first."))
        await second[0]
        assert await house.how_many() == 2


async def test_a_run_whose_caller_gave_up_while_it_was_stored_counts_and_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KNOWN_WITHIN_S", 0.01)
    async with with_quota(tmp_path, open_runs=1) as (house, client):
        calls, published, accept, storing = house.services[0], AsyncMock(), house.store.accept, asyncio.Event()
        assert isinstance(calls, RunCalls)

        async def accepting(commit: Commit, digest: str) -> str:
            storing.set()
            return await accept(commit, digest)

        monkeypatch.setattr(house.outside, "publish", published)
        monkeypatch.setattr(house.store, "accept", accepting)
        with closing(sqlite3.connect(house.store.database.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waking = asyncio.create_task(wake(client))
            await storing.wait()
            calls.intake.capacity.say("the disk does not answer")
            assert (await waking).status_code == 503
            calls.intake.capacity.say("")
            assert await statuses(client, 1) == [429], "it may be stored yet"
            other.execute("ROLLBACK")
        await until(house.how_many, lambda runs: runs == 1)
        await until(lambda: [each.args[0] for each in published.await_args_list] == [subjects.START])
        assert await statuses(client, 1) == [429]
        (run,) = await house.store.runs(limit=9)
        async with house.client("admin") as admin:
            await admin.post(f"/v1/runs/{run.run_id}/cancel", json={})
        assert await statuses(client, 2) == [202, 429]
