"""Looking at runs, cancelling them and speaking to them."""

import asyncio
from typing import Any

import httpx2
import pytest

from agent_service.core.waiting import Status
from agent_service.run.journal import GENESIS
from tests.http.house import House
from tests.kit.runs import accepted, run_id, whole_run

UNKNOWN = "run_00000000000000000000000009"


def code(answer: httpx2.Response) -> str:
    return str(answer.json()["error"]["code"])


async def pages(
    client: httpx2.AsyncClient, path: str, cursor: str, told_by: str, **params: Any
) -> list[dict[str, Any]]:
    """All pages of a list, by following its cursors."""
    told: list[dict[str, Any]] = []
    while True:
        answer = await client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        told.append(answer.json())
        if told[-1][told_by] is None:
            return told
        params[cursor] = told[-1][told_by]


async def test_a_run_shows_where_it_stands(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(whole_run(steps=2))
    view = (await client.get(f"/v1/runs/{run}")).json()
    assert (view["run_id"], view["status"], view["outcome"]) == (run, "done", "The answer is 42.")
    assert [(s["step"], s["tool"], s["attempt"], s["status"]) for s in view["steps"]] == [
        (1, "search", 1, "ok"),
        (2, "search", 1, "ok"),
    ]
    assert all(item["done"] for item in view["definition_of_done"])
    assert view["models"] == ["scripted"]
    assert view["trace_url"] == f"http://traces/{view['trace_id']}"
    assert {"wake_id", "started_at", "updated_at", "summary", "budget", "usage", "pending", "class"} <= view.keys()


@pytest.mark.parametrize(
    "part", ["", "/entries", "/events", "/timeline", "/steps/1", "/calls/1", "/why", "/workspace", "/workspace/plan.md"]
)
@pytest.mark.parametrize("run", [UNKNOWN, "run_1", "x", "%2e%2e", "run_%0a", "é", "x" * 1000])
async def test_a_run_that_is_not_there_is_not_found(client: httpx2.AsyncClient, run: str, part: str) -> None:
    assert (await client.get(f"/v1/runs/{run}{part}")).status_code == 404


async def test_runs_are_listed_newest_first_and_page_by_page(client: httpx2.AsyncClient, house: House) -> None:
    for number in range(1, 8):
        await house.play([accepted(number)])
    found = await pages(client, "/v1/runs", "cursor", "next_cursor", limit=3)
    assert [[line["run_id"] for line in page["runs"]] for page in found] == [
        [run_id(7), run_id(6), run_id(5)],
        [run_id(4), run_id(3), run_id(2)],
        [run_id(1)],
    ]
    stands = {"run_id", "wake_id", "caller", "status", "goal", "summary", "class", "waiting_for", "damaged"}
    counts = {"accepted_at", "updated_at", "ended_at", "steps", "tool", "tokens", "cost_usd"}
    assert stands | counts == found[0]["runs"][0].keys()


async def test_runs_are_listed_by_what_is_asked_of_them(client: httpx2.AsyncClient, house: House) -> None:
    await house.play(whole_run(1))
    await house.play(whole_run(2)[:4])
    await house.play([accepted(3, goal="Mow the lawn.")])

    async def found(**query: Any) -> list[str]:
        return [run["run_id"] for run in (await client.get("/v1/runs", params=query)).json()["runs"]]

    assert await found(status=["done", "queued"]) == [run_id(3), run_id(1)]
    assert await found(text="LAWN") == [run_id(3)]
    assert await found(tool="search") == [run_id(2), run_id(1)]
    assert await found(since="2026-11-21T12:00:02.250Z") == [run_id(3), run_id(2)]
    assert await found(until="2026-11-21T12:00:02.250Z") == [run_id(1)]
    assert await found(status="done", text="lawn") == []
    assert await found(wake_id="wake-2") == [run_id(2)]
    assert await found(wake_id="wake-2", status="done") == await found(wake_id="wake") == []
    assert await found(wake_id="wake-2", before=run_id(2)) == []


async def test_runs_are_counted_by_status(client: httpx2.AsyncClient, house: House) -> None:
    none = dict.fromkeys(Status, 0)
    empty = {"by_status": none, "needs_person": 0, "oldest_queued_at": None, "stopped": ""}
    assert (await client.get("/v1/counts")).json() == empty
    for number in (1, 2):
        await house.play([accepted(number)])
    await house.play(whole_run(3))
    found = (await client.get("/v1/counts")).json()
    assert found["by_status"] == none | {"queued": 2, "done": 1}
    assert found["oldest_queued_at"] == "2026-11-21T12:00:01.250000Z"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": 10**9}, "limit"),
        ({"limit": 0}, "limit"),
        ({"limit": "1; DROP TABLE runs"}, "limit"),
        ({"status": "done' OR '1'='1"}, "status.0"),
        ({"cursor": "%"}, "cursor"),
        ({"cursor": "x" * 1000}, "cursor"),
        ({"cursor": ""}, "cursor"),
        ({"cursor": "bogus"}, "cursor"),
        ({"since": "yesterday"}, "since"),
        ({"text": "x" * 201}, "text"),
        ({"order_by": "goal"}, "order_by"),
        ({"cursor": "run_8ZZZZZZZZZZZZZZZZZZZZZZZZZ"}, "cursor"),
        ({"cursor": "run_01M808MS3MJ9K8CQKG3J135SFI"}, "cursor"),
        ({"cursor": run_id(9)}, "cursor"),
        ({"before": "run_"}, "before"),
        ({"until": "tomorrow"}, "until"),
        ({"stat": "done"}, "stat"),
    ],
)
async def test_a_list_takes_no_other_questions(client: httpx2.AsyncClient, query: dict[str, Any], field: str) -> None:
    answer = await client.get("/v1/runs", params=query)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)


