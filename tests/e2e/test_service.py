"""What the service promises from outside: the worked example, one run per wake, one agent per store."""

import asyncio
import os
import sys
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest

from agent_service.workbench.dev import DevOptions, DevStack, stack
from schemas import subjects
from tests.e2e.bodies import on_the_bus, recording, running, to_the_end, wake, written
from tests.e2e.machine import machine
from tests.kit.waiting import until

SCRIPTS = Path(str(resources.files("agent_service"))) / "scripts"
FILES = {"context.md", "memory.md", "skills.md", "plan.md", "decisions.md", "trace.jsonl"}


class QuietPages(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return


@pytest.fixture
def page() -> Any:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietPages, directory=str(SCRIPTS)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/page.html"
    server.shutdown()
    server.server_close()


async def test_the_worked_example_ends_with_a_critique_and_a_paper_trail(tmp_path: Path, page: str) -> None:
    options = DevOptions(folder=tmp_path, plugin_config={"fetch": {"allow_private": True}}, sync_interval="1s")
    async with stack(options) as made:
        run_id = await wake(made, f"fetch web {page} and produce a 2 para critique")
        ended = await to_the_end(made, run_id)
        completed = await on_the_bus(made, subjects.COMPLETED)
        folder = made.workspaces / run_id
        await until((folder / "artifacts" / "critique.md").exists)
    assert ended["state"] == "done", ended
    assert [(s["step"], s["tool"], s["status"]) for s in ended["steps"]] == [
        (1, "fetch", "ok"),
        (2, "text-report", "ok"),
    ]
    assert completed[0]["artifacts"] == ["artifacts/fetch-01.md", "artifacts/fetch-01.html", "artifacts/critique.md"]
    assert all(item["done"] for item in completed[0]["definition_of_done"])
    assert {path.name for path in folder.iterdir()} >= FILES
    critique = (folder / "artifacts" / "critique.md").read_text()
    assert len(critique.strip().split("\n\n")) == 2
    assert "script:demo" in (folder / "decisions.md").read_text()


async def test_a_hundred_wakes_of_one_name_are_one_run(tmp_path: Path) -> None:
    async with running(tmp_path / "stack", recording(tmp_path / "marks" / "lines")) as made:
        async with httpx2.AsyncClient(base_url=made.url, trust_env=False, timeout=30) as client:
            posts = (client.post("/v1/wake", json={"goal": "record", "wake_id": "the-same"}) for _ in range(100))
            answers = await asyncio.gather(*posts)
        assert {answer.status_code for answer in answers} == {202}
        ids = [answer.json()["run_id"] for answer in answers]
        await to_the_end(made, ids[0])
        accepted = await on_the_bus(made, subjects.WAKE_ACCEPTED)
    assert len(set(ids)) == 1
    assert [run["wake_id"] for run in accepted] == ["the-same"]


async def test_a_stop_answers_those_who_wait_lets_readers_go_and_is_no_error(tmp_path: Path) -> None:
    script = written(recording(tmp_path / "marks" / "lines", go=tmp_path / "marks" / "go"), tmp_path)
    async with machine(tmp_path / "machine", script) as here:
        await here.begin()
        run_id = await here.wake("record")
        await here.waits_for(run_id, "tool")
        waiting, ask = await asyncio.open_connection("127.0.0.1", here.agent.port)
        ask.write(f"GET /v1/runs/{run_id}?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        async with (
            httpx2.AsyncClient(base_url=here.url, trust_env=False, timeout=30) as client,
            client.stream("GET", f"/v1/runs/{run_id}/events") as events,
        ):
            told = events.aiter_lines()
            await anext(told)  # whoever asked before this one waits now
            ending = asyncio.create_task(here.agent.end())
            assert [line async for line in told][-1] == ""
        assert (await waiting.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        await ending
        ask.close()
        assert "ERROR" not in here.agent.log.read_text()


async def test_a_second_agent_on_the_same_store_refuses_to_start(tmp_path: Path) -> None:
    async with running(tmp_path / "stack", recording(tmp_path / "marks" / "lines")) as made:
        environment = os.environ | {"AGENT_HTTP__PORT": "0"}
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "agent_service", "serve", "--config", str(made.config)),
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
        _, complaint = await asyncio.wait_for(second.communicate(), 20)
        assert second.returncode == 78
        assert f"process {made.agent.pid}" in complaint.decode()
        assert "Traceback" not in complaint.decode()
        run_id = await wake(made)
        assert (await to_the_end(made, run_id))["state"] == "done"


async def test_a_cancel_ends_a_run_within_two_seconds_while_a_tool_runs(tmp_path: Path) -> None:
    file, go = tmp_path / "marks" / "lines", tmp_path / "marks" / "go"
    async with running(tmp_path / "stack", recording(file, go=go)) as made:
        run_id = await wake(made)
        await until(file.exists)
        began = time.monotonic()
        async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
            answer = await client.post(f"/v1/runs/{run_id}/cancel", json={"reason": "enough"})
            assert answer.status_code == 202
        ended = await to_the_end(made, run_id)
        took = time.monotonic() - began
        (tmp_path / "marks" / "go1").touch()
        await until(partial(_has_late_result, made, run_id))
    assert ended["state"] == "cancelled"
    assert took < 2


async def _has_late_result(made: DevStack, run_id: str) -> bool:
    async with httpx2.AsyncClient(base_url=made.url, trust_env=False) as client:
        entries = (await client.get(f"/v1/runs/{run_id}/entries")).json()["entries"]
        return bool(entries[-1]["kind"] == "ToolReturned")
