"""`python -m ductile_gateway` as a process, with settings of a test."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_service.workbench.dev import free_port
from groundwork.nats.link import NatsLink
from schemas.events import ToolResult
from tests.gateway.on_nats import send
from tests.gateway.parts import OWN_RUN, a_request
from tests.kit.processes import Service

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "tests" / "plugins"


def gateway(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One call of the command in this folder."""
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
        """The process; killed in the end if it still lives."""
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


def ending(result: ToolResult) -> str:
    """The status, or the class of the error."""
    return result.error.error_class if result.error else result.status
