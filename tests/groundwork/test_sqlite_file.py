"""A database file: migrations run once, in order and wholly; and a disk that is full, small or read-only costs nothing
that was stored."""

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent_service.store.runs import RunStore
from agent_service.views.workspace.files import Workspace
from groundwork.service.errors import Broken, Misconfigured, TryAgain
from groundwork.service.store_folder import write
from groundwork.sqlite import errors
from groundwork.sqlite.file import SqliteFile, migrate, open_file, pending_upgrade
from groundwork.sqlite.reserve import CUT_OFF_AT_ONCE, SPARE_PAGES, DiskReserve
from tests.kit.disks import fill, read_only, reserved, small_disk


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    folder = tmp_path / "sql"
    folder.mkdir()
    (folder / "0001_runs.sql").write_text("CREATE TABLE run (id TEXT);\nCREATE TABLE entry (id TEXT);\n")
    (folder / "0002_state.sql").write_text(
        "INSERT INTO run VALUES ('a;b');\nALTER TABLE run ADD COLUMN state TEXT; -- the end"
    )
    (folder / "README.md").write_text("not a script")
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def answer(path: Path, question: str) -> list[object]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute(question)]


def test_a_new_file_is_brought_to_the_newest_version_once(path: Path, scripts: Path) -> None:
    for _ in range(2):
        assert migrate(path, scripts) == 2
    assert answer(path, "SELECT id FROM run WHERE state IS NULL") == ["a;b"]
    assert answer(path, "PRAGMA user_version") == [2]


@pytest.mark.parametrize("name", ["a b?c#d%41.db", "caf\udce9.db"], ids=["signs", "latin-1"])
def test_a_file_of_any_name_is_opened_for_reading(path: Path, scripts: Path, name: str) -> None:
    migrate(path, scripts)
    with contextlib.closing(errors.read_only(path.rename(path.parent / name))) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)


def test_what_an_older_program_wrote_is_said_beforehand_and_when_it_is_done(
    path: Path, scripts: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert pending_upgrade(path, scripts) == ""
    assert not path.exists()
    migrate(path, scripts)
    assert (pending_upgrade(path, scripts), caplog.messages) == ("", [])
    (scripts / "0003_more.sql").write_text("INSERT INTO run VALUES ('third', 'new');")
    assert (
        pending_upgrade(path, scripts)
        == f"{path} has schema version 2: the next start makes 3 of it, which older programs refuse"
    )
    assert answer(path, "PRAGMA user_version") == [2]
    migrate(path, scripts)
    assert "brought up to date" in caplog.text
    (scripts / "0003_more.sql").unlink()
    before = path.read_bytes()
    for refused in (pending_upgrade, migrate):
        with pytest.raises(Misconfigured, match=r"version 3, .* up to 2: start the newer program that wrote it"):
            refused(path, scripts)
    assert path.read_bytes() == before


def test_a_failing_script_leaves_nothing_behind_and_keeps_those_before_it(path: Path, scripts: Path) -> None:
    wrong = scripts / "0003_wrong.sql"
    wrong.write_text("INSERT INTO run VALUES ('half', 'x');\nINSERT INTO nowhere VALUES (1);")
    with pytest.raises(Broken, match="nowhere"):
        migrate(path, scripts)
    assert answer(path, "SELECT id FROM run") == ["a;b"]
    assert answer(path, "PRAGMA user_version") == [2]
    wrong.write_text("INSERT INTO run VALUES ('whole', 'x');")
    assert migrate(path, scripts) == 3
    assert answer(path, "SELECT id FROM run") == ["a;b", "whole"]


PAGE, ROW = 4096, 20_000


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


async def test_what_a_process_that_died_had_given_is_put_back_before_anything_is_written(disk: Path) -> None:
    async with opened(disk, reserve=True) as file:
        kept = reserved(file.path)
    os.truncate(disk / "some.db-reserve", 0)
    async with opened(disk, reserve=True) as file:
        await file.write(lambda connection: connection.execute("INSERT INTO t (v) VALUES (randomblob(?))", (ROW,)))
        assert reserved(file.path) >= kept


@pytest.mark.parametrize("reserve", [True, False])
async def test_on_a_full_disk_what_makes_room_is_written_from_the_reserve_and_nothing_else_is(
    disk: Path, *, reserve: bool
) -> None:
    async with opened(disk) as file:
        await file.write(lambda to: to.executemany("INSERT INTO t (v) VALUES (zeroblob(?))", [(ROW,)] * 50))
    async with opened(disk, reserve=reserve) as file:
        kept, filler, change = reserve and reserved(file.path), fill(disk), "UPDATE t SET v = randomblob(20000)"
        with file.making_room():
            for makes_room in (False, True):
                with contextlib.nullcontext() if makes_room and reserve else pytest.raises(TryAgain, match="no room"):
                    await file.write(lambda to: to.execute(change), makes_room=makes_room)
        assert "no room" in file.trouble, "what makes room proves nothing for others"
        filler.unlink()
        await file.write(lambda to: to.execute(change))
        assert (file.trouble, reserve and reserved(file.path)) == ("", kept)


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
