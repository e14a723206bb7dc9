"""Showing, listing, awaiting and cancelling runs."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from agent_service.run.journal import GENESIS, Commit
from schemas.values import replace
from tests.http.house import House, bearer, with_a_question
from tests.kit.runs import accepted, run_id, stopped, whole_run
from tests.kit.waiting import until

NO_RUNS = (run_id(9), "run_1", "x", "%2e%2e", "run_%0a", "é", "x" * 1000)
PARTS = ("", "/entries", "/events", "/timeline", "/steps/1", "/calls/1", "/why", "/workspace", "/workspace/plan.md")
WORDS: dict[str, Any] = {
    "/cancel": {},
    "/dismiss": {},
    "/signals": {"kind": "resume"},
    "/answers": {"answer": "x"},
    "/approvals": {"decision": "reject"},
}


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["error"]["code"])


async def pages(
    client: httpx2.AsyncClient, path: str, cursor: str, told_by: str, **params: Any
) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    while True:
        answer = await client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        told.append(answer.json())
        if told[-1][told_by] is None:
            return told
        params[cursor] = told[-1][told_by]


async def test_a_run_that_is_not_there_is_not_found(client: httpx2.AsyncClient) -> None:
    asked: list[tuple[str, str, Any]] = [(run, part, None) for run in NO_RUNS for part in PARTS]
    asked += [(run, part, body) for run in NO_RUNS for part, body in WORDS.items()]
    found = [
        (await client.request("GET" if body is None else "POST", f"/v1/runs/{run}{part}", json=body)).status_code
        for run, part, body in asked
    ]
    assert [pair for pair, status in zip(asked, found, strict=True) if status != 404] == []


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
    counts = {"accepted_at", "updated_at", "ended_at", "steps", "tool", "tokens", "cost_usd", "models", "parent_run_id"}
    assert stands | counts == found[0]["runs"][0].keys()


async def test_usage_is_summed_by_day_over_statuses_failures_tools_and_models(
    client: httpx2.AsyncClient, house: House
) -> None:
    *before, last = whole_run(1)
    state = replace(last.state, measured={"claude-sonnet-4-5": (900, 300)})
    await house.play([*before, replace(last, state=state)])
    await house.play([accepted(2)])
    today, earlier = (await client.get("/v1/usage", params={"days": 2})).json()["days"]
    told = {(one["kind"], one["name"]): (one["runs"], one["cost_usd"]) for one in today["sums"]}
    cost = (await house.state(run_id(1))).spent.cost_usd
    of_model = told.pop(("model", "claude-sonnet-4-5"))
    assert told == {("status", "done"): (1, cost), ("status", "queued"): (1, 0.0), ("tool", "search"): (1, cost)}
    assert (of_model[0], today["day"] > earlier["day"], earlier["sums"]) == (1, True, [])
    assert next(one["tokens"] for one in today["sums"] if one["kind"] == "model") > 0


async def test_runs_are_listed_by_what_is_asked_of_them(client: httpx2.AsyncClient, house: House) -> None:
    await house.play(whole_run(1))
    await house.play(whole_run(2)[:4])
    await house.play([accepted(3, goal="Mow the lawn.")])
    asked: list[tuple[dict[str, Any], list[int]]] = [
        ({"status": ["done", "queued"]}, [3, 1]),
        ({"state": "done"}, [1]),
        ({"text": "LAWN"}, [3]),
        ({"tool": "search"}, [2, 1]),
        ({"since": "2026-11-21T12:00:02.250Z"}, [3, 2]),
        ({"until": "2026-11-21T12:00:02.250Z"}, [1]),
        ({"status": "done", "text": "lawn"}, []),
        ({"wake_id": "wake-2"}, [2]),
        ({"wake_id": "wake-2", "status": "done"}, []),
        ({"wake_id": "wake"}, []),
        ({"run": "0002"}, [2]),
    ]
    for query, numbers in asked:
        told = (await client.get("/v1/runs", params=query)).json()
        assert [run["run_id"] for run in told["runs"]] == [run_id(number) for number in numbers], query


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


async def test_a_step_and_a_call_are_shown_in_full(client: httpx2.AsyncClient, house: House) -> None:
    run = await house.play(whole_run(steps=2))
    step = (await client.get(f"/v1/runs/{run}/steps/2")).json()
    whole, attempt = step["parts"]
    assert (step["run_id"], whole["item"]["step"], attempt["item"]["kind"]) == (run, 2, "attempt")
    assert whole["about"]["arguments"] == {"text": "part 2 of the answer"}
    assert attempt["result"]["excerpt"] == "Page 2 says a part of the answer."
    call = (await client.get(f"/v1/runs/{run}/calls/1")).json()
    assert (call["run_id"], call["call"], call["item"]["phase"], call["reply"]["usage"]["input_tokens"]) == (
        run,
        1,
        "frame",
        900,
    )
    assert "<goal>" in "".join(call["prompt"]["user"])
    for part, named in (("steps/3", "step"), ("calls/9", "call"), ("calls/1000000", "call")):
        assert code(await client.get(f"/v1/runs/{run}/{part}")) == (404, f"unknown_{named}")


async def test_a_store_that_is_away_is_said_to_come_back(client: httpx2.AsyncClient, house: House) -> None:
    await house.play(whole_run())
    house.archive.away = True
    for path in ("/v1/runs", f"/v1/runs/{run_id(1)}", f"/v1/runs/{run_id(1)}/entries"):
        answer = await client.get(path)
        assert (*code(answer), answer.headers["retry-after"]) == (503, "try_again", "7"), path


@pytest.mark.parametrize(
    ("commits", "status"), [(whole_run(), "done"), (with_a_question(), "paused"), (stopped(), "escalated")]
)
async def test_who_waits_is_answered_when_the_run_rests_in_peoples_hands(
    over_http: httpx2.AsyncClient, house: House, commits: Sequence[Commit], status: str
) -> None:
    run = await house.play(commits[:1])
    answer = asyncio.create_task(over_http.get(f"/v1/runs/{run}", params={"wait": 30}))
    await until(lambda: house.followers == 1)
    for commit in commits[1:]:
        assert not answer.done()
        await house.play([commit])
    assert (await answer).json()["state"] == status
    assert house.followers == 0


async def test_a_caller_that_hangs_up_is_waited_for_no_longer(port: int, house: House) -> None:
    run = await house.play([accepted()])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /v1/runs/{run}?wait=300 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    writer.write(f"{head}Authorization: {bearer('reader')['Authorization']}\r\n\r\n".encode())
    await until(lambda: house.followers == 1)
    writer.close()
    await until(lambda: house.followers == 0)
    assert await reader.read() == b""
