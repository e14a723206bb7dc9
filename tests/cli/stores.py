"""Stores and workspaces with runs, for commands that work without an agent."""

import contextlib
import json
import sqlite3
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from agent_service.store.runs import RunStore
from agent_service.views.workspace.files import Workspace
from agent_service.views.workspace.rendering import write
from groundwork.service.keys import KeyRing
from tests.core.script import Script, commits_of
from tests.ports.stores import stored
from tests.projections.fakes import Shelf
from tests.projections.journals import CRITIQUE, PAGE

SHELF = {"artifacts/fetch-01.html": PAGE, "artifacts/critique.md": CRITIQUE}


async def recorded(folder: Path, story: Script, shelf: dict[str, bytes]) -> Path:
    """Writes store and workspace of one run into `folder` and returns the configuration. No bus answers."""
    commits = commits_of(story)
    async with opened(folder / "agent") as store:
        await stored(store, commits)
        await write(commits[0].entry.run_id, store, Workspace(folder / "workspaces"), Shelf(shelf))
    config = folder / "agentic.yaml"
    agent = {"store": str(folder / "agent"), "workspaces": str(folder / "workspaces")}
    config.write_text(json.dumps({"nats": {"urls": ["nats://127.0.0.1:1"]}, "agent": agent}))
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
