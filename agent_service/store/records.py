"""Records beside the journals: halts, dismissals and tombstones.

    expired run ─▶ tombstone ─▶ each process removes the run's files ─▶ marked as cleared, messages purged

The next pass of any process removes what a crash left. A run that cannot be read is not deleted.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

from agent_service.archive.retention import ArtifactTombstone, EndedRun, ExpiryFilter, Leftovers
from agent_service.core.waiting import Status
from agent_service.errors import Damaged, NewerVersion
from agent_service.run.ports import Dismissal
from agent_service.store.database import load_queries
from agent_service.store.messages import (
    LEVEL,
    ArtifactTombstoneRecord,
    DismissalRecord,
    HaltRecord,
    SideRecord,
    TombstoneRecord,
)
from agent_service.store.rows import halt_of, tombstone_of
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import instant, microseconds
from schemas import subjects
from schemas.status import Halt

if TYPE_CHECKING:  # it has these records
    from agent_service.store.runs import RunStore

FASTER = "another agent has just stopped everything, or let it go on: look again"


class _Records:
    def __init__(self, store: "RunStore") -> None:
        self._store = store
        self._database = store.database
        self._sql = load_queries()


class HaltRecords(_Records):
    async def newest(self) -> Halt | None:
        rows = await self._database.read(self._sql["newest_halt"])
        return halt_of(rows[0]) if rows else None

    async def keep(self, halt: Halt) -> None:
        """Replaces the record of its number. Raises TryAgain, also for a halt that does not follow the newest one."""
        position = await self._store.newest_position(subjects.STORED_HALT)
        record = HaltRecord(v=LEVEL, by=self._store.me, halt=halt)
        if not _follows(halt, await self.newest()) or not await self._store.put(record, after=position):
            raise TryAgain(FASTER)


class InboxRecords(_Records):
    async def runs(self, limit: int) -> Sequence[tuple[str, datetime]]:
        """Paused runs, and escalated ones without a dismissal, each with its newest entry's instant. Newest first."""
        rows = await self._database.read(self._sql["for_people"], (limit,))
        return [(run_id, instant(touched_at)) for run_id, touched_at in rows]

    async def count(self) -> int:
        ((runs,),) = await self._database.read(self._sql["count_for_people"])
        return int(runs)

    async def dismiss(self, dismissal: Dismissal) -> Dismissal:
        """Returns the dismissal in force: the earliest of the run's version."""
        await self._store.put(DismissalRecord(v=LEVEL, dismissal=dismissal), after=None)
        return await self.dismissal(dismissal.run_id) or dismissal

    async def dismissal(self, run_id: str) -> Dismissal | None:
        for version, by, at in await self._database.read(self._sql["dismissal"], (run_id,)):
            return Dismissal(run_id=run_id, version=version, by=by, at=instant(at))
        return None


class RetentionRecords(_Records):
    """Tombstones. One of several processes that delete a run at the same time succeeds."""

    async def expired(self, wanted: ExpiryFilter, after: EndedRun | None, limit: int) -> Sequence[EndedRun]:
        """Oldest first, from behind `after` on."""
        statuses = json.dumps([status.value for status in wanted.statuses])
        since, run_id = (microseconds(after.at), after.run_id) if after else (0, "")
        before, escalated_before = microseconds(wanted.before), microseconds(wanted.escalated_before)
        values = statuses, before, since, run_id, int(wanted.with_artifacts), limit, escalated_before
        rows = await self._database.read(self._sql["expired"], values)
        return [
            EndedRun(run_id=run_id, status=Status(status), version=version, at=instant(touched_at))
            for run_id, status, version, touched_at in rows
        ]

    async def delete(
        self, runs: Sequence[EndedRun], rule: str, now: datetime, *, artifacts_only: bool = False
    ) -> Sequence[Leftovers]:
        """Leaves out runs that have a newer entry, or cannot be read."""
        records = list[SideRecord]()
        for run in runs:
            artifacts = await self._artifacts(run)
            if artifacts is not None and artifacts_only:
                gone = ArtifactTombstone(run_id=run.run_id, gone_at=now, rule=rule)
                records.append(ArtifactTombstoneRecord(v=LEVEL, gone=gone, artifacts=artifacts))
            elif artifacts is not None:
                for row in self._database.look_up(self._sql["going"], (run.run_id, run.version)):
                    stone = tombstone_of((*row, microseconds(now), rule))
                    records.append(TombstoneRecord(v=LEVEL, stone=stone, version=run.version, artifacts=artifacts))
        return [
            Leftovers(run_id=record.run_id, artifacts=record.artifacts, folder=not artifacts_only)
            for record in await self._store.put(*records, after=0)
            if isinstance(record, ArtifactTombstoneRecord)
            or (isinstance(record, TombstoneRecord) and not self._store.version(record.run_id))
        ]

    async def leftovers(self, limit: int) -> Sequence[Leftovers]:
        found = list[Leftovers]()
        for statement, folder in (("behind", True), ("artifacts_behind", False)):
            for run_id, artifacts in await self._database.read(self._sql[statement], (limit,)):
                found.append(Leftovers(run_id=run_id, artifacts=tuple(json.loads(artifacts)), folder=folder))
        return found

    async def mark_cleared(self, removed: Sequence[Leftovers]) -> None:
        for one in removed:
            for _, wake_id, *_ in self._database.look_up(self._sql["tombstone"], (one.run_id,)) if one.folder else ():
                await self._store.purge(wake_id, one.run_id)
        done = [(self._sql["cleared" if one.folder else "artifacts_cleared"], (one.run_id,)) for one in removed]
        await self._database.write(lambda connection: [connection.execute(*one) for one in done], makes_room=True)

    async def sizes(self, run_ids: Sequence[str]) -> Mapping[str, int]:
        """Bytes by run."""
        return dict(await self._database.read(self._sql["sizes"], (json.dumps(run_ids),)))

    async def _artifacts(self, run: EndedRun) -> tuple[str, ...] | None:
        """None for a run that has a newer entry, or cannot be read."""
        with suppress(Damaged, NewerVersion):
            loaded = await self._store.load(run.run_id)
            return loaded.state.artifacts if loaded and loaded.state.version == run.version else None
        return None


def _follows(halt: Halt, known: Halt | None) -> bool:
    if known is None or halt.number > known.number:
        return True
    is_same = (halt.number, halt.since, halt.by, halt.reason) == (known.number, known.since, known.by, known.reason)
    return is_same and progress_of(halt) >= progress_of(known)


def progress_of(halt: Halt) -> tuple[int, bool, bool]:
    return halt.number, halt.until is not None, halt.over
