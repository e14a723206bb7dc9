"""Deletes runs of a shared store: chosen in the copy, and told to all as a fact.

    a fact with tombstones, which every copy applies ─▶ the log is purged of the runs ─▶ each process removes its files

After a crash the next pass finishes such a fact first. Runs that moved on, or have pending entries, stay.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from agent_service.archive.retention import Behind, Ended
from agent_service.store.retention import Intact, SqliteForgetting, behind_of, tombstone_of
from agent_service.store.shared_log.facts import VERSION, Buried, GoneFact
from agent_service.store.shared_log.ports import Copy, Log
from groundwork.nats.shared_log import Moved
from groundwork.sqlite.file import SqliteFile, microseconds
from schemas import subjects


class SharedForgetting(SqliteForgetting):
    """`database` is this process's copy. Of processes that delete at the same time, one does it for all."""

    def __init__(self, database: SqliteFile, intact: Intact, log: Log, copy: Copy) -> None:
        super().__init__(database, intact)
        self._log, self._copy = log, copy
        self._removed = 0
        """The position of the fact of which all is removed from the log."""

    async def forget(self, runs: Sequence[Ended], rule: str, now: datetime) -> Sequence[Behind]:
        buried = [one for run in runs if await self._intact(run.run_id) for one in self._going(run, rule, now)]
        versions = {run.run_id: run.version for run in runs}
        gone = {one.run_id: (versions[one.run_id], one.wake_id) for one in buried}
        fact = GoneFact(v=VERSION, by="", runs=gone, tombstones=tuple(buried))
        if not await self._say(fact):
            return []
        return [behind_of(one.run_id, one.artifacts) for one in buried if not self._is_there(one.run_id)]

    async def forget_artifacts(self, runs: Sequence[Ended], rule: str, now: datetime) -> Sequence[Behind]:
        of = {run.run_id: run.version for run in runs}
        if not await self._say(GoneFact(v=VERSION, by="", runs={}, artifacts=of, rule=rule, at=microseconds(now))):
            return []
        return [one for one in await self.behind(len(of)) if one.run_id in of and not one.folder]

    async def give_back(self) -> bool:
        await self._remove_what_is_left()
        return await super().give_back()

    def _going(self, run: Ended, rule: str, now: datetime) -> Iterable[Buried]:
        for *told, artifacts in self._database.look_up(self._sql["going"], (run.run_id, run.version)):
            yield Buried.of(tombstone_of((*told, microseconds(now), rule)), artifacts)

    async def _say(self, fact: GoneFact) -> bool:
        """Appends and applies the fact; False where another process did. Raises TryAgain."""
        if not (fact.runs or fact.artifacts):
            return False
        after = await self._remove_what_is_left()
        try:
            position = await self._log.append(subjects.STORED_GONE, fact.encoded(), after=after)
        except Moved:
            return False
        await self._copy.wait(position)
        await self._remove(fact, position)
        return True

    async def _remove_what_is_left(self) -> int:
        """Finishes the newest deletion; returns its position, or 0."""
        last = await self._log.newest(subjects.STORED_GONE)
        if last and last.seq != self._removed:
            await self._copy.wait(last.seq)
            await self._remove(GoneFact.model_validate_json(last.body), last.seq)
        return last.seq if last else 0

    def _is_there(self, run_id: str) -> bool:
        return bool(self._database.look_up(self._sql["version"], (run_id,)))

    async def _remove(self, fact: GoneFact, position: int) -> None:
        """Purges deleted runs from the log up to their fact; a later wake of the same id stays."""
        for run_id, (_, wake_id) in fact.runs.items():
            if not self._is_there(run_id):
                await self._log.purge(subjects.stored_run(run_id))
                await self._log.purge(subjects.stored_seen(run_id))
                await self._log.purge(subjects.stored_wake(wake_id), before=position)
        self._removed = position
