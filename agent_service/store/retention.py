"""Deletes runs on SQLite: which may go, their tombstones, and what of them lies elsewhere still.

    expired runs ─▶ one transaction: a tombstone in the place of each ─▶ folder and artifacts removed ─▶ noted

After a crash the next pass removes the files of runs that are gone. A run that cannot be read stays.
"""

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from itertools import starmap
from typing import Any, TypeVar

from agent_service.archive.retention import ArtifactsGone, Behind, Ended, Over, Place, Tombstone
from agent_service.core.waiting import Status
from agent_service.store.sql.database import load_queries
from groundwork.sqlite.errors import Full
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from schemas.values import replace

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


OF_A_RUN = ("items", "briefs", "dismissals", "artifacts_gone", "journal", "runs")
"""The tables that hold something of a run, each before those that it refers to."""

T = TypeVar("T")
Intact = Callable[[str], Awaitable[bool]]


class SqliteForgetting:
    """Fills the port Forgetting. `intact`: whether a run can be read. A full or locked disk raises TryAgain."""

    def __init__(self, database: SqliteFile, intact: Intact) -> None:
        self._database = database
        self._intact = intact
        self._sql = load_queries()

    def making_room(self) -> AbstractContextManager[None]:
        return self._database.making_room()

    async def ended(self, over: Over, after: Place, limit: int) -> Sequence[Ended]:
        statuses = json.dumps([status.value for status in over.statuses])
        since, run_id = (microseconds(after[0]), after[1]) if after else (0, "")
        before, escalated_before = microseconds(over.before), microseconds(over.escalated_before)
        values = statuses, before, since, run_id, int(over.with_artifacts), limit, escalated_before
        rows = await self._database.read(self._sql["ended"], values)
        return [
            Ended(run_id=run_id, status=Status(status), version=version, at=instant(touched_at))
            for run_id, status, version, touched_at in rows
        ]

    async def forget(self, runs: Sequence[Ended], rule: str, now: datetime) -> Sequence[Behind]:
        intact = [run for run in runs if await self._intact(run.run_id)]
        if not intact:
            return []
        try:
            return await self._write(partial(self._forget, intact, rule, now))
        except Full:
            if len(intact) == 1:
                raise
            return [one for run in intact for one in await self._write(partial(self._forget, [run], rule, now))]

    async def forget_artifacts(self, runs: Sequence[Ended], rule: str, now: datetime) -> Sequence[Behind]:
        return await self._write(partial(self._forget_artifacts, runs, rule, now))

    async def behind(self, limit: int) -> Sequence[Behind]:
        runs = await self._database.read(self._sql["behind"], (limit,))
        artifacts = await self._database.read(self._sql["artifacts_behind"], (limit,))
        return [*starmap(behind_of, runs), *(replace(behind_of(*row), folder=False) for row in artifacts)]

    async def cleared(self, removed: Sequence[Behind]) -> None:
        await self._write(partial(self._cleared, removed))

    async def total(self) -> int:
        return await self._database.used()

    async def sizes(self, run_ids: Sequence[str]) -> Mapping[str, int]:
        return dict(await self._database.read(self._sql["sizes"], (json.dumps(run_ids),)))

    async def give_back(self) -> bool:
        return await self._database.shrink()

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._database.write(work, makes_room=True)

    def _forget(
        self, runs: Sequence[Ended], rule: str, now: datetime, connection: sqlite3.Connection
    ) -> Sequence[Behind]:
        gone = []
        for run in runs:
            for *told, artifacts in connection.execute(self._sql["going"], (run.run_id, run.version)).fetchall():
                connection.execute(self._sql["bury"], (*told, microseconds(now), rule, artifacts))
                for table in OF_A_RUN:
                    connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run.run_id,))  # noqa: S608 - ours
                gone.append(behind_of(run.run_id, artifacts))
        return gone

    def _forget_artifacts(
        self, runs: Sequence[Ended], rule: str, now: datetime, connection: sqlite3.Connection
    ) -> Sequence[Behind]:
        gone = []
        for run in runs:
            for (artifacts,) in connection.execute(self._sql["artifacts_of"], (run.run_id, run.version)).fetchall():
                values = run.run_id, microseconds(now), rule, artifacts
                if connection.execute(self._sql["artifacts_go"], values).rowcount:
                    gone.append(replace(behind_of(run.run_id, artifacts), folder=False))
        return gone

    def _cleared(self, removed: Sequence[Behind], connection: sqlite3.Connection) -> None:
        for one in removed:
            connection.execute(self._sql["cleared" if one.folder else "artifacts_cleared"], (one.run_id,))


def behind_of(run_id: str, artifacts: str) -> Behind:
    return Behind(run_id=run_id, artifacts=tuple(filter(None, map(str, json.loads(artifacts)))))
