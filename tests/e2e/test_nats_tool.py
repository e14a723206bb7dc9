"""The `nats` command line tool, as it is, in every part that others play: it starts runs, carries out their tool,
follows them, and with `agentic dlq` it looks after what was refused."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_service.workbench.dev import DevStack
from schemas import keys, subjects
from tests.e2e.bodies import running
from tests.executors.shipped import BASH, asking, heard
from tests.kit import nats_cli
from tests.kit.waiting import until

pytestmark = [
    pytest.mark.natscli,
    nats_cli.needs_nats_cli,
    pytest.mark.skipif(not shutil.which("jq"), reason="no jq: the executor in bash needs it"),
]


@dataclass(frozen=True, slots=True)
class Tool:
    """The tool, at a terminal in `folder` beside a stack."""

    made: DevStack
    folder: Path

    async def __call__(self, *words: str, program: str = "nats", log: bool = False) -> str:
        environ = nats_cli.environment(self.folder, self.made.nats.url, AGENTIC_URL=self.made.url)
        return await nats_cli.said(program, *words, environ=environ, log=log)

    async def publish(self, subject: str, body: Any, key: str) -> str:
        """What the tool says that JetStream has answered."""
        header = f"Nats-Msg-Id:{key}"
        words = "pub", subject, json.dumps(body), "--jetstream", "--no-templates", "--header", header
        return await self(*words, log=True)

    async def newest(self, subject: str, stream: str = subjects.STREAM) -> dict[str, Any]:
        """The newest message of a subject, once there is one."""
        words = ("sub", subject, "--stream", stream, "--last", "--count", "1", "--raw")
        found: dict[str, Any] = json.loads(await self(*words))
        return found

    @contextlib.asynccontextmanager
    async def follows(self, *patterns: str) -> AsyncIterator[Path]:
        """The file into which it prints all that it hears meanwhile."""
        out = self.folder / "heard.out"
        environ = nats_cli.environment(self.folder, self.made.nats.url)
        with out.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                "nats", "sub", *patterns, env=environ, stdout=file, stderr=file
            )
            try:
                await until(lambda: "Subscribing" in out.read_text())
                yield out
            finally:
                process.terminate()
                await process.wait()


@contextlib.asynccontextmanager
async def a_terminal(folder: Path) -> AsyncIterator[Tool]:
    """Beside a stack whose only executor of `count` is the tool itself, in bash."""
    async with running(folder / "stack", asking((BASH.tool, "handle", BASH.arguments))) as made:
        with BASH.at_work(folder, made.nats.url):
            await heard(made, BASH)
            yield Tool(made, folder)


async def test_it_starts_a_run_carries_out_its_step_and_hears_how_it_ends(tmp_path: Path) -> None:
    async with a_terminal(tmp_path) as tool, tool.follows("agentic.>", "agent.>", "log.>") as out:
        await tool.publish(
            subjects.START, {"type": subjects.START, "payload": {"goal": "count"}}, keys.start("order-1")
        )
        completed = await tool.newest(subjects.COMPLETED)
        run_id = completed["payload"]["run_id"]
        await until(lambda: f"{run_id}:completed" in out.read_text())
        services = json.loads(await tool("micro", "ls", "--json"))
        pages = await tool(
            "-qec", f"nats stream view {subjects.STREAM} 25", "/dev/null", program="script"
        )  # a terminal
        stands = json.loads(await tool("req", subjects.RUN_STATUS, json.dumps({"run_id": run_id}), "--raw"))
    assert [(step["tool"], step["summary"]) for step in stands["steps"]] == [(BASH.tool, BASH.summary)]
    assert {subjects.SERVICE_AGENT, subjects.SERVICE_GATEWAY} <= {service["name"] for service in services}
    assert f"Subject: {subjects.COMPLETED} Received:" in pages
    heard_subjects = {line.split('"')[1] for line in out.read_text().splitlines() if "Received on" in line}
    assert heard_subjects >= {
        subjects.START,
        subjects.tool_request(BASH.tool),
        subjects.TOOL_RESULT,
        subjects.PROGRESS,
        subjects.COMPLETED,
        f"{subjects.LOG}.{subjects.COMPLETED}",
    }
