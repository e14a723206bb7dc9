"""Which member has committed what, where several agents share a store."""

from collections.abc import Container, Sequence
from datetime import datetime

from agent_service.store.sql.queries import load_queries
from groundwork.sqlite.file import SqliteFile, microseconds

LATE_PLACES = 30_000
"""So far back is looked for what a member did of late, at most."""


class SqliteMembers:
    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._sql = load_queries()

    def entries_by(self, run_id: str, member: str) -> Container[int]:
        """The numbers of those entries of a run that the member committed, right now."""
        return {seq for (seq,) in self._database.look_up(self._sql["entries_by"], (run_id, member))}

    async def runs_moved_by(self, member: str, since: datetime) -> Sequence[str]:
        rows = await self._database.read(self._sql["runs_moved_by"], (LATE_PLACES, member, microseconds(since)))
        return list(dict.fromkeys(run_id for (run_id,) in rows))
