"""Configurations of a test, what `agentic doctor` finds of them, and stores with runs for commands without an agent."""

import contextlib
import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from pathlib import Path
from typing import Any

from agent_service.cli.doctor.report import run_checks
from agent_service.store.runs import RunStore
from agent_service.views.workspace.files import Workspace
from agent_service.views.workspace.rendering import write
from groundwork.nats.link import connect
from groundwork.nats.settings import NatsSettings
from groundwork.service.errors import Failure
from groundwork.service.keys import KeyRing
from schemas.status import Finding
from tests.core.script import Script, commits_of
from tests.kit.waiting import until
from tests.ports.stores import stored
from tests.projections.fakes import Shelf
from tests.projections.journals import CRITIQUE, PAGE

NOWHERE = "nats://127.0.0.1:1"
ITS_PASSWORD = "the-password-of-the-agent"  # noqa: S105 - of the server of these tests
Members = dict[str, bytes]
"""Files of an archive."""
SHELF = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE}


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
        with contextlib.suppress(Failure):
            async with connect(settings, timeout_s=0.5):
                return True
        return False

    await until(lets_in)


async def recorded(folder: Path, story: Script, shelf: dict[str, bytes]) -> Path:
    """Writes store and workspace of one run into `folder` and returns the configuration. No bus answers."""
    commits = commits_of(story)
    async with opened(folder / "agent") as store:
        await stored(store, commits)
        await write(commits[0].entry.run_id, store, Workspace(folder / "workspaces"), Shelf(shelf))
    config = configured(folder)
    set_section(config, "gateway", {"store": str(folder / "gateway")})
    return config


def opened(folder: Path) -> AbstractAsyncContextManager[RunStore]:
    """Opens the store as an agent does, which makes its keys."""
    KeyRing.open(folder.with_name("agent.keys"))
    return RunStore.open(folder, reserve=True)


def name_bus(config: Path, url: str) -> None:
    set_section(config, "nats", {"urls": [url]})


def set_section(config: Path, name: str, section: dict[str, object]) -> None:
    config.write_text(json.dumps(json.loads(config.read_text()) | {name: section}))


def tampered(config: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(config.parent / "agent" / "runs.db")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def changed(file: Path, change: Callable[[Members], object]) -> Path:
    """Changes members of the file without changing the manifest."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    other = file.with_name("changed.zip")
    with zipfile.ZipFile(other, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return other


def named_anew(members: Members, name: str, content: bytes) -> None:
    manifest = json.loads(members["manifest.json"])
    manifest["files"][name] = sha256(content).hexdigest()
    members |= {name: content, "manifest.json": json.dumps(manifest).encode()}
    members.pop("signature.json")
