"""The record of deliveries in a SQLite file of its own. Fills the port Deliveries of the ingress.

Written through the group commit, and read on a second connection right on the event loop: by its primary key a row is
found in some microseconds.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from ductile_gateway.errors import Broken, Misconfigured, TryAgain
from groundwork.group_commit import GroupCommit
from groundwork.migrations import MigrationsWrong, StoreTooNew, migrate
from groundwork.storage_errors import StorageBroken, StorageError, storage_error

FILE = "deliveries.db"
FORGOTTEN_AT_ONCE = 500

T = TypeVar("T")

_FIND = "SELECT event_key FROM deliveries WHERE source = ? AND identity = ?"
_RECORD = """
INSERT INTO deliveries (source, identity, event_key, received_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_OLD = "SELECT source, identity FROM deliveries WHERE received_at < ? ORDER BY received_at LIMIT ?"
_FORGET = "DELETE FROM deliveries WHERE source = ? AND identity = ?"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class SqliteDeliveries:
    """An open record, from `open_deliveries`."""

    def __init__(self, path: Path, writer: GroupCommit, *, reader: sqlite3.Connection) -> None:
        self._path = path
        self._writer = writer
        self._reader = reader

    async def find(self, source: str, identity: str) -> str | None:
        try:
            row = self._reader.execute(_FIND, (source, identity)).fetchone()
        except sqlite3.Error as error:
            raise _remedy(storage_error(error, self._path)) from error
        return None if row is None else str(row[0])

    async def record(self, source: str, identity: str, *, event_key: str, at: datetime) -> None:
        values = (source, identity, event_key, _number(at))
        await self._write(lambda connection: connection.execute(_RECORD, values).rowcount)

    async def forget_before(self, instant: datetime) -> None:
        while await self._write(lambda connection: _forget(connection, _number(instant))) == FORGOTTEN_AT_ONCE:
            pass

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._writer.write(work)
        except StorageError as error:
            raise _remedy(error) from error


@contextlib.asynccontextmanager
async def open_deliveries(folder: Path) -> AsyncIterator[SqliteDeliveries]:
    """The record in an existing folder. Raises Misconfigured when its file cannot be used."""
    path = folder / FILE
    try:
        await asyncio.to_thread(migrate, path, files(f"{__package__}.deliveries_sql"))
        writer = await asyncio.to_thread(GroupCommit, path)
    except (StoreTooNew, MigrationsWrong, StorageError) as error:
        raise Misconfigured(str(error)) from error
    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as reader:
            yield SqliteDeliveries(path, writer, reader=reader)
    finally:
        await writer.close()


def _forget(connection: sqlite3.Connection, before: int) -> int:
    old = connection.execute(_OLD, (before, FORGOTTEN_AT_ONCE)).fetchall()
    connection.executemany(_FORGET, old)
    return len(old)


def _number(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def _remedy(error: StorageError) -> TryAgain | Broken:
    return Broken(str(error)) if isinstance(error, StorageBroken) else TryAgain(str(error))
