"""The agent's database `runs.db`, its schema in migrations/, and SQL statements by name (`-- name: x`) from files."""

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import AsyncIterator
from functools import cache
from importlib.resources import files
from pathlib import Path

from groundwork.service.errors import Misconfigured
from groundwork.sqlite import file
from groundwork.sqlite.errors import damage_in, storage_error
from groundwork.sqlite.file import SqliteFile
from groundwork.sqlite.reserve import DiskReserve

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def load_queries() -> dict[str, str]:
    text = (files(__package__) / "queries.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


FILE = "runs.db"
SMALL = 16 << 20
"""Bytes up to which a file is checked at the start. Reading finds damage to a larger one, or `agentic verify --all`."""
MIGRATIONS = files(__package__) / "migrations"


@contextlib.asynccontextmanager
async def open_database(folder: Path, *, durable: bool = True, reserve: bool = False) -> AsyncIterator[SqliteFile]:
    """Opens the database in `folder`, made if absent. Not `durable`: a copy. Raises Misconfigured, TryAgain."""
    path = folder / FILE
    kept = DiskReserve(path) if reserve else None
    await asyncio.to_thread(_check, path)
    async with file.open_file(path, MIGRATIONS, durable=durable, reserve=kept) as database:
        yield database


@contextlib.asynccontextmanager
async def open_for_reading(folder: Path) -> AsyncIterator[SqliteFile]:
    """Opens it read-only, also while another process writes. Raises Misconfigured unless one of this version exists."""
    path = folder / FILE
    if not path.is_file():
        raise Misconfigured(f"there is no database {path}: name the configuration of the agent that wrote it")
    async with file.open_for_reading(path, MIGRATIONS) as database:
        yield database


def _check(path: Path) -> None:
    file.make_private(path)
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found = damage_in(connection) if path.stat().st_size <= SMALL else ""
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise storage_error(error, path) from error
        found = str(error)
    if found:
        raise Misconfigured(
            f"{path} is damaged ({found}): restore it from a backup, or move it away with its -wal file "
            "to begin without the runs in it"
        )
