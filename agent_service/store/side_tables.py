"""The side tables of the run store on SQLite: the kill switch, the inbox, and shared limits."""

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any

from agent_service.admission.rate_limits import PastCall
from agent_service.admission.spending import Aside
from agent_service.run.changes import call_told
from agent_service.run.ports import Dismissal
from agent_service.store.rows import entry_of
from agent_service.store.sql.database import load_queries
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from schemas.status import Halt


class _Tables:
    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._sql = load_queries()


class SqliteHalts(_Tables):
    async def newest(self) -> Halt | None:
        rows = await self._database.read(self._sql["newest_halt"])
        return halt_of(rows[0]) if rows else None

    async def keep(self, halt: Halt) -> None:
        await self._database.write(lambda connection: connection.execute(self._sql["keep_halt"], halt_row(halt)))


def halt_of(row: Sequence[Any]) -> Halt:
    number, since, by, reason, until, until_by, over = row
    ended = instant(until) if until is not None else None
    told = {"by": by, "reason": reason, "until_by": until_by, "over": bool(over)}
    return Halt(number=number, since=instant(since), until=ended, **told)


def halt_row(halt: Halt) -> tuple[object, ...]:
    until = microseconds(halt.until) if halt.until else None
    return halt.number, microseconds(halt.since), halt.by, halt.reason, until, halt.until_by, halt.over


class SqliteInbox(_Tables):
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


LATE_PLACES = 30_000
"""Positions that are looked at, at most, for calls of late."""


class SqliteTaken(_Tables):
    def newest(self) -> int:
        ((position,),) = self._database.look_up(self._sql["newest"])
        return int(position)

    def spent(self, day: date) -> Mapping[str, tuple[float, int]]:
        rows = self._database.look_up(self._sql["spent"], (f"{day:%Y-%m-%d}",))
        return {caller: (usd, size) for caller, usd, size in rows}

    def open_runs(self) -> Mapping[str, int]:
        return dict(self._database.look_up(self._sql["open_runs"]))

    def set_aside(self) -> Mapping[str, Aside]:
        rows = self._database.look_up(self._sql["set_aside"])
        return {run_id: Aside(caller or "", usd) for run_id, caller, usd in rows}

    async def calls(self, since: datetime) -> Sequence[PastCall]:
        rows = await self._database.read(self._sql["calls"], (LATE_PLACES, microseconds(since)))
        entries = [entry_of(run_id, row) for run_id, *row in rows]
        return [(entry.at, entry.run_id, call) for entry in entries if (call := call_told(entry.decoded()))]
