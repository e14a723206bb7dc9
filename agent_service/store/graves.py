"""Tombstones on SQLite: what is known of deleted runs."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from agent_service.core.waiting import Status
from agent_service.store.sql.queries import load_queries
from agent_service.tombstones import ArtifactsGone, Tombstone
from groundwork.sqlite.file import SqliteFile, instant, microseconds

AT_ONCE = 500


class SqliteGraves:
    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._sql = load_queries()

    def of(self, run_id: str) -> Tombstone | None:
        rows = self._database.look_up(self._sql["tombstone"], (run_id,))
        return tombstone_of(rows[0]) if rows else None

    def artifacts_of(self, run_id: str) -> ArtifactsGone | None:
        for at, rule in self._database.look_up(self._sql["artifacts_gone"], (run_id,)):
            return ArtifactsGone(run_id=run_id, gone_at=instant(at), rule=rule)
        return None

    async def every(self) -> AsyncIterator[Tombstone]:
        after = ""
        while rows := await self._database.read(self._sql["tombstones"], (after, AT_ONCE)):
            for row in rows:
                yield tombstone_of(row)
            after = rows[-1][0]


def tombstone_of(row: Sequence[Any]) -> Tombstone:
    run_id, wake_id, wake_digest, status, last, ended_at, at, rule = row
    return Tombstone(
        run_id=run_id,
        wake_id=wake_id,
        wake_digest=wake_digest,
        status=Status(status),
        last=last,
        ended_at=instant(ended_at),
        gone_at=instant(at),
        rule=rule,
    )


def row_of(stone: Tombstone) -> tuple[Any, ...]:
    instants = microseconds(stone.ended_at), microseconds(stone.gone_at)
    return stone.run_id, stone.wake_id, stone.wake_digest, stone.status.value, stone.last, *instants, stone.rule
