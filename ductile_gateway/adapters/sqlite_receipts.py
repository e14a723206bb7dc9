"""What the gateway remembers of calls that it handed to a Ductile, in a SQLite file of its own.

A row is durable before a call is sent, so that a call of which nothing is known here was never sent.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from ductile_gateway.errors import Broken, Misconfigured, TryAgain
from groundwork.group_commit import GroupCommit
from groundwork.migrations import MigrationsWrong, StoreTooNew, migrate
from groundwork.storage_errors import StorageBroken, StorageClosed, StorageError

FILE = "receipts.db"

T = TypeVar("T")

_BEGIN = "INSERT INTO receipts (key, begun_at) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"
_FIND = "SELECT begun_at, job_id FROM receipts WHERE key = ?"
_ACCEPT = "UPDATE receipts SET job_id = ? WHERE key = ?"
_DROP = "DELETE FROM receipts WHERE key = ?"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A call that was or may have been sent. `job_id`: what Ductile calls it, once it has answered."""

    begun_at: datetime
    job_id: str | None = None


class SqliteReceipts:
    """Open receipts, from `open_receipts`. Every method raises TryAgain or Broken."""

    def __init__(self, writer: GroupCommit) -> None:
        self._writer = writer

    async def begin(self, key: str, at: datetime) -> bool:
        """The call is about to be sent: durable on return. False, and nothing is changed, if it was begun before."""
        number = (at - _EPOCH) // _MICROSECOND
        return await self._write(lambda connection: connection.execute(_BEGIN, (key, number)).rowcount == 1)

    async def accepted(self, key: str, job_id: str) -> None:
        """Ductile has made this job of the call: durable on return."""
        await self._write(lambda connection: connection.execute(_ACCEPT, (job_id, key)).rowcount)

    async def find(self, key: str) -> Receipt | None:
        """What is known of the call."""
        row = await self._write(lambda connection: connection.execute(_FIND, (key,)).fetchone())
        return Receipt(_EPOCH + row[0] * _MICROSECOND, row[1]) if row else None

    async def drop(self, key: str) -> None:
        """The call was never sent: durable on return."""
        await self._write(lambda connection: connection.execute(_DROP, (key,)).rowcount)

    def drop_soon(self, key: str) -> None:
        """The verdict is recorded elsewhere; a crash may leave the row, which then harms nobody."""
        with contextlib.suppress(StorageClosed):
            self._writer.later(lambda connection: connection.execute(_DROP, (key,)))

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._writer.write(work)
        except StorageError as error:
            kind = Broken if isinstance(error, StorageBroken) else TryAgain
            raise kind(str(error)) from error


@contextlib.asynccontextmanager
async def open_receipts(folder: Path) -> AsyncIterator[SqliteReceipts]:
    """The receipts in an existing folder. Raises Misconfigured when their file cannot be used."""
    path = folder / FILE
    try:
        await asyncio.to_thread(migrate, path, files(f"{__package__}.receipts_sql"))
        writer = await asyncio.to_thread(GroupCommit, path)
    except (StoreTooNew, MigrationsWrong, StorageError) as error:
        raise Misconfigured(str(error)) from error
    try:
        yield SqliteReceipts(writer)
    finally:
        await writer.close()
