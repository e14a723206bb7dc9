"""The bus that the gateway needs, on a real server; and `python -m ductile_gateway` as a process, with settings of a
test."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_service.bus.topology import topology
from agent_service.workbench.dev import free_port
from ductile_gateway.bus import incoming
from ductile_gateway.calls.relay import Relay
from groundwork.nats.link import NatsLink
from groundwork.nats.pull_loop import PullLoop
from groundwork.nats.topology import set_up
from schemas import keys, subjects
from schemas.events import ToolRequest, ToolResult
from tests.gateway.parts import OWN_RUN, a_request, message_of, result_in
from tests.kit.processes import Service
from tests.kit.stack import messages

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests" / "plugins"


def gateway(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ductile_gateway", *arguments]
    return subprocess.run(command, cwd=cwd, input="", capture_output=True, text=True, timeout=60, check=False)


class Gateway:
    """`python -m ductile_gateway` in a folder of its own. Its plugins may write to `marks`."""

    def __init__(self, folder: Path, *nats_urls: str, marks: Path | None = None, **settings: Any) -> None:
        self.config = folder / "agentic.yaml"
        self.marks = marks or folder / "marks"
        self.marks.mkdir(exist_ok=True)
        plugins = {"folders": [str(PLUGINS)], "write": [str(self.marks)]}
        ours = {"store": str(folder / "store"), "plugins": plugins, "http": {"port": free_port()}}
        chosen = ours | settings
        self.url = f"http://127.0.0.1:{chosen['http']['port']}"
        self.config.write_text(json.dumps({"nats": {"urls": nats_urls}, "gateway": chosen, "agent": {"turns": 1}}))
        self.log = folder / "log"

    @contextlib.contextmanager
    def serving(self, *options: str) -> Iterator[Service]:
        service = Service("ductile_gateway", self.config, self.log, *options)
        service.start()
        try:
            yield service
        finally:
            service.kill()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return gateway(ROOT, *arguments, "--config", str(self.config))

    def starts(self) -> int:
        """Number of times that the log says ready."""
        return self.log.read_text().count('"ready"') if self.log.exists() else 0


async def record(bus: NatsLink, folder: Path, *, step: int = 1) -> None:
    """Ask for a write that adds a line to a file, and ends once there is a file `go`."""
    payload = {"file": str(folder / "marks" / "ran"), "wait_for": str(folder / "marks" / "go")}
    await send(bus, a_request("record", payload, tool="probe", run_id=OWN_RUN, step=step), "probe")


async def a_bus(link: NatsLink) -> None:
    """The topology of the service, with two seconds to redelivery."""
    sooner, made = {"ack_wait": 2.0}, topology(max_gib=1)
    await set_up(
        link, tuple(replace(one, settings={**one.settings, **sooner}) if one.consumer else one for one in made)
    )


async def send(link: NatsLink, request: ToolRequest, route: str = "jina-reader") -> None:
    subject, body, headers = message_of(request, route)
    key = keys.request(request.run_id, request.step, request.attempt, request.task, request.round)
    await link.publish(subject, body, msg_id=key, headers=headers)


def requests_of(link: NatsLink, relay: Relay) -> PullLoop:
    return incoming.request_loop(link, relay, trust=None, slots=8, grace_s=1)


@contextlib.asynccontextmanager
async def consuming(link: NatsLink, relay: Relay) -> AsyncIterator[None]:
    loop = requests_of(link, relay)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in (relay.republish(), loop.run())]
        yield
        for task in tasks:
            task.cancel()


async def all_acknowledged(link: NatsLink) -> bool:
    info = await link.client.jetstream().consumer_info(subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS)
    return (info.num_pending, info.num_ack_pending) == (0, 0)


async def results(link: NatsLink) -> list[ToolResult]:
    return [result_in(message.body) async for message in messages(link, subjects.TOOL_RESULT)]
