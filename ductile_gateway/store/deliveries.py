"""The record of events from outside in the gateway's database. Fills the port Deliveries of the ingress."""

import sqlite3
from datetime import datetime

from groundwork.sqlite.file import SqliteFile, microseconds

_FIND = "SELECT event_key FROM received WHERE source = ? AND identity = ?"
_RECORD = """
INSERT INTO received (source, identity, event_key, received_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
OLD_RECEIVED = "SELECT source, identity FROM received WHERE received_at < ? ORDER BY received_at LIMIT ?"
_FORGET = "DELETE FROM received WHERE source = ? AND identity = ?"


class SqliteDeliveries:
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
        await self._file.forget(lambda connection, most: forget_received(connection, before, most))


def forget_received(connection: sqlite3.Connection, before: int, most: int) -> int:
    """Drop at most so many that were received before; returns how many. -1: all of them."""
    old = connection.execute(OLD_RECEIVED, (before, most)).fetchall()
    connection.executemany(_FORGET, old)
    return len(old)
