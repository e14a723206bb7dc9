"""What waits for a person, on SQLite: the runs that do, and which of them somebody has dismissed."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from agent_service.ports import Dismissal
from agent_service.store.sql.queries import load_queries
from groundwork.sqlite.file import SqliteFile, instant, microseconds


class SqliteInbox:
    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._sql = load_queries()

    async def runs(self, limit: int) -> Sequence[tuple[str, datetime]]:
        rows = await self._database.read(self._sql["for_people"], (limit,))
        return [(run_id, instant(touched_at)) for run_id, touched_at in rows]

    async def count(self) -> int:
        ((runs,),) = await self._database.read(self._sql["count_for_people"])
        return int(runs)

    async def dismiss(self, dismissal: Dismissal) -> Dismissal:
        return await self._database.write(partial(self._dismiss, dismissal))

    async def dismissal(self, run_id: str) -> Dismissal | None:
        rows = await self._database.read(self._sql["dismissal"], (run_id,))
        return _dismissal(run_id, rows[0]) if rows else None

    def _dismiss(self, asked: Dismissal, connection: sqlite3.Connection) -> Dismissal:
        values = asked.run_id, asked.version, asked.by, microseconds(asked.at)
        connection.execute(self._sql["dismiss"], values)
        return _dismissal(asked.run_id, connection.execute(self._sql["dismissal"], (asked.run_id,)).fetchone())


def _dismissal(run_id: str, row: tuple[Any, ...]) -> Dismissal:
    version, by, at = row
    return Dismissal(run_id=run_id, version=version, by=by, at=instant(at))
