"""What a store keeps beside runs: stops of all, what persons have seen to, what limits count, and what is deleted.

    expired runs ─▶ a tombstone each ─▶ each process removes its files ─▶ noted, and the messages of a log purged

After a crash the next pass of any process removes what is left. A run that cannot be read stays.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import date, datetime
from typing import Protocol

from agent_service.archive.retention import ArtifactTombstone, EndedRun, ExpiryCursor, ExpiryFilter, Leftovers
from agent_service.core.waiting import Status
from agent_service.errors import Damaged
from agent_service.run.changes import RecordedCall, ReservedFunds
from agent_service.run.journal import Run
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
from groundwork.sqlite.file import SqliteFile, instant, microseconds
from schemas import subjects
from schemas.status import Halt

FASTER = "another agent has just stopped everything, or let it go on: look again"


class Carrier(Protocol):
    """A store, as far as this needs it. All methods raise TryAgain."""

    database: SqliteFile
    me: str

    async def place_of(self, subject: str) -> int:
        """Of the newest word of a subject, which is in the database then, too; 0 without a log."""

    async def say(self, *words: SideRecord, after: int | None) -> Sequence[SideRecord]:
        """Those that are durable and in the database then. `after`: the newest place of its subject; None for any."""

    async def load(self, run_id: str) -> Run | None: ...
    def version(self, run_id: str) -> int: ...
    def newest(self) -> int: ...
    async def calls(self, since: datetime) -> Sequence[RecordedCall]: ...

    async def total(self) -> int:
        """Bytes that all takes."""

    async def purge(self, wake_id: str, run_id: str) -> None:
        """Removes what a log has of a run."""


class _Beside:
    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._database = carrier.database
        self._sql = load_queries()


class HaltRecords(_Beside):
    async def newest(self) -> Halt | None:
        rows = await self._database.read(self._sql["newest_halt"])
        return halt_of(rows[0]) if rows else None

    async def keep(self, halt: Halt) -> None:
        """Replaces the record of its number. Raises TryAgain, also where it does not follow on what all know by now."""
        place = await self._carrier.place_of(subjects.STORED_HALT)
        said = HaltRecord(v=LEVEL, by=self._carrier.me, halt=halt)
        if not _follows(halt, await self.newest()) or not await self._carrier.say(said, after=place):
            raise TryAgain(FASTER)


class InboxRecords(_Beside):
    async def runs(self, limit: int) -> Sequence[tuple[str, datetime]]:
        """Paused runs, and escalated ones without a dismissal, with their newest entries' instants. Newest first."""
        rows = await self._database.read(self._sql["for_people"], (limit,))
        return [(run_id, instant(touched_at)) for run_id, touched_at in rows]

    async def count(self) -> int:
        ((runs,),) = await self._database.read(self._sql["count_for_people"])
        return int(runs)

    async def dismiss(self, dismissal: Dismissal) -> Dismissal:
        """Returns the one in force, which is the earliest of its version."""
        await self._carrier.say(DismissalRecord(v=LEVEL, dismissal=dismissal), after=None)
        return await self.dismissal(dismissal.run_id) or dismissal

    async def dismissal(self, run_id: str) -> Dismissal | None:
        for version, by, at in await self._database.read(self._sql["dismissal"], (run_id,)):
            return Dismissal(run_id=run_id, version=version, by=by, at=instant(at))
        return None


class UsageRecords(_Beside):
    def newest(self) -> int:
        return self._carrier.newest()

    def spent(self, day: date) -> Mapping[str, tuple[float, int]]:
        rows = self._database.look_up(self._sql["spent"], (f"{day:%Y-%m-%d}",))
        return {caller: (usd, size) for caller, usd, size in rows}

    def open_runs(self) -> Mapping[str, int]:
        return dict(self._database.look_up(self._sql["open_runs"]))

    def reserved(self) -> Mapping[str, ReservedFunds]:
        rows = self._database.look_up(self._sql["set_aside"])
        return {run_id: ReservedFunds(caller or "", usd) for run_id, caller, usd in rows}

    async def calls(self, since: datetime) -> Sequence[RecordedCall]:
        """What entries since then tell of model calls, in order."""
        return await self._carrier.calls(since)


