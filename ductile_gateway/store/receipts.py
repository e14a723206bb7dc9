"""What the gateway remembers of calls that it handed to a Ductile, in a SQLite file of its own.

A receipt is durable before a call is sent, so that a call of which nothing is known here was never sent. Apart from
them it keeps the jobs that outlived their calls.
"""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Literal

from ductile_gateway.ductile.watch import Job
from groundwork.sqlite.file import SqliteFile, instant, microseconds, open_file

FILE = "receipts.db"

Way = Literal["plugin", "pipeline", "event"]
"""A command by the API, a pipeline by the API, or an event through the relay ingress."""

_BEGIN = "INSERT INTO receipts (key, begun_at, way, newest) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_FIND = "SELECT begun_at, job_id, way, newest FROM receipts WHERE key = ?"
_ACCEPT = "UPDATE receipts SET job_id = ? WHERE key = ?"
_DROP = "DELETE FROM receipts WHERE key = ?"
_ADD_OVERDUE = "INSERT INTO overdue (key, job_id, pipeline, since) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_ALL_OVERDUE = "SELECT key, job_id, pipeline, since FROM overdue ORDER BY since"
_DROP_OVERDUE = "DELETE FROM overdue WHERE key = ?"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A call that was or may have been sent. `job_id`: what Ductile calls it, once it has answered.

    `way`: how it was sent, whatever the settings and Ductile say of its route by now. `newest`: the command's newest
    job just before, empty where there was none, None where that is not known."""

    begun_at: datetime
    job_id: str | None = None
    way: Way = "plugin"
    newest: str | None = None


@dataclass(frozen=True, slots=True)
class OverdueJob:
    """A job that outlived its call, whose deadline was at about `since`."""

    key: str
    job: Job
    since: datetime


class SqliteOverdue:
    """The jobs that outlived their calls, in the same file. Fills Overdue; every method raises TryAgain or Broken."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def add(self, key: str, job: Job, at: datetime) -> None:
        values = (key, job.job_id, job.pipeline, microseconds(at))
        await self._file.write(lambda connection: connection.execute(_ADD_OVERDUE, values).rowcount)

    def all(self) -> list[OverdueJob]:
        """The longest overdue first."""
        rows = self._file.look_up(_ALL_OVERDUE, ())
        return [OverdueJob(key, Job(job_id, bool(flow)), instant(since)) for key, job_id, flow, since in rows]

    async def drop(self, key: str) -> None:
        await self._file.write(lambda connection: connection.execute(_DROP_OVERDUE, (key,)).rowcount)


class SqliteReceipts:
    """Open receipts, from `open_receipts`. Every method raises TryAgain or Broken."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self.overdue = SqliteOverdue(file)

    async def begin(self, key: str, at: datetime, way: Way = "plugin", newest: str | None = None) -> bool:
        """The call is about to be sent: durable on return. False, and nothing is changed, if it was begun before."""
        values = (key, microseconds(at), way, newest)
        return await self._file.write(lambda connection: connection.execute(_BEGIN, values).rowcount == 1)

    async def accepted(self, key: str, job_id: str) -> None:
        """Ductile has made this job of the call: durable on return."""
        await self._file.write(lambda connection: connection.execute(_ACCEPT, (job_id, key)).rowcount)

    async def find(self, key: str) -> Receipt | None:
        """What is known of the call."""
        # By the writer, because what was dropped soon may not be written yet.
        row = await self._file.write(lambda connection: connection.execute(_FIND, (key,)).fetchone())
        return Receipt(instant(row[0]), *row[1:]) if row else None

    async def drop(self, key: str) -> None:
        """The call was never sent: durable on return."""
        await self._file.write(lambda connection: connection.execute(_DROP, (key,)).rowcount)

    def drop_soon(self, key: str) -> None:
        """The verdict is recorded elsewhere; a crash may leave the row, which then harms nobody."""
        self._file.later(lambda connection: connection.execute(_DROP, (key,)))


@contextlib.asynccontextmanager
async def open_receipts(folder: Path) -> AsyncIterator[SqliteReceipts]:
    """The receipts in an existing folder. Raises Misconfigured when their file cannot be used."""
    async with open_file(folder / FILE, files(__package__) / "receipts_sql") as file:
        yield SqliteReceipts(file)
