"""What the gateway remembers of calls that it handed to a Ductile: columns of the ledger, and the jobs that outlived
their calls. Fills the ports Receipts and Overdue; every method raises TryAgain or Broken.
"""

from datetime import datetime

from ductile_gateway.calls.call import Receipt
from ductile_gateway.ductile.watch import Job, OverdueJob
from groundwork.sqlite.file import SqliteFile, instant, microseconds

_FIND = "SELECT begun_at, job_id, way, newest FROM calls WHERE key = ? AND begun_at IS NOT NULL"
_ACCEPT = "UPDATE calls SET job_id = ? WHERE key = ? AND begun_at IS NOT NULL"
_DROP = "UPDATE calls SET begun_at = NULL, job_id = NULL, way = NULL, newest = NULL WHERE key = ? AND answer IS NULL"
_ADD_OVERDUE = "INSERT INTO overdue (key, job_id, pipeline, since) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_ALL_OVERDUE = "SELECT key, job_id, pipeline, since FROM overdue ORDER BY since"
_DROP_OVERDUE = "DELETE FROM overdue WHERE key = ?"


class SqliteReceipts:
    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def find(self, key: str) -> Receipt | None:
        # By the writer, because what was dropped soon may not be written yet.
        row = await self._file.write(lambda connection: connection.execute(_FIND, (key,)).fetchone())
        return Receipt(instant(row[0]), *row[1:]) if row else None

    async def accepted(self, key: str, job_id: str) -> None:
        await self._file.write(lambda connection: connection.execute(_ACCEPT, (job_id, key)).rowcount)

    async def drop(self, key: str) -> None:
        await self._file.write(lambda connection: connection.execute(_DROP, (key,)).rowcount)

    def drop_soon(self, key: str) -> None:
        self._file.later(lambda connection: connection.execute(_DROP, (key,)))


class SqliteOverdue:
    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    async def add(self, key: str, job: Job, at: datetime) -> None:
        values = (key, job.job_id, job.pipeline, microseconds(at))
        await self._file.write(lambda connection: connection.execute(_ADD_OVERDUE, values).rowcount)

    def all(self) -> list[OverdueJob]:
        rows = self._file.look_up(_ALL_OVERDUE, ())
        return [OverdueJob(key, Job(job_id, bool(flow)), instant(since)) for key, job_id, flow, since in rows]

    async def drop(self, key: str) -> None:
        await self._file.write(lambda connection: connection.execute(_DROP_OVERDUE, (key,)).rowcount)
