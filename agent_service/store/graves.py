"""Tombstones on SQLite: what is known of runs that are kept no longer."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from agent_service.core.waiting import Status
from agent_service.store.seals import Seals
from agent_service.store.sql.queries import load_queries
from agent_service.tombstones import ArtifactsGone, Tombstone
from groundwork.sqlite.file import SqliteFile, instant, microseconds

AT_ONCE = 500


class SqliteGraves:
    """Of an open database. A locked disk raises TryAgain, a broken one Broken."""

    def __init__(self, database: SqliteFile) -> None:
        self._database = database
        self._sql = load_queries()

    def of(self, run_id: str) -> Tombstone | None:
        """Right now."""
        rows = self._database.look_up(self._sql["tombstone"], (run_id,))
        return tombstone_of(rows[0]) if rows else None

    def artifacts_of(self, run_id: str) -> ArtifactsGone | None:
        """When the artifacts of a run went that is there, and by which rule."""
        for at, rule in self._database.look_up(self._sql["artifacts_gone"], (run_id,)):
            return ArtifactsGone(run_id=run_id, gone_at=instant(at), rule=rule)
        return None

    def spanning(self, position: int, seals: Seals) -> Iterator[Tombstone]:
        """Of runs that may have had the entry at a position of the journal, as far as they are as they were sealed."""
        rows = self._database.look_up(self._sql["spanning"], (position,))
        return filter(seals.fits, map(tombstone_of, rows))

    async def every(self) -> AsyncIterator[Tombstone]:
        """In the order of their runs."""
        after = ""
        while rows := await self._database.read(self._sql["tombstones"], (after, AT_ONCE)):
            for row in rows:
                yield tombstone_of(row)
            after = rows[-1][0]


def tombstone_of(row: Sequence[Any]) -> Tombstone:
    run_id, wake_id, wake_digest, status, version, head, first, last, ended_at, at, rule, seal = row
    return Tombstone(
        run_id=run_id,
        wake_id=wake_id,
        wake_digest=wake_digest,
        status=Status(status),
        version=version,
        head=head.hex(),
        first=first,
        last=last,
        ended_at=instant(ended_at),
        gone_at=instant(at),
        rule=rule,
        seal=seal,
    )


def row_of(tombstone: Tombstone) -> tuple[Any, ...]:
    return (
        tombstone.run_id,
        tombstone.wake_id,
        tombstone.wake_digest,
        tombstone.status.value,
        tombstone.version,
        bytes.fromhex(tombstone.head),
        tombstone.first,
        tombstone.last,
        microseconds(tombstone.ended_at),
        microseconds(tombstone.gone_at),
        tombstone.rule,
        tombstone.seal,
    )
