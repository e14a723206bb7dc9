"""What the gateway remembers of calls that it handed to a Ductile, in a SQLite file of its own.

A row is durable before a call is sent, so that a call of which nothing is known here was never sent.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ductile_gateway.adapters.sqlite_file import SqliteFile, instant, microseconds, open_file

FILE = "receipts.db"

_BEGIN = "INSERT INTO receipts (key, begun_at) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"
_FIND = "SELECT begun_at, job_id FROM receipts WHERE key = ?"
_ACCEPT = "UPDATE receipts SET job_id = ? WHERE key = ?"
_DROP = "DELETE FROM receipts WHERE key = ?"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A call that was or may have been sent. `job_id`: what Ductile calls it, once it has answered."""

    begun_at: datetime
    job_id: str | None = None


class SqliteReceipts:
    """Open receipts, from `open_receipts`. Every method raises TryAgain or Broken."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def begin(self, key: str, at: datetime) -> bool:
        """The call is about to be sent: durable on return. False, and nothing is changed, if it was begun before."""
        number = microseconds(at)
        return await self._file.write(lambda connection: connection.execute(_BEGIN, (key, number)).rowcount == 1)

    async def accepted(self, key: str, job_id: str) -> None:
        """Ductile has made this job of the call: durable on return."""
        await self._file.write(lambda connection: connection.execute(_ACCEPT, (job_id, key)).rowcount)

    async def find(self, key: str) -> Receipt | None:
        """What is known of the call."""
        row = await self._file.write(lambda connection: connection.execute(_FIND, (key,)).fetchone())
        return Receipt(instant(row[0]), row[1]) if row else None

    async def drop(self, key: str) -> None:
        """The call was never sent: durable on return."""
        await self._file.write(lambda connection: connection.execute(_DROP, (key,)).rowcount)

    def drop_soon(self, key: str) -> None:
        """The verdict is recorded elsewhere; a crash may leave the row, which then harms nobody."""
        self._file.later(lambda connection: connection.execute(_DROP, (key,)))


@contextlib.asynccontextmanager
async def open_receipts(folder: Path) -> AsyncIterator[SqliteReceipts]:
    """The receipts in an existing folder. Raises Misconfigured when their file cannot be used."""
    async with open_file(folder / FILE, f"{__package__}.receipts_sql") as file:
        yield SqliteReceipts(file)
