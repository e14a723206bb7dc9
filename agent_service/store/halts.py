"""When everything was stopped, and by whom, on SQLite."""

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any

from agent_service.store.sql.queries import load_queries
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from schemas.halt import Halt


class SqliteHalts:
    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._sql = load_queries()

    async def newest(self) -> Halt | None:
        rows = await self._database.read(self._sql["newest_halt"])
        return halt_of(rows[0]) if rows else None

    async def keep(self, halt: Halt) -> None:
        await self._database.write(partial(self._keep, halt))

    def _keep(self, halt: Halt, connection: sqlite3.Connection) -> None:
        connection.execute(self._sql["keep_halt"], halt_row(halt))


def halt_of(row: Sequence[Any]) -> Halt:
    number, since, by, reason, until, until_by, over = row
    ended = instant(until) if until is not None else None
    told = {"by": by, "reason": reason, "until_by": until_by, "over": bool(over)}
    return Halt(number=number, since=instant(since), until=ended, **told)


def halt_row(halt: Halt) -> tuple[object, ...]:
    until = microseconds(halt.until) if halt.until else None
    return halt.number, microseconds(halt.since), halt.by, halt.reason, until, halt.until_by, halt.over
