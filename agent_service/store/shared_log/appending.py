"""Appends entries to a shared log, and settles which won their place."""

import asyncio
import contextlib
from dataclasses import dataclass

from agent_service.errors import VersionMoved
from agent_service.store.shared_log.facts import EntryFact
from agent_service.store.shared_log.ports import Copy, Log
from groundwork.nats.shared_log import Moved
from groundwork.service.errors import TryAgain


@dataclass(slots=True, eq=False)
class Attempt:
    waiting: asyncio.Timeout
    arrived: bool = False
    over: bool = False


class Appending:
    def __init__(self, log: Log, copy: Copy) -> None:
        self._log = log
        self._copy = copy
        self._awaited: dict[tuple[str, int, str], list[Attempt]] = {}

    async def append(self, fact: EntryFact, after: int) -> None:
        """Returns once the fact is stored, and in the copy unless that fell behind. Raises VersionMoved, TryAgain."""
        attempt = Attempt(asyncio.timeout(None))
        self._awaited.setdefault(_name(fact), []).append(attempt)
        try:
            async with attempt.waiting:
                await self._say(fact, after)
        except (TimeoutError, TryAgain, VersionMoved):
            if not attempt.arrived:  # otherwise it is stored, whatever was answered
                self._give_up(fact, attempt)
                raise
        except BaseException:
            self._give_up(fact, attempt)
            raise
        finally:
            attempt.over = True

    def expected(self, entry: EntryFact) -> bool:
        attempts = self._awaited.pop(_name(entry), [])
        for attempt in attempts:
            attempt.arrived = True
            if not attempt.over:
                attempt.waiting.reschedule(0)
        return bool(attempts)

    def _give_up(self, fact: EntryFact, attempt: Attempt) -> None:
        attempts = self._awaited.get(_name(fact), [])
        if attempt in attempts:
            attempts.remove(attempt)
        if not attempts:
            self._awaited.pop(_name(fact), None)

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


def _name(entry: EntryFact) -> tuple[str, int, str]:
    return entry.run_id, entry.seq, entry.hash
