"""Entries put into the log of a shared store: which of them won their place, also where no answer came."""

import contextlib

from agent_service.errors import VersionMoved
from agent_service.store.facts import EntryFact
from agent_service.store.sql.queries import load_queries
from agent_service.store.standing_on import Copy, Log
from groundwork.nats.shared_log import Moved
from groundwork.service.errors import TryAgain
from groundwork.sqlite.file import SqliteFile


class Appending:
    """For one process. It knows what it is about to store, and what of that its copy does not have yet."""

    def __init__(self, database: SqliteFile, log: Log, copy: Copy) -> None:
        self._database = database
        self._log = log
        self._copy = copy
        self._sql = load_queries()
        self._awaited: dict[tuple[str, int], str] = {}

    async def append(self, fact: EntryFact, after: int) -> None:
        """Returns once the fact is stored, and in the copy unless that has fallen behind. Raises VersionMoved where
        another has its place, TryAgain where that is not known."""
        key = fact.run_id, fact.seq
        self._awaited[key] = fact.hash
        try:
            await self._say(fact, after)
        except TryAgain:
            if self._awaited.pop(key, None) is not None:
                raise  # otherwise the copy has it: it is stored, whatever was answered
        except BaseException:
            self._awaited.pop(key, None)
            raise

    def expected(self, entry: EntryFact) -> bool:
        """Whether it is one that this process stores, which is in the copy now: true once, and not once it was told
        that it is not known whether the entry is stored."""
        if self._awaited.get((entry.run_id, entry.seq)) != entry.hash:
            return False
        del self._awaited[entry.run_id, entry.seq]
        return True

    async def _say(self, fact: EntryFact, after: int) -> None:
        try:
            position = await self._log.append(fact.subject, fact.encoded(), after=after)
        except Moved as error:
            if newest := await self._log.newest(fact.subject):
                await self._copy.wait(newest.seq)
            if not self._is_there(fact):
                raise VersionMoved(f"run {fact.run_id}: another agent was faster with entry {fact.seq}") from error
        else:
            with contextlib.suppress(TryAgain):
                await self._copy.wait(position)

    def _is_there(self, fact: EntryFact) -> bool:
        """Whether the entry was stored, though others may have moved the run on since."""
        written = self._database.look_up(self._sql["written"], (fact.run_id, fact.seq))
        return any(head.hex() == fact.hash and by == fact.by for _, head, by in written)
