"""A NATS server as deploy/nats/ prepares it, with TLS, keys and permissions, and the services on it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_service.workbench.dev import free_port
from groundwork.nats.link import NatsLink, connect
from groundwork.nats.settings import NatsSettings
from tests.cli.invoke import Called, agentic, clean
from tests.kit.bus import start_process
from tests.kit.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
EXECUTOR = "weekday-executor"
RELOADED = "Reloaded server configuration"


@dataclass(frozen=True, slots=True)
class House:
    folder: Path
    log: Path
    pid: int

    def section(self, login: str) -> dict[str, Any]:
        return dict(self.settings(login)["nats"])

    def settings(self, login: str) -> dict[str, Any]:
        return dict(json.loads(self.config(login).read_text()))

    def config(self, login: str) -> Path:
        return self.folder / "logins" / f"{login}.yaml"

    def login(self, name: str) -> AbstractAsyncContextManager[NatsLink]:
        return connect(NatsSettings(**self.section(name)), name)

    def violations(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if "Violation" in line]

    def reload(self) -> None:
        """Have the server read its files again. Returns when it has."""
        before = self.log.read_text().count(RELOADED)
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self.log.read_text().count(RELOADED) > before)

    def set_up(self) -> Called:
        executor = f"{EXECUTOR}=weekday"
        return agentic("setup", "--config", self.config("setup"), "--max-gib", "1", "--executor", executor)


@contextmanager
def served(folder: Path, *more: str, also: str = "") -> Iterator[House]:
    """Prepared as the README says, and served; `also`: further lines of the server's configuration."""
    prepare(folder, free_port(), *more)
    log = folder / "server.log"
    config = folder / "nats-server.conf"
    # Monitoring has one port for all servers of a machine, and there may be others.
    config.write_text(config.read_text().replace('http: "127.0.0.1:8222"', "") + also)
    process = start_process(Path(sys.executable).parent / "nats-server", "--config", config, "--log", log)
    try:
        wait_until(lambda: log.is_file() and "Server is ready" in log.read_text())
        yield House(folder, log, process.pid)
    finally:
        process.terminate()
        process.wait()


def prepare(folder: Path, port: int, *more: str) -> None:
    script, listen = ROOT / "deploy" / "nats" / "prepare.py", f"127.0.0.1:{port}"
    command = [sys.executable, str(script), str(folder), "--listen", listen, "--executor", EXECUTOR, *more]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=clean({}))
