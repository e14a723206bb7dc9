"""`python -m ductile_gateway` as a process with settings of a test, and several of one bus, each on its own machine."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats.errors
from nats.js.errors import APIError

from agent_service.bus.topology import topology
from agent_service.workbench.dev import free_port
from groundwork.nats.link import NatsLink
from groundwork.nats.topology import create_missing
from schemas import subjects
from schemas.events import ToolResult
from tests.gateway.on_nats import all_acknowledged, results, send
from tests.gateway.parts import a_request
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests" / "plugins"
ENVIRONMENT = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


class Gateway:
    """`python -m ductile_gateway` in a folder of its own. Its plugins may write to `marks`."""

    def __init__(self, folder: Path, *nats_urls: str, marks: Path | None = None, **settings: Any) -> None:
        self.config = folder / "agentic.yaml"
        self.marks = marks or folder / "marks"
        self.marks.mkdir(exist_ok=True)
        plugins = {"folders": [str(PLUGINS)], "write": [str(self.marks)]}
        ours = {"store": str(folder / "store"), "plugins": plugins, "http": {"port": free_port()}}
        gateway = ours | settings
        self.url = f"http://127.0.0.1:{gateway['http']['port']}"
        self.config.write_text(json.dumps({"nats": {"urls": nats_urls}, "gateway": gateway, "agent": {"turns": 1}}))
        self.log = folder / "log"

    @contextlib.contextmanager
    def serving(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        """The process; killed in the end if it still lives."""
        command = [sys.executable, "-m", "ductile_gateway", "serve", "--config", str(self.config), *options]
        with self.log.open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, stderr=log, env=ENVIRONMENT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line, run to its end."""
        command = [sys.executable, "-m", "ductile_gateway", *arguments, "--config", str(self.config)]
        return subprocess.run(
            command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=30, check=False
        )

    def starts(self) -> int:
        """How often the log says that it is ready."""
        return self.log.read_text().count('"ready"') if self.log.exists() else 0


READY_WITHIN_S = 40.0
BY_OTHERS_WITHIN_S = 40.0
"""What a gateway leaves that is killed is done by the others far sooner; machines may be busy."""


@dataclass(slots=True)
class Fleet:
    """`folder` holds a folder for each gateway, the keys of all, and what plugins write."""

    folder: Path
    link: NatsLink
    urls: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    gateways: dict[str, Gateway] = field(default_factory=dict)

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    @contextlib.contextmanager
    def serving(self, name: str, **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A gateway; killed in the end, if it still lives. The same name again is the same machine."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        ours = {"store": "jetstream", "cache": str(home / "copy"), "keys_file": str(self.folder / "gateway.keys")}
        every = ours | self.settings | settings
        self.gateways[name] = gateway = Gateway(home, *self.urls, marks=self.marks, **every)
        with gateway.serving() as process:
            yield process

    async def ready(self, name: str, times: int = 1) -> None:
        gateway = self.gateways[name]
        await until(
            lambda: gateway.starts() >= times,
            within_s=READY_WITHIN_S,
            otherwise=lambda: gateway.log.read_text()[-2000:],
        )

    async def asking(self, number: int) -> None:
        """Wait until so many gateways have asked for requests."""

        async def asked() -> bool:
            info = await self.link.jetstream.consumer_info(subjects.STREAM_REQUESTS, subjects.DURABLE_TOOLS)
            return (info.num_waiting or 0) >= number

        await until(asked, within_s=READY_WITHIN_S)

    async def record(self, *, step: int, file: str = "ran", held: bool = True) -> None:
        """Ask for a write that adds a line to a file, and if it is `held` ends once it was let `go`."""
        wait = {"wait_for": str(self.marks / "go")} if held else {}
        payload = {"file": str(self.marks / file)} | wait
        await send(self.link, a_request("record", payload, tool="probe", step=step), "probe")

    def go(self) -> None:
        (self.marks / "go").touch()

    def ran(self, file: str = "ran") -> list[str]:
        """The calls that were run, each time."""
        path = self.marks / file
        return path.read_text().splitlines() if path.exists() else []

    def began(self, name: str) -> list[str]:
        """The calls that a gateway has on its machine."""
        return [str(path) for path in (self.folder / name / "copy").glob("*/calls/*/began")]

    async def results(self, number: int) -> list[ToolResult]:
        """Once all requests are settled and there are so many."""

        async def settled() -> bool:
            with contextlib.suppress(nats.errors.Error, APIError):  # of a bus without a leader
                return await all_acknowledged(self.link) and len(await results(self.link)) >= number
            return False

        await until(settled, within_s=BY_OTHERS_WITHIN_S, otherwise=self._last_words)
        found = await results(self.link)
        assert len(found) == number
        return found

    def _last_words(self) -> str:
        return "\n".join(gateway.log.read_text()[-1500:] for gateway in self.gateways.values())


@asynccontextmanager
async def fleet(folder: Path, link: NatsLink, *urls: str, replicas: int = 1, **settings: Any) -> AsyncIterator[Fleet]:
    """On a bus that was set up for several."""
    await create_missing(link, topology(max_gib=1, shared=True, replicas=replicas))
    await asyncio.to_thread((folder / "marks").mkdir)
    yield Fleet(folder, link, urls, settings)


def ending(result: ToolResult) -> str:
    """The status, or the class of the error."""
    return result.error.error_class if result.error else result.status


def lines(file: Path) -> int:
    """How often the probe has recorded there that it ran."""
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0
