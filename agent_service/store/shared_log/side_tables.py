"""What people decided about a shared store: that everything stands still, and which runs have left the inbox."""

from agent_service.run.ports import Dismissal
from agent_service.store.shared_log.facts import VERSION, HaltFact, SeenFact
from agent_service.store.shared_log.ports import Copy, Log
from agent_service.store.side_tables import SqliteHalts, SqliteInbox
from groundwork.nats.shared_log import Moved
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile
from schemas import subjects
from schemas.status import Halt

FASTER = "another agent has just stopped everything, or let it go on: look again"


class SharedHalts(SqliteHalts):
    def __init__(self, database: SqliteFile, log: Log, copy: Copy, me: str) -> None:
        super().__init__(database)
        self._log, self._copy, self._me = log, copy, me

    async def keep(self, halt: Halt) -> None:
        """As the port says; TryAgain also where it does not follow on what all know by now."""
        fact = await self._log.newest(subjects.STORED_HALT)
        if fact:
            await self._copy.wait(fact.seq)
        if not _follows(halt, await self.newest()):
            raise TryAgain(FASTER)
        said = HaltFact(v=VERSION, by=self._me, halt=halt)
        try:
            position = await self._log.append(subjects.STORED_HALT, said.encoded(), after=fact.seq if fact else 0)
        except Moved as error:
            raise TryAgain(FASTER) from error
        await self._copy.wait(position)


class SharedInbox(SqliteInbox):
    def __init__(self, database: SqliteFile, log: Log, copy: Copy) -> None:
        super().__init__(database)
        self._log, self._copy = log, copy

    async def dismiss(self, dismissal: Dismissal) -> Dismissal:
        said = SeenFact.of(dismissal, by="")
        position = await self._log.append(subjects.stored_seen(dismissal.run_id), said.encoded(), after=None)
        await self._copy.wait(position)
        return await self.dismissal(dismissal.run_id) or dismissal


def _follows(halt: Halt, known: Halt | None) -> bool:
    if known is None or halt.number != known.number:
        return known is None or halt.number > known.number
    same = (halt.since, halt.by, halt.reason) == (known.since, known.by, known.reason)
    return same and (halt.until is not None or known.until is None) and (halt.over or not known.over)
