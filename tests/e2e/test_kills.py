"""After kill -9 of each process, a graceful stop or a takeover, the run goes on, and every tool ran exactly once."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent_service.workbench.dev import DevStack
from schemas import subjects
from tests.kit import stack

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _agent(made: DevStack) -> None:
    made.agent.kill()


async def _gateway(made: DevStack) -> None:
    made.gateway.kill()


async def _nats(made: DevStack) -> None:
    made.nats.kill()
    await made.nats.start()


async def _all(made: DevStack) -> None:
    made.agent.kill()
    made.gateway.kill()
    await _nats(made)


async def steps_on_the_bus(made: DevStack, run_id: str) -> list[int]:
    requests = await stack.on_the_bus(made, subjects.ALL_TOOL_REQUESTS)
    return [request["step"] for request in requests if request["run_id"] == run_id]


@pytest.mark.parametrize("kill", [_agent, _gateway, _nats, _all])
async def test_a_process_killed_while_a_tool_runs_costs_no_run_and_repeats_no_write(
    made: DevStack, marks: Path, kill: Callable[[DevStack], Awaitable[None]]
) -> None:
    file, go = marks / kill.__name__, marks / f"{kill.__name__}.go"
    run_id = await stack.wake(made, file.name)
    await stack.until(lambda: stack.lines(file) == 1)
    await kill(made)
    stack.touch(go, 1, 2)
    ended = await stack.to_the_end(made, run_id)
    completed = [event for event in await stack.on_the_bus(made, subjects.COMPLETED) if event["run_id"] == run_id]
    assert (ended["state"], stack.lines(file), len(completed)) == ("done", 2, 1), ended
    assert await steps_on_the_bus(made, run_id) == [1, 2]


async def test_nothing_begins_until_somebody_lets_it_go_on_also_after_kills(made: DevStack, marks: Path) -> None:
    run_id = await stack.wake(made, "halted")
    await stack.until((marks / "halted").exists)
    stopped = (await stack.post(made, "/v1/stop-all", reason="it mails everybody", by="ann")).json()
    stack.touch(marks / "halted.go", 1)
    await stack.until(
        lambda: stack.entries(made, run_id), lambda found: "ToolReturned" in {entry["kind"] for entry in found}
    )
    made.agent.kill()
    made.gateway.kill()
    await stack.until(lambda: stack.view(made, run_id), lambda run: run["state"] != "away")
    refused, readiness = await stack.post(made, "/v1/wake", goal="record"), await stack.get(made, "/readyz")
    seen, why = await stack.view(made, run_id), (await stack.get(made, f"/v1/runs/{run_id}/why")).json()
    asked = await steps_on_the_bus(made, run_id)
    stack.touch(marks / "halted.go", 2)
    assert (await stack.post(made, "/v1/go-on")).json()["stopped"] is False
    ended = await stack.to_the_end(made, run_id)
    assert (stopped["stopped"], stopped["reason"]) == (True, "it mails everybody")
    assert (refused.status_code, refused.json()["error"]["code"], refused.headers["retry-after"]) == (
        503,
        "stopped",
        "30",
    )
    assert (readiness.status_code, 'says "ann"' in readiness.json()["checks"]["halt"]) == (503, True)
    assert (seen["state"], "it mails everybody" in seen["stopped"]) == ("running", True)
    assert ("it mails everybody" in why["verdict"], why["remedy"]["command"]) == (True, "agentic go-on")
    assert (asked, await steps_on_the_bus(made, run_id)) == ([1], [1, 2])
    assert (ended["state"], stack.lines(marks / "halted")) == ("done", 2)


async def test_a_model_call_under_way_is_waited_for_and_the_run_goes_on_after_the_next_start(
    made: DevStack, marks: Path
) -> None:
    stack.touch(marks / "slowly-drained.go", 1, 2)
    before = made.agent.starts
    run_id = await stack.wake(made, "slowly-drained")

    await stack.until(lambda: stack.get(made, "/v1/drain"), lambda answer: answer.json()["model_calls"])
    assert (await stack.post(made, "/v1/drain")).json()["model_calls"] == 1
    await stack.until(lambda: made.agent.starts == before + 1)
    ended = await stack.to_the_end(made, run_id)
    assert (ended["state"], ended["usage"]["lost_calls"], made.agent.starts) == ("done", 0, before + 1)
    assert stack.lines(marks / "slowly-drained") == 2


async def test_a_stop_answers_those_who_wait_lets_readers_go_and_is_no_error(made: DevStack, marks: Path) -> None:
    said = made.agent.log_file.stat().st_size
    run_id = await stack.wake(made, "read")
    await stack.shown(made, run_id, lambda run: run["waiting_for"] and run["waiting_for"]["kind"] == "tool")
    waiting, ask = await asyncio.open_connection("127.0.0.1", int(made.url.rpartition(":")[2]))
    ask.write(f"GET /v1/runs/{run_id}?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    async with stack.api(made) as client, client.stream("GET", f"/v1/runs/{run_id}/events") as events:
        told = events.aiter_lines()
        await anext(told)  # whoever asked before this one waits now
        assert made.agent.pid
        os.kill(made.agent.pid, signal.SIGTERM)
        assert [line async for line in told][-1] == ""
    assert (await waiting.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
    ask.close()
    stack.touch(marks / "read.go", 1, 2)
    assert (await stack.to_the_end(made, run_id))["state"] == "done"
    assert b'"level":"ERROR"' not in made.agent.log_file.read_bytes()[said:]


async def test_an_agent_of_the_same_store_takes_over_in_the_middle_of_a_run_which_goes_on_once(
    made: DevStack, marks: Path
) -> None:
    run_id = await stack.wake(made, "taken-over")
    await stack.until(lambda: stack.lines(marks / "taken-over") == 1)
    async with stack.another("agent_service", made.config, "--take-over") as green:
        await stack.ready(green)
        stack.touch(marks / "taken-over.go", 1, 2)
        ended = await stack.to_the_end(made, run_id)
        await stack.until(lambda: f"process {green.pid}" in stack.last_word(made.agent.log_file))
    assert (ended["state"], stack.lines(marks / "taken-over")) == ("done", 2)


async def test_an_agent_that_was_stopped_for_longer_than_its_lease_finds_itself_fenced(
    made: DevStack, tmp_path: Path
) -> None:
    async def works(there: DevStack) -> bool:
        return bool((await stack.to_the_end(there, await stack.wake(there, "look up the bridge")))["state"] == "done")

    stopped = made.agent.pid
    assert stopped
    assert await works(made)
    os.kill(stopped, signal.SIGSTOP)
    async with stack.another("agent_service", stack.with_store(made.config, tmp_path / "second")) as second:
        there = replace(made, url=await stack.ready(second))
        assert await works(there)
        os.kill(stopped, signal.SIGCONT)
        await stack.until(lambda: made.agent.pid != stopped)
        assert str(tmp_path / "second") in stack.last_word(made.agent.log_file)
        assert await works(there)
