"""Guarantees of a stack of bus, gateway and agent, seen from outside, while runs of many kinds pass through."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agent_service.workbench.dev import DevStack
from schemas import keys, subjects
from tests.cli.invoke import agentic
from tests.kit import stack
from tests.plugins.asking import SHIPPED, a_request, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

FILES = {"context.md", "memory.md", "skills.md", "plan.md", "decisions.md", "trace.jsonl"}
FORGED = "run_01JD0000000000000000000000"
NEWER = 99
"""A schema version of a later program."""


async def let(made: DevStack, marks: Path, name: str, **more: Any) -> str:
    """A run that records without waiting."""
    stack.touch(marks / f"{name}.go", 1, 2)
    return await stack.wake(made, name, **more)


async def test_the_worked_example_ends_with_a_critique_and_a_paper_trail(made: DevStack, page: str) -> None:
    run_id = await stack.wake(made, f"fetch web {page} and produce a 2 para critique")
    ended = await stack.to_the_end(made, run_id)
    folder = made.workspaces / run_id
    await stack.until((folder / "artifacts" / "critique.md").exists)
    (completed,) = [told for told in await stack.on_the_bus(made, subjects.COMPLETED) if told["run_id"] == run_id]
    assert ended["state"] == "done", ended
    assert [(s["step"], s["tool"], s["status"]) for s in ended["steps"]] == [
        (1, "fetch", "ok"),
        (2, "text-report", "ok"),
    ]
    assert completed["artifacts"] == ["artifacts/fetch-01.md", "artifacts/fetch-01.html", "artifacts/critique.md"]
    assert all(item["done"] for item in completed["definition_of_done"])
    await stack.until(lambda: {path.name for path in folder.iterdir()} >= FILES)
    assert len((folder / "artifacts" / "critique.md").read_text().strip().split("\n\n")) == 2
    assert "script:played" in (folder / "decisions.md").read_text()


async def test_a_hundred_wakes_of_one_name_are_one_run(made: DevStack, marks: Path) -> None:
    async with stack.api(made) as client:
        posts = (client.post("/v1/wake", json={"goal": "same", "wake_id": "the-same"}) for _ in range(100))
        answers = await asyncio.gather(*posts)
    assert {answer.status_code for answer in answers} == {202}
    (run_id,) = {answer.json()["run_id"] for answer in answers}
    assert await let(made, marks, "same", wake_id="the-same") == run_id
    await stack.to_the_end(made, run_id)
    accepted = await stack.on_the_bus(made, subjects.WAKE_ACCEPTED)
    assert [run["run_id"] for run in accepted if run["wake_id"] == "the-same"] == [run_id]


async def test_a_ductile_whose_job_comes_again_wakes_the_agent_once(made: DevStack, marks: Path) -> None:
    stack.touch(marks / "woken.go", 1, 2)
    asked = a_request({"goal": "woken"}, command="wake", config={"url": made.url})
    responses = [await asyncio.to_thread(run, SHIPPED / "agentic-wake", asked) for _ in range(3)]
    assert {response["status"] for response in responses} == {"ok"}
    (run_id,) = {response["state_updates"]["last_run_id"] for response in responses}
    assert responses[0]["output"]["status_url"] == f"{made.url}/v1/runs/{run_id}"
    assert (await stack.to_the_end(made, run_id))["state"] == "done"
    listed = (await stack.get(made, "/v1/runs", wake_id="ductile:job-1")).json()["runs"]
    assert [one["run_id"] for one in listed] == [run_id]


async def test_a_cancel_ends_a_run_within_two_seconds_while_a_tool_runs(made: DevStack, marks: Path) -> None:
    run_id = await stack.wake(made, "cancelled")
    await stack.until((marks / "cancelled").exists)
    began = time.monotonic()
    assert (await stack.post(made, f"/v1/runs/{run_id}/cancel", reason="enough")).status_code == 202
    ended = await stack.to_the_end(made, run_id)
    assert (ended["state"], time.monotonic() - began < 2) == ("cancelled", True)
    stack.touch(marks / "cancelled.go", 1)
    await stack.until(lambda: stack.entries(made, run_id), lambda found: found[-1]["kind"] == "ToolReturned")


async def test_the_plugin_in_python_answers_from_what_it_asked_for(made: DevStack) -> None:
    ended = await stack.to_the_end(made, await stack.wake(made, "look up the bridge"))
    asked = [await stack.on_the_bus(made, subjects.tool_request(route)) for route in ("look-up", "knowledge")]
    assert (ended["state"], "1821" in ended["steps"][0]["summary"]) == ("done", True), ended
    assert [[request.get("task") for request in requests] for requests in asked] == [[None, "again"], ["task-1"]]


async def test_a_run_writes_and_who_may_publish_requests_does_not(made: DevStack, marks: Path) -> None:
    ended = await stack.to_the_end(made, run_id := await let(made, marks, "signed"))
    assert [(step["command"], step["status"]) for step in ended["steps"]] == [("record", "ok")] * 2
    requests = await stack.on_the_bus(made, subjects.tool_request("probe"))
    asked = next(request for request in requests if request["run_id"] == run_id)
    forged = asked | {"run_id": FORGED, "tool_payload": {"file": str(marks / "evil")}}
    body = json.dumps({"type": subjects.tool_request("probe"), "payload": forged}).encode()
    async with stack.linked(made.nats.url) as link:
        await link.publish(subjects.tool_request("probe"), body, msg_id=keys.request(FORGED, 1, 1), headers={})
    rejected = partial(stack.on_the_bus, made, subjects.REJECTED)
    await stack.until(
        rejected, lambda found: any(m["run_id"] == FORGED and "not said by the agent" in m["reason"] for m in found)
    )
    assert (stack.lines(marks / "signed"), (marks / "evil").exists()) == (2, False)


@contextlib.contextmanager
def asleep(made: DevStack) -> Iterator[None]:
    pid = made.gateway.pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_run_says_that_the_gateway_is_away_and_goes_on_when_it_is_back(made: DevStack, marks: Path) -> None:
    run_id = await stack.wake(made, "away")
    await stack.shown(made, run_id, lambda run: run["pending"] and run["pending"]["present"] is True)
    with asleep(made):
        await stack.shown(made, run_id, lambda run: run["pending"]["present"] is False)
        told = await asyncio.to_thread(agentic, "show", run_id, "--url", made.url)
    await stack.shown(made, run_id, lambda run: run["pending"]["present"] is True)
    await let(made, marks, "away")
    assert (await stack.to_the_end(made, run_id))["state"] == "done"
    assert "ductile-gateway does not answer: is it running?" in " ".join(told.out.replace("│", "").split())


async def test_the_gateway_begins_no_call_that_waits_for_it(made: DevStack, marks: Path) -> None:
    """A write that was on the bus at `stop-all`, while the gateway was suspended."""

    async def status() -> bytes:
        async with stack.linked(made.nats.url) as link:
            return await link.request(subjects.STATUS, b"")

    requests = partial(stack.on_the_bus, made, subjects.ALL_TOOL_REQUESTS)
    with asleep(made):
        run_id = await let(made, marks, "unbegun")
        await stack.until(requests, lambda found: run_id in {request["run_id"] for request in found})
        await stack.post(made, "/v1/stop-all")
    await stack.until(status, lambda said: b"everything is stopped" in said)
    assert stack.lines(marks / "unbegun") == 0
    await stack.post(made, "/v1/go-on")
    assert (await stack.to_the_end(made, run_id))["state"] == "done"
    assert stack.lines(marks / "unbegun") == 2


async def test_a_second_agent_on_the_same_store_refuses_to_start(made: DevStack) -> None:
    async with stack.another("agent_service", made.config) as second:
        code, told = await stack.refused(second)
    assert (code, f"process {made.agent.pid}" in told) == (78, True), told


async def test_a_second_agent_with_another_store_is_told_who_owns_the_bus_and_takes_no_run_from_it(
    made: DevStack, marks: Path, tmp_path: Path
) -> None:
    async with stack.another("agent_service", stack.with_store(made.config, tmp_path / "second")) as second:
        runs = [await let(made, marks, f"owned-{n}") for n in range(3)]
        ended = [await stack.to_the_end(made, run_id) for run_id in runs]
        code, told = await stack.refused(second)
    facts = (f"process {made.agent.pid} on {socket.gethostname()}", str(made.options.folder / "agent"), "--take-over")
    assert (code, [fact for fact in facts if fact not in told]) == (78, []), told
    assert ([run["state"] for run in ended], stack.lines(marks / "owned-0")) == (["done"] * 3, 2)


async def test_an_older_program_refuses_the_store_of_a_newer_one_before_it_takes_over_from_it(
    made: DevStack, marks: Path
) -> None:
    pids = made.agent.pid, made.gateway.pid
    for database, package in (("agent/runs.db", "agent_service"), ("gateway/ledger.db", "ductile_gateway")):
        with contextlib.closing(sqlite3.connect(made.options.folder / database)) as connection:
            (known,) = connection.execute("PRAGMA user_version").fetchone()
            connection.execute(f"PRAGMA user_version = {NEWER}")
            try:
                async with stack.another(package, made.config, "--take-over") as older:
                    code, told = await stack.refused(older)
            finally:
                connection.execute(f"PRAGMA user_version = {known}")
        assert (code, "start the newer program that wrote it" in told) == (78, True), told
    assert (await stack.to_the_end(made, await let(made, marks, "newer")))["state"] == "done"
    assert (made.agent.pid, made.gateway.pid) == pids
