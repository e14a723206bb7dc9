"""On a disk of which the last byte is used, what makes room has room of its own, whoever else waits for some."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from groundwork.sqlite.errors import Full
from groundwork.sqlite.file import SqliteFile, open_file
from groundwork.sqlite.reserve import Reserve, reserved
from tests.kit.disks import small_disk
from tests.kit.waiting import wait_until

ROW = 20_000
STEP = 10
EATER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while os.getppid() == int(sys.argv[2]):
    try:
        os.write(file, bytes(4096))
    except OSError:
        open(sys.argv[1] + ".full", "a").close()
    time.sleep(0.001)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "12m") as disk:
        yield disk


@contextmanager
def eaten(disk: Path) -> Iterator[None]:
    """Another process takes each byte that comes free there; at the end it gives them all."""
    hog = disk / "hog"
    with subprocess.Popen([sys.executable, "-c", EATER, str(hog), str(os.getpid())]) as eater:
        try:
            wait_until((disk / "hog.full").exists, within_s=60.0)
            yield
        finally:
            eater.kill()
    hog.unlink()


@asynccontextmanager
async def opened(disk: Path) -> AsyncIterator[SqliteFile]:
    migrations, path = disk.parent / "migrations", disk / "some.db"
    migrations.mkdir(exist_ok=True)
    (migrations / "0001_initial.sql").write_text("CREATE TABLE t (id INTEGER PRIMARY KEY, v BLOB)")
    reserve = Reserve(path)
    reserve.open_up()
    async with open_file(path, migrations, reserve=reserve) as file:
        yield file


def one_more(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO t (v) VALUES (randomblob(?))", (ROW,))


def some_go(connection: sqlite3.Connection) -> int:
    return connection.execute("DELETE FROM t WHERE id IN (SELECT id FROM t ORDER BY id LIMIT ?)", (STEP,)).rowcount


async def until_full(file: SqliteFile) -> None:
    while True:
        await file.write(one_more)


async def emptied(file: SqliteFile) -> None:
    with file.making_room():
        while await file.write(some_go, makes_room=True):
            pass
        while await file.shrink():
            pass


async def test_where_all_room_is_filled_what_makes_some_is_written_though_another_takes_each_byte(disk: Path) -> None:
    async with opened(disk) as file:
        kept = reserved(file.path)
        with pytest.raises(Full):
            await until_full(file)
        with eaten(disk):
            await emptied(file)
        await file.write(one_more)
        assert reserved(file.path) >= kept


async def test_what_a_process_that_died_had_given_is_put_back_before_anything_is_written(disk: Path) -> None:
    async with opened(disk) as file:
        kept = reserved(file.path)
    os.truncate(disk / "some.db-reserve", 0)
    async with opened(disk) as file:
        await file.write(one_more)
        assert reserved(file.path) >= kept