class RetentionRecords(_Beside):
    """Of processes that delete a run at the same time, one does it for all."""

    def making_room(self) -> AbstractContextManager[None]:
        return self._database.making_room()

    async def expired(self, over: ExpiryFilter, after: ExpiryCursor, limit: int) -> Sequence[EndedRun]:
        statuses = json.dumps([status.value for status in over.statuses])
        since, run_id = (microseconds(after[0]), after[1]) if after else (0, "")
        before, escalated_before = microseconds(over.before), microseconds(over.escalated_before)
        values = statuses, before, since, run_id, int(over.with_artifacts), limit, escalated_before
        rows = await self._database.read(self._sql["expired"], values)
        return [
            EndedRun(run_id=run_id, status=Status(status), version=version, at=instant(touched_at))
            for run_id, status, version, touched_at in rows
        ]

    async def delete(self, runs: Sequence[EndedRun], rule: str, now: datetime) -> Sequence[Leftovers]:
        words = list[TombstoneRecord]()
        for run in runs:
            artifacts = await self._artifacts(run)
            for told in self._database.look_up(self._sql["going"], (run.run_id, run.version)):
                if artifacts is not None:
                    stone = tombstone_of((*told, microseconds(now), rule))
                    words.append(TombstoneRecord(v=LEVEL, stone=stone, version=run.version, artifacts=artifacts))
        said = [word for word in await self._carrier.say(*words, after=0) if isinstance(word, TombstoneRecord)]
        gone = [word for word in said if not self._carrier.version(word.stone.run_id)]  # one that moved on stays
        return [Leftovers(run_id=word.stone.run_id, artifacts=word.artifacts) for word in gone]

    async def delete_artifacts(self, runs: Sequence[EndedRun], rule: str, now: datetime) -> Sequence[Leftovers]:
        words = list[ArtifactTombstoneRecord]()
        for run in runs:
            if (artifacts := await self._artifacts(run)) is not None:
                gone = ArtifactTombstone(run_id=run.run_id, gone_at=now, rule=rule)
                words.append(ArtifactTombstoneRecord(v=LEVEL, gone=gone, artifacts=artifacts))
        said = [word for word in await self._carrier.say(*words, after=0) if isinstance(word, ArtifactTombstoneRecord)]
        return [Leftovers(run_id=word.gone.run_id, artifacts=word.artifacts, folder=False) for word in said]

    async def leftovers(self, limit: int) -> Sequence[Leftovers]:
        runs, bare = [await self._database.read(self._sql[name], (limit,)) for name in ("behind", "artifacts_behind")]
        left = [(row, folder) for rows, folder in ((runs, True), (bare, False)) for row in rows]
        return [
            Leftovers(run_id=of, artifacts=tuple(json.loads(artifacts)), folder=yes) for (of, artifacts), yes in left
        ]

    async def mark_cleared(self, removed: Sequence[Leftovers]) -> None:
        for one in removed:
            for _, wake_id, *_ in self._database.look_up(self._sql["tombstone"], (one.run_id,)) if one.folder else ():
                await self._carrier.purge(wake_id, one.run_id)
        done = [(self._sql["cleared" if one.folder else "artifacts_cleared"], (one.run_id,)) for one in removed]
        await self._database.write(lambda connection: [connection.execute(*one) for one in done], makes_room=True)

    async def total(self) -> int:
        return await self._carrier.total()

    async def sizes(self, run_ids: Sequence[str]) -> Mapping[str, int]:
        return dict(await self._database.read(self._sql["sizes"], (json.dumps(run_ids),)))

    async def shrink(self) -> bool:
        return await self._database.shrink()

    async def _artifacts(self, run: EndedRun) -> tuple[str, ...] | None:
        """None for a run that has moved on, or cannot be read."""
        with suppress(Damaged):
            loaded = await self._carrier.load(run.run_id)
            return loaded.state.artifacts if loaded and loaded.state.version == run.version else None
        return None


def _follows(halt: Halt, known: Halt | None) -> bool:
    if known is None or halt.number != known.number:
        return known is None or halt.number > known.number
    same = (halt.since, halt.by, halt.reason) == (known.since, known.by, known.reason)
    return same and (halt.until is not None or known.until is None) and (halt.over or not known.over)
