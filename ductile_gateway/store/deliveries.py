"""The record of deliveries in a SQLite file of its own. Fills the port Deliveries of the ingress.

Written through the group commit, and read on a second connection right on the event loop: by its primary key a row is
found in some microseconds.
"""

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from datetime import datetime
from importlib.resources import files
from pathlib import Path

from groundwork.sqlite.file import SqliteFile, microseconds, open_file

FILE = "deliveries.db"

_FIND = "SELECT event_key FROM deliveries WHERE source = ? AND identity = ?"
_RECORD = """
INSERT INTO deliveries (source, identity, event_key, received_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_OLD = "SELECT source, identity FROM deliveries WHERE received_at < ? ORDER BY received_at LIMIT ?"
_FORGET = "DELETE FROM deliveries WHERE source = ? AND identity = ?"


class SqliteDeliveries:
    """An open record, from `open_deliveries`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def find(self, source: str, identity: str) -> str | None:
        rows = self._file.look_up(_FIND, (source, identity))
        return str(rows[0][0]) if rows else None

    async def record(self, source: str, identity: str, *, event_key: str, at: datetime) -> None:
        values = (source, identity, event_key, microseconds(at))
        await self._file.write(lambda connection: connection.execute(_RECORD, values).rowcount)

    async def forget_before(self, instant: datetime) -> None:
        before = microseconds(instant)
        await self._file.forget(lambda connection, most: _forget(connection, before, most))


@contextlib.asynccontextmanager
async def open_deliveries(folder: Path) -> AsyncIterator[SqliteDeliveries]:
    """The record in an existing folder. Raises Misconfigured when its file cannot be used."""
    async with open_file(folder / FILE, files(__package__) / "deliveries_sql") as file:
        yield SqliteDeliveries(file)


def _forget(connection: sqlite3.Connection, before: int, most: int) -> int:
    old = connection.execute(_OLD, (before, most)).fetchall()
    connection.executemany(_FORGET, old)
    return len(old)
