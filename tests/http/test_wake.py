"""POST /v1/wake: one run per wake id, durable before it is answered, and nothing stored for what is refused."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agent_service.core.events import WakeAccepted
from tests.http.house import House, open_house

GOAL = {"goal": "Find the answer."}
PLACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def wake(client: httpx2.AsyncClient, **body: Any) -> httpx2.Response:
    return await client.post("/v1/wake", json=body)


async def test_an_accepted_wake_is_a_queued_run(client: httpx2.AsyncClient, house: House) -> None:
    answer = await wake(client, wake_id="w-1", context={"tone": "dry"}, constraints={"max_loops": 3}, **GOAL)
    assert answer.status_code == 202
    run_id = answer.json()["run_id"]
    assert answer.json() == {
        "accepted": True,
        "run_id": run_id,
        "wake_id": "w-1",
        "status_url": f"/v1/runs/{run_id}",
    }
    state = await house.state(run_id)
    assert (state.status, state.brief.limits.max_steps, state.brief.context) == ("queued", 3, {"tone": "dry"})
    view = (await client.get(answer.json()["status_url"])).json()
    assert (view["state"], view["wake_id"], view["goal"]) == ("queued", "w-1", "Find the answer.")


async def test_the_same_wake_is_the_same_run_after_a_restart(tmp_path: Path) -> None:
    async with open_house(tmp_path) as house, house.client() as client:
        first = await wake(client, wake_id="w-1", **GOAL)
    async with open_house(tmp_path) as house, house.client() as client:
        again = await wake(client, wake_id="w-1", **GOAL)
        assert (again.status_code, again.json()) == (202, first.json())
        assert await house.how_many() == 1


async def test_a_hundred_wakes_at_once_with_one_id_are_one_run(over_http: httpx2.AsyncClient, house: House) -> None:
    answers = await asyncio.gather(*(wake(over_http, wake_id="w-1", **GOAL) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert await house.how_many() == 1


@pytest.mark.parametrize(
    "other",
    [{"goal": "Another."}, GOAL | {"context": {"a": 1}}, GOAL | {"constraints": {"max_loops": 2}}],
    ids=["goal", "context", "constraints"],
)
async def test_the_same_wake_id_for_something_else_is_a_conflict_that_names_the_run(
    client: httpx2.AsyncClient, house: House, other: dict[str, Any]
) -> None:
    run_id = (await wake(client, wake_id="w-1", **GOAL)).json()["run_id"]
    answer = await wake(client, wake_id="w-1", **other)
    assert answer.status_code == 409
    error = answer.json()["error"]
    assert (error["code"], error["field"], error["run_id"]) == ("wake_id_taken", "wake_id", run_id)
    assert await house.how_many() == 1


async def test_a_wake_is_told_to_come_back_when_too_many_wait(tmp_path: Path) -> None:
    async with open_house(tmp_path, max_queued=2) as house, house.client() as client:
        first = [await wake(client, wake_id=f"w-{n}", **GOAL) for n in range(2)]
        late = await wake(client, wake_id="w-2", **GOAL)
        assert (late.status_code, late.headers["retry-after"]) == (503, "5")
        assert late.json()["error"]["code"] == "try_again"
        assert (await wake(client, wake_id="w-1", **GOAL)).json() == first[1].json()
        assert await house.how_many() == 2


async def test_a_wake_that_cannot_be_stored_is_told_so(house: House, tmp_path: Path) -> None:
    async with open_house(tmp_path / "closed") as closed:
        client = closed.client()
    async with client:
        answer = await wake(client, wake_id="w-1", **GOAL)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert await house.how_many() == 0


async def test_a_callback_that_would_never_be_called_is_refused_and_nothing_is_stored(
    client: httpx2.AsyncClient, house: House
) -> None:
    private, public = "https://10.0.0.7/told", "https://example.org/told"
    accepted = await wake(client, wake_id="w-1", callback=private, **GOAL)
    house.picky.refused[private] = "10.0.0.7 is not a public address"
    answer = await wake(client, wake_id="w-2", callback=private, **GOAL)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["field"]) == (422, "callback_refused", "callback")
    assert "10.0.0.7 is not a public address" in error["message"]
    assert (await wake(client, wake_id="w-2", callback=public, **GOAL)).status_code == 202
    assert (await wake(client, wake_id="w-1", callback=private, **GOAL)).json() == accepted.json()
    assert await house.how_many() == 2


@pytest.mark.parametrize(("sent", "kept"), [(PLACE, PLACE), ("00-none-of-ours-01", None)])
async def test_a_callers_place_in_a_trace_of_its_own_is_kept_if_it_is_one(
    client: httpx2.AsyncClient, house: House, sent: str, kept: str | None
) -> None:
    answer = await client.post("/v1/wake", json=GOAL, headers={"traceparent": sent})
    (first, *_) = await house.store.entries(answer.json()["run_id"])
    event = first.decoded()
    assert isinstance(event, WakeAccepted)
    assert event.traceparent == kept
