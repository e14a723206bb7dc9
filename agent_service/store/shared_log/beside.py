"""What is said beside runs of a shared store: stops of all, dismissals, and what is kept no longer.

    expired runs ─▶ a tombstone each, which every index applies ─▶ each process removes its files ─▶ messages purged

After a crash the next pass of any process removes what is left, of files and of messages.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from agent_service.admission.rate_limits import PastCall
from agent_service.archive.retention import Behind, Ended
from agent_service.core.waiting import FINAL
from agent_service.run.ports import Dismissal
from agent_service.store.retention import SqliteForgetting, behind_of, tombstone_of
from agent_service.store.shared_log.facts import LEVEL, BareSaid, GoneSaid, HaltSaid, RunRow, Said, SeenSaid, said_in
from agent_service.store.shared_log.journals import Journal
from agent_service.store.side_tables import SqliteHalts, SqliteInbox, SqliteTaken
from groundwork.nats.shared_log import Moved, SharedLog
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile, microseconds
from groundwork.sqlite.replica import Replica
from schemas import subjects
from schemas.status import Halt

FASTER = "another agent has just stopped everything, or let it go on: look again"

Journals = Callable[[str], Awaitable[Journal | None]]


class SharedHalts(SqliteHalts):
    def __init__(self, database: SqliteFile, log: SharedLog, index: Replica, me: str) -> None:
        super().__init__(database)
        self._log, self._index, self._me = log, index, me

    async def keep(self, halt: Halt) -> None:
        """As the port says; TryAgain also where it does not follow on what all know by now."""
        fact = await self._log.newest(subjects.STORED_HALT)
        if fact:
            await self._index.wait(fact.seq)
        if not _follows(halt, await self.newest()):
            raise TryAgain(FASTER)
        said = HaltSaid(v=LEVEL, by=self._me, halt=halt)
        if not await _stored(self._log, self._index, subjects.STORED_HALT, said, after=fact.seq if fact else 0):
            raise TryAgain(FASTER)


class SharedInbox(SqliteInbox):
    def __init__(self, database: SqliteFile, log: SharedLog, index: Replica) -> None:
        super().__init__(database)
        self._log, self._index = log, index

    async def dismiss(self, dismissal: Dismissal) -> Dismissal:
        run_id, at = dismissal.run_id, microseconds(dismissal.at)
        said = SeenSaid(v=LEVEL, run_id=run_id, version=dismissal.version, person=dismissal.by, at=at)
        await _stored(self._log, self._index, subjects.stored_seen(run_id), said, after=None)
        return await self.dismissal(run_id) or dismissal


class SharedForgetting(SqliteForgetting):
    """Of processes that delete a run at the same time, one does it for all. A run with an open child stays, which its
    messages alone tell."""

    def __init__(self, database: SqliteFile, journal: Journals, log: SharedLog, index: Replica) -> None:
        super().__init__(database, _whatever)
        self._journal, self._log, self._index = journal, log, index

    async def forget(self, runs: Sequence[Ended], rule: str, now: datetime) -> Sequence[Behind]:
        return [gone for run in runs for gone in await self._forget_one(run, rule, now)]

    async def forget_artifacts(self, runs: Sequence[Ended], rule: str, now: datetime) -> Sequence[Behind]:
        for run in runs:
            if journal := await self._read(run):
                about: dict[str, Any] = {"artifacts": tuple(journal.artifacts), "rule": rule, "at": microseconds(now)}
                said = BareSaid(v=LEVEL, run_id=run.run_id, version=run.version, **about)
                await _stored(self._log, self._index, subjects.stored_bare(run.run_id), said, after=0)
        told = {run.run_id for run in runs}
        return [one for one in await self.behind(len(told)) if one.run_id in told and not one.folder]

    async def cleared(self, removed: Sequence[Behind]) -> None:
        for one in removed:
            for stone in self._database.look_up(self._sql["tombstone"], (one.run_id,)) if one.folder else ():
                wake_id = stone[1]
                await self._log.purge(subjects.stored_run(wake_id, one.run_id))
                await self._log.purge(subjects.stored_seen(one.run_id))
                await self._log.purge(subjects.stored_bare(one.run_id))
        await super().cleared(removed)

    async def total(self) -> int:
        return int((await self._log.extent()).size)

    async def sizes(self, run_ids: Sequence[str]) -> Mapping[str, int]:
        return dict(await self._database.read(self._sql["indexed_sizes"], (json.dumps(run_ids),)))

    async def _forget_one(self, run: Ended, rule: str, now: datetime) -> Sequence[Behind]:
        journal = await self._read(run)
        if journal is None or self._has_open_child(journal):
            return []
        for *told, _ in self._database.look_up(self._sql["going"], (run.run_id, run.version)):
            stone, artifacts = tombstone_of((*told, microseconds(now), rule)), tuple(journal.artifacts)
            said = GoneSaid.of(stone, run.version, artifacts)
            is_told = await _stored(self._log, self._index, subjects.stored_gone(run.run_id), said, after=0)
            if is_told and not self._database.look_up(self._sql["version"], (run.run_id,)):
                return [behind_of(run.run_id, json.dumps(artifacts))]
        return []

    async def _read(self, run: Ended) -> Journal | None:
        """None for a run that has moved on, or cannot be read."""
        try:
            journal = await self._journal(run.run_id)
            return journal if journal and journal.run().state.version == run.version else None
        except ValueError:
            return None

    def _has_open_child(self, journal: Journal) -> bool:
        children = [child.run_id for child in journal.run().state.children]
        found = [row for child in children for row in self._database.look_up(self._sql["indexed"], (child,))]
        return any(status not in FINAL for _, status, *_ in found)


LATE_FACTS = 2000
"""That are looked at, at most, for calls of late."""


class SharedTaken(SqliteTaken):
    def __init__(self, database: SqliteFile, log: SharedLog) -> None:
        super().__init__(database)
        self._log = log

    async def calls(self, since: datetime) -> Sequence[PastCall]:
        late = max(0, await self._log.end() - LATE_FACTS)
        rows = [(fact, said_in(RunRow, fact)) for fact in await self._log.read(subjects.STORED_RUNS, late)]
        return [
            (fact.at, fact.subject.rpartition(".")[2], row.call)
            for fact, row in rows
            if row and row.call and fact.at >= since
        ]


async def _stored(log: SharedLog, index: Replica, subject: str, said: Said, *, after: int | None) -> bool:
    """Once it is in the index, too; False where another process was faster."""
    try:
        position = await log.append(subject, b"", after=after, headers=said.header)
    except Moved:
        return False
    await index.wait(position)
    return True


async def _whatever(_: str) -> bool:
    return True


def _follows(halt: Halt, known: Halt | None) -> bool:
    if known is None or halt.number != known.number:
        return known is None or halt.number > known.number
    same = (halt.since, halt.by, halt.reason) == (known.since, known.by, known.reason)
    return same and (halt.until is not None or known.until is None) and (halt.over or not known.over)