async def test_the_journal_can_be_read_whole_and_checked(client: httpx2.AsyncClient, house: House) -> None:
    commits = whole_run()
    run = await house.play(commits)
    found = await pages(client, f"/v1/runs/{run}/entries", "after", "next_after", limit=2)
    entries = [entry for page in found for entry in page["entries"]]
    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4, 5, 6]
    assert [entry["hash"] for entry in entries] == [commit.entry.hash for commit in commits]
    assert commits[0].entry.previous == GENESIS
    assert entries[-1]["status"] == "done"
    assert all(entry["summary"] for entry in entries)


@pytest.mark.parametrize("far", [1, 2, 4, 5])
async def test_a_run_is_cancelled_wherever_it_stands(client: httpx2.AsyncClient, house: House, far: int) -> None:
    run = await house.play(whole_run()[:far])
    answer = await client.post(f"/v1/runs/{run}/cancel", json={"reason": "enough"})
    assert (answer.status_code, answer.json()) == (202, {"run_id": run, "status": "cancelled"})
    state = await house.state(run)
    assert (state.status, state.reason) == ("cancelled", "enough")


async def test_a_run_that_ended_otherwise_cannot_be_cancelled(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(whole_run())
    answer = await client.post(f"/v1/runs/{run}/cancel", json={})
    assert (answer.status_code, code(answer)) == (409, "run_has_ended")
    assert "done" in answer.json()["error"]["message"]
    assert (await house.state(run)).status == "done"


async def test_a_signal_is_heard_once(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(whole_run()[:2])
    body = {"kind": "message", "message": "once", "signal_id": "s-1"}
    answers = await asyncio.gather(*(client.post(f"/v1/runs/{run}/signals", json=body) for _ in range(10)))
    assert {(answer.status_code, answer.json()["signal_id"]) for answer in answers} == {(202, "s-1")}
    assert (await house.state(run)).messages == ("once",)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "kind"),
        ({"kind": "explode"}, "kind"),
        ({"kind": "message"}, "message"),
        ({"kind": "message", "message": "x" * 8193}, "message"),
        ({"kind": "message", "message": "a\0"}, "message"),
        ({"kind": "raise_budget"}, "constraints"),
        ({"kind": "raise_budget", "constraints": {"max_step": 1}}, "constraints.max_step"),
        ({"kind": "resume", "signal_id": "a b"}, "signal_id"),
        ({"kind": "resume", "run_id": UNKNOWN}, "run_id"),
    ],
)
async def test_a_signal_that_does_not_fit_is_not_heard(
    client: httpx2.AsyncClient, house: House, body: dict[str, Any], field: str
) -> None:
    run = await house.play(whole_run()[:2])
    answer = await client.post(f"/v1/runs/{run}/signals", json=body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
    assert (await house.state(run)).version == 2


@pytest.mark.parametrize("path", ["/v1/runs", f"/v1/runs/{run_id(1)}", f"/v1/runs/{run_id(1)}/entries"])
async def test_a_store_that_is_away_is_said_to_come_back(client: httpx2.AsyncClient, house: House, path: str) -> None:
    await house.play(whole_run())
    house.archive.away = True
    answer = await client.get(path)
    assert (answer.status_code, code(answer), answer.headers["retry-after"]) == (503, "try_again", "7")
