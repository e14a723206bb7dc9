"""What of the limits that all runs share is taken, on SQLite, right now."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime

from agent_service.journal import Entry
from agent_service.spending import Aside
from agent_service.store.rows import entry_of
from agent_service.store.sql.queries import load_queries
from groundwork.sqlite.file import SqliteFile, microseconds

LATE_PLACES = 30_000
"""So far back is looked for the calls of a minute, at most."""


class SqliteTaken:
    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._sql = load_queries()

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

    async def calls(self, since: datetime) -> Sequence[Entry]:
        rows = await self._database.read(self._sql["calls"], (LATE_PLACES, microseconds(since)))
        return [entry_of(run_id, row) for run_id, *row in rows]
