"""Entries put into the log of a shared store: which of them won their place, also where no answer came."""

import asyncio
import contextlib

from agent_service.errors import VersionMoved
from agent_service.store.facts import EntryFact
from agent_service.store.standing_on import Copy, Log
from groundwork.nats.shared_log import Moved
from groundwork.service.errors import TryAgain


class Appending:
    """For one process. Its copy of the log is as good as an answer."""

    def __init__(self, log: Log, copy: Copy) -> None:
        self._log = log
        self._copy = copy
        self._awaited: dict[tuple[str, int], tuple[str, asyncio.Timeout | None]] = {}
        """The hash of each entry that the copy is to get from here, and what ends the wait for an answer, if any is."""

    async def append(self, fact: EntryFact, after: int) -> None:
        """Returns once the fact is stored, and in the copy unless that has fallen behind. Raises VersionMoved where
        another has its place, TryAgain where that is not known."""
        key, arrived = (fact.run_id, fact.seq), asyncio.timeout(None)
        try:
            async with arrived:
                self._awaited[key] = fact.hash, arrived
                await self._say(fact, after)
        except TimeoutError:
            if not arrived.expired():
                raise
            # the copy has it: it is stored, whatever is answered
        except (TryAgain, VersionMoved):
            if self._awaited.pop(key, None):  # otherwise the copy has it meanwhile
                raise
        except BaseException:
            self._awaited.pop(key, None)
            raise
        else:
            if key in self._awaited:  # the copy has fallen behind
                self._awaited[key] = fact.hash, None

    def expected(self, entry: EntryFact) -> bool:
        """Whether it is one that was stored from here, or is waited for, and the copy has now."""
        found, arrived = self._awaited.get((entry.run_id, entry.seq), ("", None))
        if found != entry.hash:
            return False
        del self._awaited[entry.run_id, entry.seq]
        if arrived:
            arrived.reschedule(0)
        return True

    async def _say(self, fact: EntryFact, after: int) -> None:
        try:
            position = await self._log.append(fact.subject, fact.encoded(), after=after)
        except Moved as error:
            if newest := await self._log.newest(fact.subject):
                await self._copy.wait(newest.seq)  # ours may be below it
            raise VersionMoved(f"run {fact.run_id}: another agent was faster with entry {fact.seq}") from error
        else:
            with contextlib.suppress(TryAgain):
                await self._copy.wait(position)
