"""Runs of the store of one agent are written into the log of a shared one, and held against what they were.

Whatever of it is there already is left out, so that a move which was interrupted is finished by the next.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Protocol

from agent_service.store.facts import EntryFact
from agent_service.store.moving.comparing import differences
from agent_service.store.moving.history import History
from agent_service.store.standing_on import Log
from groundwork.nats.shared_log import Moved
from groundwork.service.errors import Misconfigured
from groundwork.sqlite.file import SqliteFile
from schemas import subjects

TOGETHER = 64
"""Facts that are on their way at the same time: of different runs, for those of one run follow each other."""


class Copy(Protocol):
    async def caught_up(self) -> None: ...


class IntoLog:
    """One move. `copy` writes the facts of `log` into `copied`."""

    def __init__(self, log: Log, copy: Copy, copied: SqliteFile) -> None:
        self._log = log
        self._copy = copy
        self._copied = copied
        self._places: dict[str, int] = {}

    async def move(self, source: SqliteFile) -> int:
        """How many entries were written. Raises Misconfigured where another writes there too, or where it has become
        anything else than it was, and TryAgain."""
        await self._copy.caught_up()
        history = History(source, self._copied)
        written = 0
        async for some in _bunches(history.entries()):
            await asyncio.gather(*(self._follow_each_other(chain, history) for chain in _by_run(some)))
            written += len(some)
        await self._write_the_rest(history)
        await self._copy.caught_up()
        if found := await differences(source, self._copied):
            raise Misconfigured(f"the runs are in the log, but not as they were: {'; '.join(found)}. Nothing was lost")
        return written

    async def _write_the_rest(self, history: History) -> None:
        await self._copy.caught_up()
        for seen in await history.dismissals():
            await self._append(subjects.stored_seen(seen.run_id), seen.encoded(), None)
        for halt in await history.halts():
            await self._append(subjects.STORED_HALT, halt.encoded(), None)
        async for gone in history.gone():
            await self._append(subjects.STORED_GONE, gone.encoded(), None)
        if told := await history.told():
            await self._append(subjects.STORED_TOLD, told.encoded(), None)

    async def _follow_each_other(self, chain: Sequence[EntryFact], history: History) -> None:
        for fact in chain:
            if fact.run_id not in self._places:
                seq, position = history.newest_place(fact.run_id)
                self._places[fact.run_id] = position if seq > 1 else 0
            place = await self._append(fact.subject, fact.encoded(), self._places[fact.run_id])
            self._places[fact.run_id] = place if fact.seq > 1 else 0

    async def _append(self, subject: str, body: bytes, after: int | None) -> int:
        try:
            return await self._log.append(subject, body, after=after)
        except Moved as error:
            raise Misconfigured(
                f"somebody else writes to {subject}: stop all agents that share this store, then run this again"
            ) from error


async def _bunches(facts: AsyncIterable[EntryFact]) -> AsyncIterator[list[EntryFact]]:
    some: list[EntryFact] = []
    async for fact in facts:
        some.append(fact)
        if len(some) == TOGETHER:
            yield some
            some = []
    if some:
        yield some


def _by_run(facts: Sequence[EntryFact]) -> list[list[EntryFact]]:
    chains: dict[str, list[EntryFact]] = {}
    for fact in facts:
        chains.setdefault(fact.run_id, []).append(fact)
    return list(chains.values())
