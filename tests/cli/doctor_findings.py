"""Findings of `agentic doctor` for a test's own configuration, on a server with logins."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from agent_service.cli.doctor.report import run_checks
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Failure
from schemas.status import Finding
from tests.kit.waiting import until

NOWHERE = "nats://127.0.0.1:1"
ITS_PASSWORD = "the-password-of-the-agent"  # noqa: S105 - of the server of these tests


def configured(folder: Path, url: str = NOWHERE, **agent: Any) -> Path:
    """Writes a configuration; port 0 skips the check of the API, which could meet another agent of this machine."""
    places = {"store": str(folder / "agent"), "workspaces": str(folder / "workspaces"), "http": {"port": 0}}
    file = folder / "agentic.yaml"
    file.write_text(json.dumps({"nats": {"urls": [url]}, "agent": places | agent}))
    return file


async def found(config: Path) -> dict[str, Finding]:
    return {check.name: check async for check in run_checks(config)}


async def up(address: str) -> None:
    """Waits until the server accepts the agent's login."""
    settings = NatsSettings(urls=(f"nats://{address}",), user="agent", password=ITS_PASSWORD)

    async def lets_in() -> bool:
        with suppress(Failure):
            async with connect(settings, timeout_s=0.5):
                return True
        return False

    await until(lets_in)
