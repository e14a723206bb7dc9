"""A shared store is backed up by an operator with the nats tool, and brought back by the setup, entry by entry."""

import json
import shutil
from pathlib import Path

from agent_service.store.moving.comparing import differences
from agent_service.store.sql.database import open_database
from schemas import subjects
from schemas.permissions import inbox_of
from tests.accounts.house import House, served
from tests.cli.calling import Called, agentic
from tests.cli.test_migrating import MANY, filled
from tests.kit.nats_cli import environment, needs_nats_cli, said


def configured(bus: House, folder: Path) -> Path:
    """The agent, with the login that was prepared for it."""
    file = folder / "agentic.yaml"
    file.write_text(json.dumps({"nats": bus.section("agent"), "agent": {"store": str(folder / "agent")}}))
    return file


def set_up(bus: House) -> Called:
    return agentic("setup", "--config", bus.config("setup"), "--max-gib", "0.1", "--shared")


async def nats(bus: House, folder: Path, login: str, *command: str) -> str:
    section = bus.section(login)
    keys = ("--nkey", section["nkey_seed_file"], "--tlsca", section["tls_ca"], "--inbox-prefix", inbox_of(login))
    return await said("nats", *keys, *command, environ=environment(folder, section["urls"][0]))


@needs_nats_cli
async def test_a_store_that_was_lost_comes_back_from_its_backup_entry_by_entry(tmp_path: Path) -> None:
    town, backup = tmp_path / "town", tmp_path / "backup"
    with served(town) as bus:
        assert set_up(bus).code == 0
        config = configured(bus, tmp_path)
        store = await filled(config)
        moved = agentic("migrate", "--from", "sqlite", "--to", "jetstream", "--config", config, "--json")
        assert (moved.code, moved.document["runs"]) == (0, MANY), moved
        await nats(bus, tmp_path, "operator", "stream", "backup", subjects.STREAM_RUNS, str(backup))
        assert bus.violations() == []
    shutil.rmtree(town / "data")
    with served(town) as bus:
        await nats(bus, tmp_path, "setup", "stream", "restore", str(backup))
        assert set_up(bus).code == 0
        config = configured(bus, tmp_path)
        command = ("migrate", "--from", "jetstream", "--to", "sqlite", "--sqlite", str(tmp_path / "back"))
        back = agentic(*command, "--config", config, "--json")
        assert (back.code, back.document["runs"]) == (0, MANY), back
        assert bus.violations() == []
    async with open_database(store) as old, open_database(tmp_path / "back") as new:
        assert await differences(old, new) == []
