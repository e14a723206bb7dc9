"""`agentic prune --compact` on a database of an earlier version, which keeps its free room."""

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from agent_service.cli.exits import Exit
from agent_service.store.sql.database import FILE
from agent_service.store.sqlite import SqliteStore
from groundwork.service.process_lock import ProcessLock
from groundwork.sqlite.file import can_shrink
from groundwork.sqlite.reserve import reserved
from tests.cli.calling import Called, agentic_here
from tests.cli.test_records import sealed
from tests.kit.disks import small_disk
from tests.kit.runs import run_id, whole_run
from tests.ports.stores import as_loaded, stored

MUCH = 4 << 20
RUNS = 40


async def filled(folder: Path) -> SqliteStore:
    async with sealed(folder / "agent") as store:
        await stored(store, whole_run(1))
        return store


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a store with one run, and much free room that its file keeps."""
    asyncio.run(filled(tmp_path))
    with contextlib.closing(sqlite3.connect(tmp_path / "agent" / FILE, isolation_level=None)) as hand:
        hand.executescript("PRAGMA journal_mode=DELETE; PRAGMA auto_vacuum=NONE; VACUUM; PRAGMA journal_mode=WAL")
        hand.execute("CREATE TABLE much (of BLOB)")
        hand.execute("INSERT INTO much VALUES (zeroblob(?))", (MUCH,))
        hand.execute("DROP TABLE much")
    config = tmp_path / "agentic.yaml"
    agent = {"store": str(tmp_path / "agent"), "workspaces": str(tmp_path / "workspaces")}
    config.write_text(json.dumps({"nats": {"urls": ["nats://127.0.0.1:1"]}, "agent": agent}))
    return config


def compacted(config: Path) -> Called:
    return agentic_here("prune", "--compact", "--config", config, COLUMNS="200")


def test_a_file_that_keeps_its_free_room_is_written_anew_and_gives_it_back_from_then_on(config: Path) -> None:
    database = config.parent / "agent" / FILE
    assert not can_shrink(database)
    called = compacted(config)
    assert called.code == 0, called.err
    assert (can_shrink(database), database.stat().st_size < MUCH) == (True, True)

    async def still_there() -> None:
        async with sealed(database.parent) as store:
            assert await store.load(run_id(1)) == as_loaded(whole_run(1)[-1])

    asyncio.run(still_there())


def test_a_store_whose_agent_runs_is_not_compacted(config: Path) -> None:
    with ProcessLock(config.parent / "agent"):
        called = compacted(config)
    assert called.code == Exit.MISCONFIGURED
    assert "its agent runs" in called.err
    assert not can_shrink(config.parent / "agent" / FILE)


async def with_runs(folder: Path) -> None:
    async with sealed(folder) as store:
        for number in range(1, RUNS + 1):
            last = await stored(store, whole_run(number))
            store.told(last.entry.run_id, last.entry.seq)


def test_on_a_disk_of_which_the_last_byte_is_used_runs_go_and_what_is_kept_for_that_is_there_again(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", "12m") as disk:
        folder = disk / "agent"
        asyncio.run(with_runs(folder))
        kept = reserved(folder / FILE)
        config = tmp_path / "agentic.yaml"
        agent = {"store": str(folder), "workspaces": str(disk / "workspaces"), "keep_runs": {"done_days": 1}}
        config.write_text(json.dumps({"nats": {"urls": ["nats://127.0.0.1:1"]}, "agent": agent}))
        with pytest.raises(OSError, match="No space"):
            (disk / "of-somebody-else").write_bytes(bytes(12 << 20))
        called = agentic_here("prune", "--url", "http://127.0.0.1:1", "--config", config, COLUMNS="200")
        assert (called.code, f"{RUNS} runs went" in called.out) == (0, True), called
        assert reserved(folder / FILE) >= kept
        assert "are kept for a full disk" in agentic_here("du", "--config", config, COLUMNS="200").out
