"""A database on a disk that is full, small, failing or read-only, and the room that it takes and gives back."""

import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent_service.store.runs import RunStore
from agent_service.views.workspace.files import Workspace
from groundwork.service.store_folder import write
from groundwork.sqlite.file import SqliteFile, open_file
from groundwork.sqlite.reserve import CUT_OFF_AT_ONCE, SPARE_PAGES, DiskReserve
from tests.kit.disks import fill, read_only, reserved, small_disk

PAGE, ROW, STEP = 4096, 20_000, 10


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "12m") as disk:
        yield disk


def test_a_reserve_is_made_where_the_system_cannot_allocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")  # macOS
    DiskReserve(tmp_path / "some.db").make()
    assert (tmp_path / "some.db-reserve").stat().st_blocks * 512 >= PAGE


@asynccontextmanager
async def opened(folder: Path, *, reserve: bool = False) -> AsyncIterator[SqliteFile]:
    migrations, path = folder.parent / "migrations", folder / "some.db"
    migrations.mkdir(exist_ok=True)
    (migrations / "0001_initial.sql").write_text("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
    async with open_file(path, migrations, reserve=reserve) as file:
        yield file


def one_more(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO t (v) VALUES (randomblob(?))", (ROW,))


async def test_what_a_process_that_died_had_given_is_put_back_before_anything_is_written(disk: Path) -> None:
    async with opened(disk, reserve=True) as file:
        kept = reserved(file.path)
    os.truncate(disk / "some.db-reserve", 0)
    async with opened(disk, reserve=True) as file:
        await file.write(one_more)
        assert reserved(file.path) >= kept


def test_a_file_that_finds_no_room_is_as_it_was_and_leaves_nothing_beside_it(disk: Path) -> None:
    write(disk / "agent.keys", "old")
    fill(disk)
    with pytest.raises(OSError, match="No space left"):
        write(disk / "agent.keys", "new" * PAGE)
    assert (disk / "agent.keys").read_text() == "old"
    assert {path.name for path in disk.iterdir()} == {"agent.keys", "filler"}


async def test_a_file_shrinks_step_by_step_to_what_it_holds_and_some_spare_pages(tmp_path: Path) -> None:
    rows = SPARE_PAGES + 3 * CUT_OFF_AT_ONCE
    async with opened(tmp_path / "store") as file:
        await file.write(lambda to: to.executemany("INSERT INTO t (v) VALUES (zeroblob(4000))", [()] * rows))
        await file.write(lambda to: to.execute("DELETE FROM t"))
        assert await file.used() < 10 * PAGE
        steps = 1
        while await file.shrink():
            steps += 1
        assert steps <= 4
    assert file.path.stat().st_size <= (SPARE_PAGES + 10) * PAGE


async def test_a_store_and_a_workspace_on_a_read_only_disk_are_refused_and_as_they_were(tmp_path: Path) -> None:
    workspace, run = Workspace(tmp_path / "workspaces"), "run_01JD7Z0000000000000000000A"
    async with RunStore.open(tmp_path / "store"):
        workspace.write(run, {"plan.md": b"old"})
    with read_only(tmp_path):
        with pytest.raises(OSError, match="Read-only"):
            async with RunStore.open(tmp_path / "store"):
                pass
        with pytest.raises(OSError, match="Read-only"):
            workspace.write(run, {"plan.md": b"new"})
    async with RunStore.open(tmp_path / "store"):
        assert workspace.read(run, "plan.md") == b"old"
